# Each target is one command; the logic is in xtask. `make` alone lists them.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help demo demo-log demo-sql test check bench performance deb release docs soak kubernetes fmt toolchain packages-%

help:
	@echo 'make demo      PostgreSQL on a volume whose daemon is killed in the middle (5 to 6 minutes the first time)'
	@echo 'make demo-log  a topic whose broker and daemon are killed under a producer and a consumer group (4 minutes)'
	@echo 'make demo-sql  topics and views that SQL defines, whose broker is killed (long the first time: the SQL engine is built)'
	@echo 'make test      everything: unit, property, loom, crash, clients, block device, kills; FILTER=name for some suites'
	@echo 'make check     what every commit passes: format, lints, tidy, unit tests'
	@echo 'make performance  the figures of docs/performance.md, measured anew (two hours)'
	@echo 'make bench     every measurement, quickly, and a report of it (15 minutes at most)'
	@echo 'make soak      the long runs: 10,000 kills, 20 power cuts, suites of Kafka clients'
	@echo 'make kubernetes  a cluster of one node whose pods use volumes (half an hour the first time: Kubernetes is built)'
	@echo 'make deb       Debian packages of all programs in target/deb'
	@echo 'make release   packages, container files, bill of materials and checksums of the tagged commit in target/release-files'
	@echo 'make docs      a site of all documents in target/docs/book, with search (mdBook is installed the first time)'
	@echo 'make fmt       format the code'

demo: packages-demo toolchain
	@cargo xtask demo

demo-log: packages-demo-log toolchain
	@cargo xtask demo-log

demo-sql: packages-demo-sql toolchain
	@cargo xtask demo-sql

test: packages-test toolchain
	@cargo xtask test $(FILTER)

check: toolchain
	@cargo xtask check

bench: packages-test toolchain
	@cargo xtask bench

performance: packages-test toolchain
	@cargo xtask performance

deb: packages-deb toolchain
	@cargo xtask deb

# The time of the commit stands in the packages, not that of the build.
release: packages-deb toolchain
	@SOURCE_DATE_EPOCH=$$(git log -1 --pretty=%ct) cargo xtask release

docs: toolchain
	@cargo xtask docs

soak: packages-test toolchain
	@cargo xtask soak

kubernetes: packages-test toolchain
	@cargo xtask kubernetes

fmt: toolchain
	@cargo fmt --all

packages-%:
	@.ci/packages $*

toolchain:
	@command -v cargo >/dev/null || { echo 'No Rust here. Get it: curl -sSf https://sh.rustup.rs | sh -s -- -y; then run make again.'; exit 1; }
	@[ -x target/debug/xtask ] || echo 'building xtask, which runs the tasks (20 seconds)'
