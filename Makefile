# Steadfast. `make run` mounts a volume to try, `make test` runs everything.

IMAGE ?= steadfast.img
MOUNT ?= mnt
SIZE ?= 1G
CARGO ?= cargo

export CARGO IMAGE MOUNT SIZE

.DEFAULT_GOAL := help
.PHONY: help run stop test fmt lint embedded kernel fuzz bench install deb static archives clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build, make a volume in $(IMAGE) if there is none, and mount it on $(MOUNT)
	@scripts/run.sh

stop: ## Unmount what `make run` mounted
	@scripts/stop.sh

test: ## Run every test, those of the mount included (installs the Debian packages they need)
	@scripts/test.sh

fmt: ## Format the code
	$(CARGO) fmt --all

lint: ## Formatting, clippy, documentation, licences: anything that would be refused
	@scripts/lint.sh

embedded: ## Build the core for a microcontroller without an operating system
	@scripts/embedded.sh

kernel: ## Build the Linux kernel module for the running kernel, or for KVER
	@scripts/kernel.sh

fuzz: ## Fuzz images and operations, FUZZ_SECONDS (60) for each target; needs a nightly compiler
	@scripts/fuzz.sh

bench: ## Measure this machine's file systems side by side and write the report (root; quick suites)
	@scripts/bench.sh

# One suite: bench-b1 … bench-b5, bench-device, bench-check, bench-goals.
bench-%:
	@scripts/bench.sh $*

.PHONY: performance
performance: ## Measure for docs/PERFORMANCE.md; write docs/performance/measured.md (root)
	@scripts/performance.sh

.PHONY: count
count: ## Count instructions, allocations and copies of each operation; write docs/COUNTS.md
	@scripts/count.sh

# The smaller volumes only; fails if a count grew by more than 5 % over the committed table.
.PHONY: count-check
count-check:
	@scripts/count.sh check

.PHONY: boards
boards: ## Run the core on emulated boards, cut their power at every write; write docs/BOARDS.md
	@scripts/boards.sh

# The same, and fails if a figure grew by more than 5 % over the committed table.
.PHONY: boards-check
boards-check:
	@scripts/boards.sh check

PREFIX ?= /usr/local
install: ## Install commands, mount helpers and the C library below $(PREFIX) (root, or DESTDIR)
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh

deb: ## Build Debian packages: the commands, the library for C, its development files
	@scripts/deb.sh

.PHONY: dkms
dkms: ## Build the Debian package steadfast-dkms: the kernel module, compiled for each kernel
	@scripts/dkms.sh

static: ## Build the command as one file that needs no library (musl)
	@scripts/static.sh

archives: ## Build the package for firmware without Rust: archives, headers, CMake package, example
	@scripts/archives.sh

clean: ## Remove what was built (images and mounts stay)
	$(CARGO) clean
