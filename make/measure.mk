# Measuring, and the page of its figures.

# The programs that `compare` runs: a peer that the criterion benches leave out has a package of its own.
BENCHES := -p windlass-benches -p windlass-bench-compio -p windlass-bench-monoio

# ARGS="--rounds 5 --only echo_64" chooses; ARGS=--help tells what there is. JSON=FILE has all rows.
JSON ?= $(TARGET_DIR)/compare.json
compare: setup ## servers and whole programs in turn, Go too where it is installed
	$(CARGO) build --release $(BENCHES)
	$(TARGET_DIR)/release/compare --json $(JSON) $(ARGS)

# All figures of docs/BENCHMARKS.md, measured part by part into one file for the commit. A run that was
# cut off goes on with the parts that are missing; FRESH=1 begins anew. The last part takes what no
# other has. Commit first, as parts of different commits do not go together.
BENCHMARKS_PARTS := yield,spawn_,ping_pong,skynet chan_,mutex_ sleepers,deadlines,sleep_overshoot memory_,close_parked \
	echo_ http_ latency_busy stalls_ gap_ stream_,reads_
benchmarks: setup ## measures all rows of docs/BENCHMARKS.md anew, and renders it; goes on where it was cut off
	$(CARGO) build --release $(BENCHES)
	set -e; results=$(TARGET_DIR)/benchmarks-$$(git rev-parse --short HEAD).json; \
	$(if $(FRESH),rm -f $$results;) \
	for part in $(BENCHMARKS_PARTS) ''; do \
		$(TARGET_DIR)/release/compare --json $$results --resume $${part:+--only $$part} $(ARGS); \
	done; \
	cp $$results docs/benchmarks/compare.json
	$(CARGO) bench -p windlass-criterion --bench numa -- --json $(CURDIR)/docs/benchmarks/numa.json $(NUMA_ARGS)
	$(MAKE) --no-print-directory benchmarks-page

# RESULTS="FILE .." shows other results than those checked in.
benchmarks-page: setup ## renders docs/BENCHMARKS.md and its charts from docs/benchmarks/*.json
	$(CARGO) run -q -p windlass-benches --bin render -- $(RESULTS)

# The same tables each time: the simulation has a clock and random numbers of its own. Optimised is the library
# alone: all that its tests link would take longer than the simulation.
theory: setup ## writes the tables of docs/NUMA.md, "Policy against theory", by formulas and by simulation
	WINDLASS_BLESS=1 $(CARGO) test -p windlass --features $(TEST_FEATURES) --config 'profile.dev.package.windlass.opt-level=2' \
		--lib -- the_docs_have_the_tables
