# Tests on machines that this one is not: several NUMA nodes, aarch64.

# cargo test with a virtual machine of several nodes to run in: one boot for each test program, and
# one test at a time, as its CPUs are more than the host's. Patience for emulation on a busy host.
NUMA_VM = RUST_TEST_THREADS=1 WINDLASS_TEST_HANG_SECONDS=600 CARGO_TARGET_$(shell uname -m | tr a-z A-Z)_UNKNOWN_LINUX_GNU_RUNNER="$(CURDIR)/scripts/numa-vm.sh --timeout 1200 $(1) --" \
	$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES)

# Two and four nodes, the last one without memory, eight of 64 CPUs, and the ordinary suites once. What is stolen from where
# says nothing if most Ps wait for a CPU of the host.
test-numa: setup ## tests in virtual machines of 2 to 8 NUMA nodes, fetched where there is apt
	scripts/numa-vm.sh --prepare
	$(call NUMA_VM,--nodes 2) $(call tests,numa_vm)
	$(call NUMA_VM,--nodes 4) $(call tests,numa_vm)
	$(call NUMA_VM,--nodes 2 --memoryless) $(call tests,numa_vm/nodes)
	$(call NUMA_VM,--nodes 4 --memoryless) $(call tests,numa_vm/nodes)
	$(call NUMA_VM,--nodes 8 --cpus-per-node 8) $(call tests,numa_vm/nodes) --skip what_must_be_stolen
	$(call NUMA_VM,--nodes 2) $(call tests,task/task sched/runtime net/tcp channel/channel numa/node_local)
	$(call NUMA_VM,--nodes 2) $(call tests,seccomp)

# Tests that are short enough for every change.
test-numa-small: setup ## those on 2 nodes
	scripts/numa-vm.sh --prepare
	$(call NUMA_VM,--nodes 2) $(call tests,numa_vm)

# The oldest kernel that windlass runs on and the newest that Debian has, by their suites; the newest by each of its two
# ways to preempt. The tests that are left out measure CPU time, which emulation takes ten times of.
test-kernels: setup ## task, net and channel on other kernels, in virtual machines; takes long
	$(call KERNEL_VM,bookworm)
	$(call KERNEL_VM,trixie-backports --append preempt=lazy)
	$(call KERNEL_VM,trixie-backports --append preempt=full)

KERNEL_VM = $(call NUMA_VM,--nodes 1 --cpus-per-node 4 --kernel $(1)) $(call tests,task net channel) --skip many_receivers_come_and_go \
	--skip connects_that_wait_cost_nothing --skip waits_end_in_time_and_do_not_spin

# The library and the topology command for the other architecture.
check-aarch64: setup ## cargo check for aarch64; the standard library for it is fetched or built
	scripts/aarch64.sh check $(addprefix -p ,$(PUBLISHED)) --target-dir $(TARGET_DIR)/aarch64

# Goroutines, channels, locks and sockets on aarch64: one boot of an emulated machine for
# each program. Two nodes, so that remote stealing is among it.
AARCH64 = AARCH64_NODES=2 RUST_TEST_THREADS=1 WINDLASS_TEST_HANG_SECONDS=600 scripts/aarch64.sh test -p windlass \
	--target-dir $(TARGET_DIR)/aarch64 $(1)
AARCH64_TESTS ?= $(CORE_TESTS) numa/numa

test-aarch64: setup ## tests in an emulated aarch64 machine, cross-compiled; takes long
	scripts/aarch64.sh --prepare-tests
	$(call AARCH64,--lib)
	$(call AARCH64,$(call tests,$(AARCH64_TESTS)))
	scripts/aarch64.sh gdb --target-dir $(TARGET_DIR)/aarch64

