# Each target is one command; the logic is in xtask. `make` alone lists them.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help demo demo-log test check bench deb soak fmt packages toolchain

help:
	@echo 'make demo    PostgreSQL on a volume whose daemon is killed in the middle (3 minutes)'
	@echo 'make demo-log  a topic whose broker and daemon are killed under a producer and a consumer group (2 minutes)'
	@echo 'make test    everything: unit, property, loom, crash, clients, block device, 200 kills'
	@echo 'make check   what every commit passes: format, lints, tidy, unit tests'
	@echo 'make bench   every measurement, quickly, and a report of it (15 minutes at most)'
	@echo 'make soak    the long runs: 10,000 kills, 20 power cuts'
	@echo 'make deb     Debian packages of all programs in target/deb'
	@echo 'make fmt     format the code'

demo: packages toolchain
	@cargo xtask demo

demo-log: packages toolchain
	@cargo xtask demo-log

test: packages toolchain
	@cargo xtask test $(FILTER)

check: toolchain
	@cargo xtask check

bench: packages toolchain
	@cargo xtask bench

deb: packages toolchain
	@cargo xtask deb

soak: packages toolchain
	@cargo xtask soak

fmt: toolchain
	@cargo fmt --all

packages:
	@.ci/packages

toolchain:
	@command -v cargo >/dev/null || { echo 'No Rust here. Get it: curl -sSf https://sh.rustup.rs | sh -s -- -y; then run make again.'; exit 1; }
