# Tools that find faults besides tests: models, explored schedules, sanitizers, fuzzers, counts of instructions.

# Release, because loom tries every interleaving of two preemptions.
loom: setup ## the models of the protocols between threads
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 \
		$(CARGO) test --release -p windlass --lib --target-dir $(TARGET_DIR)/loom loom_

# Those that end within a moment: all of them take a few seconds. Little is optimised, as the build takes longest.
LONG_MODELS := loom_rwlock_downgrade loom_rwlock_writers_and_a_reader loom_waitq_take_all loom_semaphore_weights loom_semaphore_deadline
loom-short: export CARGO_PROFILE_DEV_DEBUG = 0
loom-short: export CARGO_INCREMENTAL = 0
loom-short: setup ## the models that end soon
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 $(CARGO) test -q -p windlass --lib --target-dir $(TARGET_DIR)/loom \
		--config 'profile.dev.package.loom.opt-level=2' --config 'profile.dev.package.generator.opt-level=2' \
		--config 'profile.dev.package.windlass.debug-assertions=false' -- loom_ $(addprefix --skip ,$(LONG_MODELS))

# Each order of the protocols that rest on them, made weaker: docs/orders.md.
orders: setup ## which model notices a weaker order of an atomic access (ORDERS=src/g/status.rs chooses)
	tests/orders/run.sh $(ORDERS)

# The whole runtime, with real threads of which one runs at a time: docs/VERIFICATION.md. Long searches are optimised a
# little, with the assertions; in short ones the explorer alone is: the rest would be compiled for longer than it runs.
explore explore-short scale-check: export CARGO_INCREMENTAL = 0
explore: export CARGO_PROFILE_DEV_OPT_LEVEL = 1
explore-short scale-check: short = --config 'profile.dev.package.windlass-world.opt-level=0'
explored = --target-dir $(TARGET_DIR)/explore $(short)
run_explorer = RUSTFLAGS="--cfg explore" $(CARGO) run -q -p windlass-explore $(explored) -- $(1)
EXPLORE ?= --seconds 60
explore: setup ## the runtime's threads in orders that seeds draw (EXPLORE="--seconds 300 hogs" chooses)
	$(call run_explorer,$(EXPLORE))

# Equal seeds each time. First: is a schedule that fails the same when it is replayed?
explore-short: setup ## 150 orders of each scenario
	$(call run_explorer,--check)
	$(call run_explorer,--schedules 150)

# Debug assertions read atomics, which the twin would charge for.
scale scale-page scale-known: export CARGO_PROFILE_DEV_OPT_LEVEL = 2
scale scale-page scale-known: export CARGO_PROFILE_DEV_DEBUG_ASSERTIONS = false
run_twin = RUSTFLAGS="--cfg explore" $(CARGO) run -q -p windlass-scale --target-dir $(TARGET_DIR)/scale -- $(1)
SCALE ?=
scale: setup ## the runtime on simulated machines of up to 512 CPUs (SCALE="--machine 4x28 --workload pairs" chooses)
	$(call run_twin,$(SCALE))

# Some minutes. RESUME=1 goes on where it was cut off.
scale-page: setup ## measures the figures of docs/SCALE.md on simulated machines, and draws its tables and its chart
	$(if $(RESUME),,rm -f docs/scale/now.txt docs/scale/events.txt)
	$(call run_twin,--page)

scale-known: setup ## do results of others come out on a simulated machine?
	$(call run_twin,--known)

# With the library that the explorer uses, so that it is built once: the record has what its assertions read.
scale-check: setup ## short runs on simulated machines: is a line written by more CPUs than on record? (SCALE=--update records)
	RUSTFLAGS="--cfg explore" $(CARGO) run -q -p windlass-scale $(explored) -- --check $(SCALE)

# An hour or two, if all are run. All are in one build for each kind of checker.
mutants: setup ## which checker finds each small fault that is put in (MUTANTS="runq waitq" chooses)
	$(CARGO) run -q -p windlass-mutants -- $(MUTANTS)

# Fails with the hot path that needs more instructions than tests/instructions has on record. Optimised as
# programs of users are.
instructions: setup ## counts instructions of the hot paths by valgrind, compares (ARGS=--update records)
	$(CARGO) run -q --release -p windlass-instructions -- $(ARGS)

# The standard library is checked, too. Stack switches are told to the sanitizer by corosensei.
# No leak check: it needs ptrace, and takes what G slots hold for leaked.
# Two runs, as a filter for modules would leave nothing of the library's own tests. One set of packages and features,
# so that both are one build.
ASAN = toolchain=$$(scripts/toolchain.sh asan) && ASAN_OPTIONS=detect_leaks=0 \
	$(CARGO) +$$toolchain test -p windlass -p windlass-hook --features corosensei/sanitizer,windlass/sim \
	--target x86_64-unknown-linux-gnuasan --target-dir $(TARGET_DIR)/asan $(1)
# The first counts the bytes of a stack, of which checked frames take more. The second needs windlass's own pthread_create,
# before which the sanitizer puts another.
NOT_UNDER_ASAN := a_destructor_forks_with_little_stack_left a_thread_makes_the_run_fail
ASAN_TESTS ?= $(CORE_TESTS) channel/leaks sched/blocking sched/shutdown task/join sim/determinism sim/hosts sim/failures

asan: setup ## tests under AddressSanitizer; installs a toolchain for it
	$(call ASAN,--lib $(addprefix --test ,$(basename $(notdir $(wildcard crates/hook/tests/*.rs)))))
	$(call ASAN,$(call tests,$(ASAN_TESTS)) $(addprefix --skip ,$(NOT_UNDER_ASAN)))

# Tests that switch no stacks: the models of protocols, with the atomics and the memory that Miri emulates, and the
# library's tests of plain data. Each seed is another interleaving, and other values that weak loads return.
# Leaks are not looked for: slots of goroutines stay until the process ends.
MIRI_SEEDS ?= 0..2
MIRI_TESTS ?= loom_ g::status g::cancel_wait local_values g::fork g::header sched::queue timer:: sync:: channel:: \
	netpoll::waiters util::event_log util::bitset

miri: setup ## models and tests of plain data under Miri; needs a nightly toolchain
	toolchain=$$(scripts/toolchain.sh miri) && MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-many-seeds=$(MIRI_SEEDS)" \
		$(CARGO) +$$toolchain miri test -p windlass -p windlass-ground --lib --target-dir $(TARGET_DIR)/miri -- $(MIRI_TESTS)

# The programs of tests/race.rs first, which show that races are found and that order is seen. Then suites, which test that what
# the runtime orders is ordered. WINDLASS_RACE=threads in front tests the runtime itself.
RACE_TESTS ?= sync channel context task io debug net
# They need what the sanitizer changes: threads that spin at their full speed; deep recursion and more goroutines than it has
# room for; the number of descriptors; windlass's own pthread_create; the names of frames of std.
NOT_UNDER_RACE := a_hammered_lock recursion_deeper_than_a_stack contexts_around_a_deep_recursion a_run_ends_with_reads_and_opens_that_wait \
	children_of_libc_are_not_pinned threads_and_children_of_std_are_not_pinned programs_inherit_nothing_of_the_thread \
	ten_thousand_connections a_hundred_thousand_goroutines a_scope_of_std_is_named one_that_blocks_its_thread_is_named \
	a_waiting_future_has_little_memory a_poll_that_gets_no_stack_ends_with_the_reason
RACE = toolchain=$$(scripts/toolchain.sh race) && WINDLASS_TEST_HANG_SECONDS=600 \
	$(CARGO) +$$toolchain test -p windlass --features race,sim --target x86_64-unknown-linux-gnutsan \
	--target-dir $(TARGET_DIR)/race $(1)
race: setup ## tests under ThreadSanitizer, which knows goroutines; installs a toolchain for it
	$(call RACE,--test race)
	$(call RACE,$(call tests,$(RACE_TESTS)) $(addprefix --skip ,simulated $(NOT_UNDER_RACE)))

# An input that fails is kept in tests/fuzz/artifacts, and fails again when it is named after the target:
# `cargo +nightly fuzz run --fuzz-dir tests/fuzz resp FILE`.
SECONDS ?= 30
fuzz: setup ## the examples' parsers, each for SECONDS; needs a nightly toolchain and cargo-fuzz
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || \
		{ echo "fuzz: needs a nightly toolchain and cargo-fuzz: cargo install cargo-fuzz" >&2; exit 1; }
	set -e; for target in resp http range path; do \
		$(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz --target-dir $(TARGET_DIR)/fuzz $$target -- \
			-max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
			-dict=tests/fuzz/dictionaries/$$target; \
	done

