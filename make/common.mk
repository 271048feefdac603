# Names that the other files share.

CARGO ?= cargo
# The folder in which cargo builds. The models of loom have a folder of their own below it.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# The crates that are published, each after those that it depends on.
PUBLISHED := windlass-topology windlass-macros windlass-unwind windlass-world windlass-explorer \
	windlass-sys windlass-ground windlass-trace windlass-leaks windlass \
	windlass-hyper windlass-tracing windlass-hook windlass-handover windlass-console
# The packages with tests of the runtime. Each command names all of them: cargo unites the features of
# the packages that a command names, so that other packages would mean other builds.
PACKAGE_NAMES := $(filter-out windlass-topology windlass-explorer,$(PUBLISHED)) windlass-examples windlass-ports
PACKAGES := $(addprefix -p ,$(PACKAGE_NAMES))
# Packages that are tested in release as well. The others switch no stacks of their own, and the crates that the
# examples show take longer to optimise than all the rest.
RELEASE_PACKAGES := $(addprefix -p ,$(filter-out windlass-macros windlass-console windlass-world windlass-trace windlass-leaks windlass-ports windlass-examples,$(PACKAGE_NAMES))) \
	--features windlass-hyper/server
# Features that are off by default: of the examples, those over crates of others are built for lint and CI alone, as these
# crates take as long to build as windlass.
FEATURES := windlass-examples/all
# Tests in the dev profile can also be perturbed (WINDLASS_CHAOS), so that this needs no build of
# its own. Without the variable the feature does nothing. Simulations are among them (tests/sim); tests in
# release are without that feature, as programs are.
TEST_FEATURES := windlass-examples/service,windlass-examples/sim,windlass/chaos,windlass/leaks,windlass/lock-owners,windlass/sim
# tests/servers does not build without OpenSSL's headers, which scripts/servers.sh installs.
WITHOUT_SERVERS = $(if $(shell pkg-config --exists openssl && echo yes),,--exclude windlass-servers)

# A stage says when it begins, and how long it took: $(call stage,NAME,COMMAND).
define stage
@printf '\n== %s\n' '$(1)'
@began=$$(date +%s); { $(2); } && printf '== %s: %s s\n' '$(1)' $$(($$(date +%s) - began))
endef

# Tests by folder: tests/PROGRAM/MODULE.rs is PROGRAM/MODULE, and PROGRAM is all of tests/PROGRAM or tests/PROGRAM.rs.
# As arguments of cargo test: the programs, and filters for their modules.
modules = $(if $(findstring /,$(1)),$(notdir $(1)),$(filter-out main,$(basename $(notdir $(wildcard tests/$(1)/*.rs)))))
test_programs = $(addprefix --test ,$(sort $(foreach name,$(1),$(firstword $(subst /, ,$(name))))))
tests = $(call test_programs,$(1)) -- $(addsuffix ::,$(foreach name,$(1),$(call modules,$(name))))

# Goroutines, channels, locks and connections: their tests run in every mode. A mode names what it adds.
CORE_TESTS := task/task channel/channel channel/select sync net/tcp

# The targets of these files, each with what follows `##` on its line.
help_of = sed -n 's/^\([a-z0-9-]*\):.*\#\# \(.*\)/\1\t\2/p' $(1) | while IFS='	' read -r name what; do printf 'make %-16s %s\n' "$$name" "$$what"; done

# A target is a name, not a file; the parts of one follow each other.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*\#\# .*/\1/p' Makefile make/*.mk)
.NOTPARALLEL:
.DEFAULT_GOAL := help

help-all:
	@$(call help_of,Makefile make/*.mk)
