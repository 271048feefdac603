# What finds faults besides tests: models, explored schedules, sanitizers, fuzzers, counts of instructions.

# Release, because loom tries every interleaving of two preemptions.
loom: setup ## the models of the protocols between threads
	RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 \
		$(CARGO) test --release -p windlass --lib --target-dir $(TARGET_DIR)/loom loom_

# The whole runtime, with real threads of which one runs at a time: docs/VERIFICATION.md. Optimised a
# little, with the assertions.
explore explore-short: export CARGO_PROFILE_DEV_OPT_LEVEL = 1
explore explore-short: export CARGO_PROFILE_DEV_DEBUG = line-tables-only
run_explorer = RUSTFLAGS="--cfg explore" $(CARGO) run -q -p windlass-explore --target-dir $(TARGET_DIR)/explore -- $(1)
EXPLORE ?= --seconds 60
explore: setup ## the runtime's threads in orders that seeds draw (EXPLORE="--seconds 300 hogs" chooses)
	$(call run_explorer,$(EXPLORE))

# The same seeds each time. First: is a schedule that fails the same when it is replayed?
explore-short: setup ## 150 orders of each scenario
	$(call run_explorer,--check)
	$(call run_explorer,--schedules 150)

# Fails with the hot path that needs more instructions than tests/instructions has on record. Optimised as
# programs of users are.
instructions: setup ## counts instructions of the hot paths by valgrind, compares (ARGS=--update records)
	$(CARGO) run -q --release -p windlass-instructions -- $(ARGS)

# Needs a nightly toolchain. Stack switches are told to the sanitizer by corosensei.
# No leak check: it needs ptrace, and takes what G slots hold for leaked.
# Two runs, as a filter for modules would leave nothing of the library's own tests.
ASAN = ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS="-Zsanitizer=address" \
	$(CARGO) +nightly test -p windlass --features corosensei/sanitizer --target $(shell uname -m)-unknown-linux-gnu \
	--target-dir $(TARGET_DIR)/asan $(1)
ASAN_TESTS ?= task blocking shutdown net channel channel_leaks select sync_counting sync_mutex sync_once \
	sync_rwlock sync_shutdown

asan: setup ## tests under AddressSanitizer; needs a nightly toolchain
	$(call ASAN,--lib)
	$(call ASAN,$(call tests,$(ASAN_TESTS)))

# The programs of tests/race.rs first, which show that races are found and that order is seen. Then suites, which test that what
# the runtime orders is ordered. WINDLASS_RACE=threads in front tests the runtime itself.
RACE_TESTS ?= sync_counting sync_once sync_rwlock channel select context
race: setup ## tests under ThreadSanitizer, told of goroutines; gets a newer compiler
	scripts/race.sh -p windlass --test race
	scripts/race.sh -p windlass $(call tests,$(RACE_TESTS)) --skip simulated --skip a_hammered_lock

# What is found lies in tests/fuzz/artifacts, and fails again when it is named after the target:
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

