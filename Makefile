# Targets of each day. The rest, and what these targets are made of, is in make/.
# `make demo` and `make test` need cargo, make and a C compiler; scripts/setup.sh looks for the rest,
# and installs it where it is missing.

include make/common.mk

help: ## this list; `make help-all` has the targets of make/ too
	@$(call help_of,Makefile)

setup: ## installs libhwloc, SQLite and pkg-config if they are missing
	@scripts/setup.sh

clients: ## installs curl (also with HTTP/3), gdb, redis-tools and wrk, with which tests drive the examples; tests skip without
	@scripts/clients.sh

# The features of one package only: nothing is built that the demo does not need.
demo: setup ## builds and runs examples/demo
	$(CARGO) run --release -p windlass-examples --example demo

# The second clippy is as users have it: without the features that the tests ask for. The third: without libhwloc.
lint: setup ## formatting, clippy and the documentation, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(WITHOUT_SERVERS) --all-targets --features $(FEATURES),windlass-examples/sim,windlass/sim -- -D warnings
	$(CARGO) clippy -p windlass -- -D warnings
	$(CARGO) clippy -p windlass --no-default-features -- -D warnings
	$(CARGO) clippy -p windlass-criterion --benches -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace $(WITHOUT_SERVERS) --no-deps --features $(FEATURES),windlass/sim

check: lint test ## before each push: lint, and all tests once

# The second is built from the start: the last crates of the first build leave a CPU free.
test: setup clients ## all tests once, over io_uring, and explored schedules
	$(call stage,tests,scripts/beside.sh "$(MAKE) test-build test-programs" "$(MAKE) loom-short explore-short scale-check test-docs")

test-all: test test-modes test-long test-release loom scale-known ## also: over epoll, with disorder, in release, under a seccomp filter, all seeds, suites, packages, models, simulated machines

# More arguments go into ARGS: ARGS=--full.
bench: setup ## benches of windlass, tokio and may, with verdicts (BENCH=yield runs one, BENCH=numa the policies)
	$(CARGO) bench -p windlass-criterion -- $(BENCH) $(ARGS)

include make/stages.mk make/tools.mk make/machines.mk make/measure.mk make/release.mk
