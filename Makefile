# `make demo` and `make test` need cargo, make and a C compiler; the rest is
# looked for by scripts/setup.sh, and installed where it is missing.

CARGO ?= cargo
# Where cargo builds, said once, as the models of loom have a corner of their own.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# The packages with tests of the runtime. Each command names all of them: cargo unites the features of
# the packages that a command names, so that other packages would mean other builds.
PACKAGE_NAMES := windlass windlass-hyper windlass-tracing windlass-hook windlass-macros windlass-console windlass-unwind windlass-world windlass-examples windlass-ports
PACKAGES := $(addprefix -p ,$(PACKAGE_NAMES))
# Those that are tested in release as well. The others switch no stacks of their own, and the crates that the
# examples show take longer to optimise than all the rest.
RELEASE_PACKAGES := $(addprefix -p ,$(filter-out windlass-macros windlass-console windlass-ports windlass-examples,$(PACKAGE_NAMES)))
# The programs that `compare` runs: a peer that the criterion benches leave out has a package of its own.
BENCHES := -p windlass-benches -p windlass-bench-compio -p windlass-bench-monoio
# What is off if not asked for, and tested all the same.
FEATURES := windlass-examples/all
# Tests in the dev profile can also be perturbed (WINDLASS_CHAOS), so that this needs no build of
# its own. Without the variable the feature does nothing. Simulations are among them (tests/sim); tests in
# release are without that feature, as programs are.
TEST_FEATURES := $(FEATURES),windlass-examples/sim,windlass/chaos,windlass/sim

# A stage says when it begins, and how long it took: $(call stage,NAME,COMMAND).
define stage
@printf '\n== %s\n' '$(1)'
@began=$$(date +%s); { $(2); } && printf '== %s: %s s\n' '$(1)' $$(($$(date +%s) - began))
endef

# Files in tests/ by name, wherever they lie: tests/NAME.rs is a program, tests/PROGRAM/NAME.rs a module of one.
# As arguments of cargo test: the programs, and filters for the modules. Programs and modules cannot be
# named in one call, because a filter would leave nothing of a program without modules.
of_module = $(notdir $(patsubst %/,%,$(dir $(wildcard tests/*/$(1).rs))))
modules = $(foreach name,$(1),$(if $(call of_module,$(name)),$(name)))
test_programs = $(addprefix --test ,$(sort $(foreach name,$(1),$(or $(call of_module,$(name)),$(name)))))
test_filters = $(addsuffix ::,$(call modules,$(1)))
tests = $(call test_programs,$(1)) -- $(call test_filters,$(1))

.PHONY: help setup clients demo test test-all test-dev test-release test-filter test-epoll test-chaos test-numa test-numa-small check-aarch64 test-aarch64 suites test-servers loom explore explore-short instructions asan fuzz lint package public-api bench compare benchmarks benchmarks-page

help:
	@echo "make demo     build and run examples/demo"
	@echo "make test     the tests: over io_uring, over epoll, with disorder; what only an optimiser breaks"
	@echo "make test-all    also: all in release, under a seccomp filter, all seeds, suites, the models of loom"
	@echo "make test-chaos  tests of what the scheduler carries, with disorder (CHAOS_SEEDS=\"4 5\" chooses)"
	@echo "make test-numa  tests in virtual machines of 2 and 4 NUMA nodes, fetched where there is apt"
	@echo "make check-aarch64  cargo check for aarch64; the standard library for it is fetched or built"
	@echo "make test-aarch64  tests in an emulated aarch64 machine, cross-compiled; takes long"
	@echo "make suites   crossbeam-channel's own tests, with threads and with goroutines"
	@echo "make test-servers  blocking crates over windlass-hook, with Redis, MariaDB, PostgreSQL and others"
	@echo "make explore  the runtime's threads in orders that seeds draw (EXPLORE=\"--seconds 300 hogs\" chooses)"
	@echo "make instructions  counts instructions of the hot paths by valgrind, compares (ARGS=--update records)"
	@echo "make asan     tests under AddressSanitizer; needs a nightly toolchain"
	@echo "make fuzz     the examples' parsers, each for SECONDS; needs a nightly toolchain and cargo-fuzz"
	@echo "make lint     formatting, clippy and the documentation, warnings denied"
	@echo "make package  the crates as they would be published, each built from its archive"
	@echo "make public-api  compares the public API with docs/api; needs nightly and cargo-public-api"
	@echo "make bench    criterion benches of windlass, tokio and may, and a table of them (BENCH=yield runs one)"
	@echo "make compare  servers and whole programs in turn, Go too where it is installed"
	@echo "make benchmarks  measures all rows of docs/BENCHMARKS.md anew, and renders it; goes on where it was cut off"
	@echo "make benchmarks-page  renders docs/BENCHMARKS.md and its charts from docs/benchmarks/*.json"
	@echo "make clients  install curl, redis-tools and wrk, which some tests drive the examples with"
	@echo "make setup    install libhwloc, SQLite and pkg-config if they are missing"

setup:
	@scripts/setup.sh

# Foreign programs that the tests drive the examples with; tests skip without.
clients:
	@scripts/clients.sh

# The features of one package only: nothing is built that the demo does not need.
demo: setup
	$(CARGO) run --release -p windlass-examples --example demo

# Each test program would be optimised once more as a whole: as long as all the rest of the
# tests takes.
test test-all test-release test-filter loom: export CARGO_PROFILE_RELEASE_LTO = off

# What a person runs: everything once, then the same programs over epoll and with one seed of disorder,
# and in release what an optimiser could break: thread-locals over a stack switch.
OPTIMISED_TESTS := migration task blocking lock_thread
test: setup clients
	$(call stage,build,$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --lib --tests --no-run && $(CARGO) test -p windlass-topology --no-run)
	$(call stage,tests,$(MAKE) --no-print-directory test-dev)
	$(call stage,tests over epoll,$(MAKE) --no-print-directory test-epoll)
	$(call stage,tests with disorder,$(MAKE) --no-print-directory test-chaos CHAOS_SEEDS=$(firstword $(CHAOS_SEEDS)))
	$(call stage,explored schedules,$(MAKE) --no-print-directory explore-short)
	$(call stage,optimised tests,$(CARGO) test --release $(RELEASE_PACKAGES) $(call tests,$(OPTIMISED_TESTS)))

# Simulations of many seeds. One set of packages, so that all of them are one build.
SIMULATE := $(CARGO) test --release -p windlass -p windlass-examples --features windlass/sim,windlass-examples/sim

# What a change must pass (.ci/run). What is long and rare is here only.
test-all: test
	$(call stage,tests of the benches,$(CARGO) test $(BENCHES) -p windlass-suites)
	$(call stage,examples,$(CARGO) build $(PACKAGES) --features $(TEST_FEATURES) --examples)
	$(call stage,simulations of many seeds,WINDLASS_KERNEL_SEEDS=10000 $(SIMULATE) --test sim)
	$(call stage,simulated clusters,WINDLASS_CLUSTER_HOURS=1000 $(SIMULATE) --test replicated)
	$(call stage,own tests in simulations,RUST_BACKTRACE=0 WINDLASS_INSIDE_SEEDS=1000 $(SIMULATE) --test channel --test sync --test net --test io --test sched -- simulated)
	$(call stage,crates with real servers,$(MAKE) --no-print-directory test-servers)
	$(call stage,tests in release,$(MAKE) --no-print-directory test-release)
	$(call stage,tests under a filter,$(MAKE) --no-print-directory test-filter)
	$(call stage,more disorder,$(MAKE) --no-print-directory test-chaos CHAOS_SEEDS="$(wordlist 2,99,$(CHAOS_SEEDS))")
	$(call stage,packages,$(MAKE) --no-print-directory package)
	$(call stage,suites,$(MAKE) --no-print-directory suites)
	$(call stage,models,$(MAKE) --no-print-directory loom)

test-dev: setup
	$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --lib --tests
	$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --doc
	$(CARGO) test -p windlass-topology
	$(CARGO) test -p windlass-topology --no-default-features --lib

# Not a repetition: what an optimiser does to thread-locals over a stack switch shows there only.
test-release: setup
	$(CARGO) test --release $(RELEASE_PACKAGES) --lib --tests

# crossbeam-channel's own tests on ours, with threads and with goroutines. One at a time: many of
# them measure times.
suites: setup
	$(CARGO) run -p windlass-suites -- --test-threads=1

# Crates that open std's sockets, with real servers, over windlass-hook. Their package is no part of other builds, since
# it needs OpenSSL's headers.
test-servers: setup
	@status=0; scripts/servers.sh || status=$$?; \
	case $$status in \
	0) $(CARGO) test -p windlass-servers ;; \
	77) printf '\n== SKIPPED: crates with real servers were not tested, for the reason above\n' ;; \
	*) exit $$status ;; \
	esac

# What cargo tells the tests that it runs, and what build scripts would take for a change.
FORGET := $(foreach v,NAME VERSION_MAJOR VERSION_MINOR VERSION_PATCH VERSION_PRE,-u CARGO_PKG_$(v)) -u CARGO_MANIFEST_DIR

# Over epoll by choice, with the programs that the run over rings has built. Without most of the simulations,
# which have no poller.
NOT_OVER_EPOLL := simulated:: kernels determinism:: disk_model:: disk_faults:: disk_edges:: clusters_ keys_that_look
test-epoll: setup
	WINDLASS_IO=epoll $(CARGO) test $(PACKAGES) --features $(TEST_FEATURES) --tests -- $(addprefix --skip ,$(NOT_OVER_EPOLL))

# Where a filter really denies io_uring, with the programs of the release run.
test-filter: setup
	UNDER_FILTER="env $(FORGET) $(CARGO) test --release $(RELEASE_PACKAGES) --test '*'" env -u WINDLASS_IO \
		$(CARGO) test --release $(RELEASE_PACKAGES) --test seccomp -- --nocapture programs_that

# Between them these seeds touch every place that can be perturbed; src/util/chaos.rs tests that.
CHAOS_SEEDS ?= 1 2 18
CHAOS_TESTS := net_watch task channel channel_leaks select sync_counting sync_mutex sync_once sync_rwlock \
	sync_shutdown net blocking mixture context context_waits

# The tests under a scheduler that is perturbed: each seed chooses where, and how often.
test-chaos: setup
	@for seed in $(CHAOS_SEEDS); do \
		echo "WINDLASS_CHAOS=$$seed"; \
		WINDLASS_CHAOS=$$seed $(CARGO) test -q $(PACKAGES) --features $(TEST_FEATURES) \
			$(call tests,$(CHAOS_TESTS)) || exit 1; \
	done

# cargo test with a virtual machine of several nodes to run in: one boot for each test program, and
# one test at a time, as its CPUs are more than the host's. Patience for emulation on a busy host.
NUMA_VM = RUST_TEST_THREADS=1 WINDLASS_TEST_HANG_SECONDS=600 CARGO_TARGET_$(shell uname -m | tr a-z A-Z)_UNKNOWN_LINUX_GNU_RUNNER="$(CURDIR)/scripts/numa-vm.sh --timeout 1200 $(1) --" \
	$(CARGO) test $(PACKAGES) --features $(TEST_FEATURES)

# Two and four nodes, the last one without memory, and the ordinary suites once.
test-numa: setup
	scripts/numa-vm.sh --prepare
	$(call NUMA_VM,--nodes 2) $(call tests,numa_vm numa_vm_cpus)
	$(call NUMA_VM,--nodes 4) $(call tests,numa_vm numa_vm_cpus)
	$(call NUMA_VM,--nodes 2 --memoryless) $(call tests,numa_vm)
	$(call NUMA_VM,--nodes 4 --memoryless) $(call tests,numa_vm)
	$(call NUMA_VM,--nodes 2) $(call tests,task runtime net channel node_local)
	$(call NUMA_VM,--nodes 2) $(call tests,seccomp)

# What fits into every change's tests.
test-numa-small: setup
	scripts/numa-vm.sh --prepare
	$(call NUMA_VM,--nodes 2) $(call tests,numa_vm numa_vm_cpus)

# The library and the topology command for the other architecture.
check-aarch64: setup
	scripts/aarch64.sh check -p windlass -p windlass-topology -p windlass-hyper -p windlass-tracing -p windlass-hook -p windlass-macros -p windlass-console -p windlass-unwind -p windlass-world --target-dir $(TARGET_DIR)/aarch64

# What goroutines, channels, locks and sockets do on aarch64, one boot of an emulated machine for
# each program. Two nodes, so that remote stealing is among it.
AARCH64 = AARCH64_NODES=2 RUST_TEST_THREADS=1 WINDLASS_TEST_HANG_SECONDS=600 scripts/aarch64.sh test -p windlass \
	--target-dir $(TARGET_DIR)/aarch64 $(1)
AARCH64_TESTS ?= task channel select net sync_counting sync_mutex sync_once sync_rwlock sync_shutdown numa

test-aarch64: setup
	scripts/aarch64.sh --prepare-tests
	$(call AARCH64,--lib)
	$(call AARCH64,$(call tests,$(AARCH64_TESTS)))

# Release, because loom tries every interleaving of two preemptions.
loom: setup
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 \
		$(CARGO) test --release -p windlass --lib --target-dir $(TARGET_DIR)/loom loom_

# The whole runtime, with real threads of which one runs at a time: docs/VERIFICATION.md. Optimised a
# little, with the assertions.
explore explore-short: export CARGO_PROFILE_DEV_OPT_LEVEL = 1
explore explore-short: export CARGO_PROFILE_DEV_DEBUG = line-tables-only
run_explorer = RUSTFLAGS="--cfg explore" $(CARGO) run -q -p windlass-explore --target-dir $(TARGET_DIR)/explore -- $(1)
EXPLORE ?= --seconds 60
explore: setup
	$(call run_explorer,$(EXPLORE))

# The same seeds each time. First: is a schedule that fails the same when it is replayed?
explore-short: setup
	$(call run_explorer,--check)
	$(call run_explorer,--schedules 150)

# Fails with the hot path that needs more instructions than tests/instructions has on record. Optimised as
# programs of users are.
instructions: setup
	$(CARGO) run -q --release -p windlass-instructions -- $(ARGS)

# Needs a nightly toolchain. Stack switches are told to the sanitizer by corosensei.
# No leak check: it needs ptrace, and takes what G slots hold for leaked.
# Two runs, as a filter for modules would leave nothing of the library's own tests.
ASAN = ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address" \
	$(CARGO) +nightly test -p windlass --features corosensei/sanitizer --target $(shell uname -m)-unknown-linux-gnu \
	--target-dir $(TARGET_DIR)/asan $(1)
ASAN_TESTS ?= task blocking shutdown net channel channel_leaks select sync_counting sync_mutex sync_once \
	sync_rwlock sync_shutdown

asan: setup
	$(call ASAN,--lib)
	$(call ASAN,$(call tests,$(ASAN_TESTS)))

# What is found lies in tests/fuzz/artifacts, and fails again when it is named after the target:
# `cargo +nightly fuzz run --fuzz-dir tests/fuzz resp FILE`.
SECONDS ?= 30
fuzz: setup
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || \
		{ echo "fuzz: needs a nightly toolchain and cargo-fuzz: cargo install cargo-fuzz" >&2; exit 1; }
	set -e; for target in resp http range path; do \
		$(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz --target-dir $(TARGET_DIR)/fuzz $$target -- \
			-max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
			-dict=tests/fuzz/dictionaries/$$target; \
	done

# Does not build without OpenSSL's headers, which scripts/servers.sh installs.
WITHOUT_SERVERS = $(if $(shell pkg-config --exists openssl && echo yes),,--exclude windlass-servers)

# The second clippy is as users have it: without the features that the tests ask for. The third: without libhwloc.
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(WITHOUT_SERVERS) --all-targets --features $(FEATURES),windlass-examples/sim,windlass/sim -- -D warnings
	$(CARGO) clippy -p windlass -- -D warnings
	$(CARGO) clippy -p windlass --no-default-features -- -D warnings
	$(CARGO) clippy -p windlass-criterion -p windlass-bench-numa --benches -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace $(WITHOUT_SERVERS) --no-deps --features $(FEATURES),windlass/sim

# In one command, so that cargo finds the packages that others depend on without a registry.
package: setup
	$(CARGO) package --allow-dirty -p windlass-topology -p windlass-macros -p windlass-unwind -p windlass-world -p windlass -p windlass-hyper -p windlass-tracing -p windlass-hook -p windlass-console

# After a change of the API that is meant: scripts/public-api.sh --update.
public-api: setup
	scripts/public-api.sh

# BENCH=yield runs one bench, BENCH=numa the policies for NUMA nodes; the rest of cargo bench's arguments go into
# ARGS, and criterion's after "--": ARGS="-- --quick".
bench: setup
	$(CARGO) bench -p windlass-criterion -p windlass-bench-numa $(if $(BENCH),--bench $(BENCH)) $(ARGS)

# ARGS="--rounds 5 --only echo_64" chooses; ARGS=--help tells what there is. JSON=FILE has all rows.
JSON ?= $(TARGET_DIR)/compare.json
compare: setup
	$(CARGO) build --release $(BENCHES)
	$(TARGET_DIR)/release/compare --json $(JSON) $(ARGS)

# All figures of docs/BENCHMARKS.md, measured part by part into one file for the commit. A run that was
# cut off goes on with the parts that are missing; FRESH=1 begins anew. The last part takes what no
# other has. Commit first, as parts of different commits do not go together.
BENCHMARKS_PARTS := yield,spawn_,ping_pong,skynet chan_,mutex_ sleepers,deadlines,sleep_overshoot memory_,close_parked \
	echo_ http_ latency_busy stalls_ gap_ stream_,reads_
benchmarks: setup
	$(CARGO) build --release $(BENCHES)
	set -e; results=$(TARGET_DIR)/benchmarks-$$(git rev-parse --short HEAD).json; \
	$(if $(FRESH),rm -f $$results;) \
	for part in $(BENCHMARKS_PARTS) ''; do \
		$(TARGET_DIR)/release/compare --json $$results --resume $${part:+--only $$part} $(ARGS); \
	done; \
	cp $$results docs/benchmarks/compare.json
	$(CARGO) bench -p windlass-bench-numa --bench numa -- --json $(CURDIR)/docs/benchmarks/numa.json $(NUMA_ARGS)
	$(MAKE) --no-print-directory benchmarks-page

# RESULTS="FILE .." shows other results than those checked in.
benchmarks-page: setup
	$(CARGO) run -q -p windlass-benches --bin render -- $(RESULTS)
