# The project's commands. `make demo` and `make test` do all the set-up they need on a fresh machine.

TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
PLY := $(CURDIR)/target/$(TARGET)/release/ply
CACHE := $(CURDIR)/.cache
# What `make test` runs outside its own network: tests that read the machine's package mirrors.
MIRROR_TESTS := package(ply-forge)
# How far the long campaigns go: kills of each kind, steps of the simulation, rounds of each fuzz target.
LONG := PLY_LONG=1 PLY_SIM_STEPS=5000000 PLY_KILL_ROUNDS=200 PLY_TEST_KILLS=200 PLY_TEST_MOMENTS=500 PLY_FUZZ_ROUNDS=20000

.PHONY: demo build test test-long test-vm check bench attack-table fixtures tools fmt

# Builds ply, mints a base and packages, builds the example app, runs it, shows its page.
demo:
	tools/install build
	$(MAKE) build
	tools/demo $(PLY) $(CACHE)

build:
	cargo build --release -p ply

# Checks, unit tests and end-to-end tests.
test: tools check build fixtures
	cargo nextest run --workspace --no-run
	cargo nextest run --workspace -E '$(MIRROR_TESTS)'
	PLY_BIN=$(PLY) PLY_TEST_CACHE=$(CACHE) tools/world cargo nextest run --offline --workspace -E 'not ($(MIRROR_TESTS))'

# The long campaigns: the same tests with more rounds, bigger trees and longer fuzzing.
test-long: tools build fixtures
	cargo nextest run --workspace --no-run
	$(LONG) PLY_BIN=$(PLY) PLY_TEST_CACHE=$(CACHE) tools/world cargo nextest run --offline --workspace --profile long -E 'not ($(MIRROR_TESTS))'

# The virtual machine lane: limits, delegation, a reset and the attacks on a host with systemd and the whole cgroup v2,
# under two kernels.
test-vm:
	tools/install vm
	$(MAKE) build
	tools/vm $(PLY) $(CACHE)

# Formatting, lints, documentation and dependencies.
check: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
	tools/audit

# The figures of the README, each beside a peer in the same run.
bench: tools build fixtures
	cargo build --release -p ply-bench
	$(dir $(PLY))ply-bench prepare
	PLY_BIN=$(PLY) PLY_TEST_CACHE=$(CACHE) tools/world $(dir $(PLY))ply-bench

# The table of docs/security.md: the attacks in boxes, under Docker's defaults and under bubblewrap, in one run.
attack-table: tools
	@tools/attack-table $(CACHE)

# Packages and modules that the end-to-end tests use, made once and kept by content.
fixtures: build
	tools/fixtures $(PLY) $(CACHE)

# What the commands above need from the machine.
tools:
	tools/install test

fmt:
	cargo fmt --all
