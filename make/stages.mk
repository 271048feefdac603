# The parts of `make test` and `make test-all`, each of which runs alone as well.

# Each test program would be optimised once more as a whole: as long as all the rest of the
# tests takes.
test-long test-optimised test-release test-filter loom: export CARGO_PROFILE_RELEASE_LTO = off

# Tests wait for most of their time, so more of them run at once than there are CPUs, and what only computes runs beside them.
test test-modes test-dev test-programs test-epoll test-chaos test-filter test-restricted test-release: export RUST_TEST_THREADS := $(or $(RUST_TEST_THREADS),$(shell expr 2 \* $$(nproc)))
test-modes: setup ## the same programs over epoll and with one seed of disorder
	$(call stage,tests over epoll and with disorder,$(MAKE) test-epoll test-chaos CHAOS_SEEDS=$(firstword $(CHAOS_SEEDS)))

# Simulations of many seeds. One set of packages, so that all of them are one build.
KERNEL_SEEDS ?= 10000
CLUSTER_HOURS ?= 1000
INSIDE_SEEDS ?= 300
SIMULATE := $(CARGO) test --release -p windlass -p windlass-examples --features windlass/sim,windlass-examples/sim

test-long: setup ## what is long and rare
	$(call stage,tests of the benches,$(CARGO) test $(BENCHES) -p windlass-suites)
	$(call stage,the topology without libhwloc,$(CARGO) test -p windlass-topology --no-default-features --lib)
	$(call stage,examples over crates of others,$(MAKE) --no-print-directory test-crates)
	$(call stage,simulations of many seeds,WINDLASS_KERNEL_SEEDS=$(KERNEL_SEEDS) $(SIMULATE) --test sim)
	$(call stage,simulated clusters,WINDLASS_CLUSTER_HOURS=$(CLUSTER_HOURS) $(SIMULATE) --test replicated)
	$(call stage,own tests in simulations,RUST_BACKTRACE=0 WINDLASS_INSIDE_SEEDS=$(INSIDE_SEEDS) $(SIMULATE) $(patsubst tests/%/main.rs,--test %,$(shell grep -l inside::files tests/*/main.rs)) -- simulated)
	$(call stage,a million goroutines in gdb,WINDLASS_GDB_GOROUTINES=1000000 $(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --test debug -- --exact gdb::equal_stacks_are_shown_once)
	$(call stage,crates with real servers,$(MAKE) --no-print-directory test-servers)
	$(call stage,optimised tests,$(MAKE) --no-print-directory test-optimised)
	$(call stage,tests under a filter,$(MAKE) --no-print-directory test-filter)
	$(call stage,rings that may do less,$(MAKE) --no-print-directory test-restricted)
	$(call stage,more disorder,$(MAKE) --no-print-directory test-chaos CHAOS_SEEDS="$(wordlist 2,99,$(CHAOS_SEEDS))")
	$(call stage,packages,$(MAKE) --no-print-directory package)
	$(call stage,suites,$(MAKE) --no-print-directory suites)

# A package alone, with other features, so that windlass is built once more for it.
OF_CRATES := -p windlass-examples --features $(FEATURES),windlass-examples/sim
test-crates: setup clients ## the examples over crates of others, over rings and over epoll
	$(CARGO) build $(OF_CRATES) --examples
	$(CARGO) test $(OF_CRATES) --test crates --test quic
	WINDLASS_IO=epoll $(CARGO) test $(OF_CRATES) --test crates

test-dev: test-programs test-docs ## all tests in the dev profile, and the doc tests

test-build: setup ## builds these tests
	$(call stage,build,$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --tests --no-run)

test-programs: setup ## the tests of the runtime in the dev profile
	$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --tests

# Those of the macros are among windlass's: in their own crate they would be compiled with a second windlass.
test-docs: setup ## the doc tests, and the tests of the topology, of liveness and of the mutants
	$(CARGO) test $(addprefix -p ,$(filter-out windlass-macros,$(PACKAGE_NAMES))) --features $(TEST_FEATURES) --doc
	$(CARGO) test -p windlass-topology
	$(CARGO) test -p windlass-liveness
	$(CARGO) test -p windlass-mutants

# Not a repetition: what an optimiser does to thread-locals over a stack switch shows there only. CI has the part of it where
# that matters most, and the same programs under a filter.
test-release: setup ## the tests in release
	$(CARGO) test --release $(RELEASE_PACKAGES) --tests

OPTIMISED_TESTS := sched/migration sched/blocking task/task task/task_local task/lock_thread
test-optimised: setup ## the tests in release that an optimiser is most likely to break
	$(CARGO) test --release $(RELEASE_PACKAGES) $(call tests,$(OPTIMISED_TESTS))

# crossbeam-channel's own tests on ours, with threads and with goroutines. One at a time: many of
# them measure times.
suites: setup ## crossbeam-channel's own tests, with threads and with goroutines
	$(CARGO) run -p windlass-suites -- --test-threads=1

# Crates that open std's sockets, with real servers, over windlass-hook. Their package is no part of other builds, since
# it needs OpenSSL's headers.
test-servers: setup ## blocking crates over windlass-hook, with Redis, MariaDB, PostgreSQL and others
	@status=0; scripts/servers.sh || status=$$?; \
	case $$status in \
	0) $(CARGO) test -p windlass-servers ;; \
	77) printf '\n== SKIPPED: crates with real servers were not tested, for the reason above\n' ;; \
	*) exit $$status ;; \
	esac

# Variables that cargo sets for the tests that it runs: build scripts would take them for a change.
FORGET := $(foreach v,NAME VERSION_MAJOR VERSION_MINOR VERSION_PATCH VERSION_PRE,-u CARGO_PKG_$(v)) -u CARGO_MANIFEST_DIR

# Over epoll by choice, with the programs that the run over rings has built: what waits in the poller. In tests/ that is each
# file that names something of windlass that does, and outside of it three packages. Of the others test-filter runs those of the
# release packages.
WAITING := $(filter-out tests/sim/% tests/util/%,$(shell grep -lE \
	'^[^/]*(windlass::(net|io|fs|process|signal)\b|\bpair\(\))' tests/*.rs tests/*/*.rs))
WITH_TESTS := $(shell grep -lF '[test]' tests/*.rs tests/*/*.rs)
# A module with tests runs alone, one without by its program's.
WAITING_MODULES := $(filter $(wildcard tests/*/*.rs),$(filter $(WITH_TESTS),$(WAITING)))
WAITING_PROGRAMS := $(filter $(wildcard tests/*.rs),$(WAITING)) \
	$(filter $(WITH_TESTS),$(addsuffix main.rs,$(dir $(filter-out $(WITH_TESTS),$(WAITING))))) \
	$(wildcard crates/hook/tests/*.rs crates/hook/tests/*/main.rs) $(wildcard crates/hyper/tests/*.rs crates/handover/tests/*.rs) examples/tests/examples.rs
program = $(notdir $(basename $(patsubst %/main.rs,%,$(1))))
OVER_EPOLL = WINDLASS_IO=epoll $(CARGO) test $(PACKAGES) --features $(TEST_FEATURES)
test-epoll: setup ## tests of what waits in the poller, over epoll
	$(OVER_EPOLL) $(call tests,$(WAITING_MODULES:tests/%.rs=%))
	$(OVER_EPOLL) $(addprefix --test ,$(sort $(foreach file,$(WAITING_PROGRAMS),$(call program,$(file)))))

# Where a filter really denies io_uring, with the programs of the release run.
test-filter: setup ## the tests where a seccomp filter denies io_uring
	UNDER_FILTER="env $(FORGET) $(CARGO) test --release $(RELEASE_PACKAGES) --test '*'" env -u WINDLASS_IO \
		$(CARGO) test --release $(RELEASE_PACKAGES) --test seccomp -- --nocapture programs_that

# Under docs/seccomp.json, which has all that a program with windlass needs. The test that is left out installs a filter.
PROFILE_TESTS ?= --test net -- --skip a_kernel_that_takes_no_program_spreads_by_hash
test-profile: setup ## the tests of sockets under the seccomp profile of docs/CONTAINERS.md
	UNDER_PROFILE="env $(FORGET) $(CARGO) test -p windlass $(PROFILE_TESTS)" \
		$(CARGO) test -p windlass --test seccomp -- --nocapture programs_that_are_started_under_the_profile

# With rings that may carry out the operations of docs/CONTAINERS.md, and with one of them less each, the programs of the dev
# profile. Left out are tests that look at what polls save, at the mode of listeners, or at a low-water mark: these differ by
# design. So do those of polls that stay, where there are none.
RESTRICTED_TESTS ?= net/tcp net/udp net/udp_many net/unix net/accept_stream net/deadlines io/fs io/io
test-restricted: setup ## tests of sockets and files with one operation of rings less each
	UNDER_RESTRICTIONS="env $(FORGET) $(CARGO) test -q $(PACKAGES) --features $(TEST_FEATURES) $(call tests,$(RESTRICTED_TESTS)) --skip receives_that_wait_wait_for_the_low_water_mark --skip datagram_senders_that_wait_cost_nothing && \
		{ [ \$$LEFT_OUT = POLL_ADD ] || env $(FORGET) $(CARGO) test -q $(PACKAGES) --features $(TEST_FEATURES) $(call tests,net/multishot_poll); }" \
		$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --test seccomp -- --nocapture programs_whose_rings_may_do_less

# Between them these seeds touch every place that can be perturbed; src/util/chaos.rs tests that.
CHAOS_SEEDS ?= 1 2 18
CHAOS_TESTS := $(CORE_TESTS) channel/leaks context net/multishot_poll sched/blocking sched/mixture

# The tests under a scheduler that is perturbed: each seed chooses where, and how often.
test-chaos: setup ## tests of what the scheduler carries, with disorder (CHAOS_SEEDS="4 5" chooses)
	@for seed in $(CHAOS_SEEDS); do \
		echo "WINDLASS_CHAOS=$$seed"; \
		WINDLASS_CHAOS=$$seed $(CARGO) test -q $(PACKAGES) --features $(TEST_FEATURES) \
			$(call tests,$(CHAOS_TESTS)) || exit 1; \
	done

