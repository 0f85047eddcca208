# Causeway's commands. `make help` lists them. Each installs what it needs and is missing; running it again costs nothing.

SHELL := /bin/bash
JOBS ?= $(shell nproc)
# What cargo builds goes here; outside of the tree when CAUSEWAY_TARGET or CARGO_TARGET_DIR say so.
export CARGO_TARGET_DIR := $(abspath $(or $(CAUSEWAY_TARGET),$(CARGO_TARGET_DIR),target))
CARGO_HOME ?= $(HOME)/.cargo
export PATH := $(CARGO_HOME)/bin:$(PATH)

PROGRAMS := $(CURDIR)/build/cuda
BUILD_PROGRAMS := $(MAKE) --silent --no-print-directory -C tests/cuda -j$(JOBS) BUILD=$(PROGRAMS)
BUILD_APPS := $(MAKE) --silent --no-print-directory -C bench/apps -j$(JOBS) BUILD=$(CURDIR)/build/apps

help:
	@echo 'make demo        build, start a server with the software GPU, run a CUDA program on it'
	@echo 'make test        build everything and run all tests and lints; needs no GPU'
	@echo 'make bench       measure calls, copies and frames with the software GPU, over TCP and shared memory (see causeway bench --help)'
	@echo 'make lint        formatting, clippy, documentation, licences and advisories of the dependencies'
	@echo 'make book        make the book, docs/book/index.html'
	@echo 'make notices     make THIRD-PARTY-NOTICES.md, the licences of what the programs contain, from Cargo.lock'
	@echo 'make programs    compile the CUDA test programs into build/cuda, and the applications'
	@echo 'make apps        compile the applications of bench/apps into build/apps; python3 tools/gpu_test/apps measures them'
	@echo 'make gpu-bundle  pack build/gpu-bundle: all that a machine with a GPU needs to test Causeway without Rust or network'
	@echo 'make gpu-test    on a machine with a GPU: run the test programs, those of tests/python, the yardstick and the applications'
	@echo '                 natively and through Causeway; PARTS="programs model servers mpi python counts yardstick apps" picks parts'
	@echo 'make net-test    measure copies and launches over networks of known rate and length, beside iperf3; needs root'
	@echo 'make verbs-test  test InfiniBand verbs between two hosts with software RDMA devices, in a guest with a kernel of its own; needs root'
	@echo '                 for what it installs; the kernel is built once, some 8 minutes. make verbs-guest builds it and runs nothing'
	@echo 'make fuzz        run every fuzz target for a minute; FUZZ_SECONDS="600" changes that, FUZZ_TARGETS="messages fatbin" picks some'
	@echo '                 (fuzz/README.md). make fuzz-bundle packs build/fuzz-bin, to run them on a machine without Rust or network'
	@echo 'make check-concurrency'
	@echo '                 every order of the steps of each protocol of waiting, by loom; Miri and ThreadSanitizer where the toolchain has them'
	@echo 'make mpi         build build/mpi/libcauseway_mpi.so, for MPI programs that send memory on GPUs, with the mpicc that is there,'
	@echo '                 and the program that `causeway bench mpi` starts'
	@echo 'make setup       only install what the others need: a C++ compiler, Rust, the CUDA compiler'

setup:
	@scripts/setup.sh

programs: apps
	@$(BUILD_PROGRAMS)

apps: setup
	@$(BUILD_APPS)

demo: setup
	@$(BUILD_PROGRAMS) $(PROGRAMS)/vector_add
	cargo build --release --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	$(CARGO_TARGET_DIR)/release/causeway demo -- build/cuda/vector_add

# With MPICC=mpicc.mpich LINK_MPI=no for another MPI than the usual one.
mpi: setup
	cargo build --release --locked -p causeway-comm
	$(MAKE) --no-print-directory -C mpi BUILD=$(CURDIR)/build/mpi COMM=$(CARGO_TARGET_DIR)/release
	cp $(CARGO_TARGET_DIR)/release/libcauseway_comm.so build/mpi

# The two MPIs under which messages between GPUs are tested. They live side by side.
mpis:
	@scripts/install-packages.sh openmpi-bin libopenmpi-dev mpich libmpich-dev

test: programs mpis
	@scripts/test.sh

lint: setup
	@scripts/lint.sh

book:
	@scripts/book.sh

notices: setup
	@python3 tools/notices

bench: programs
	cargo build --release --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	for part in latency launch copy; do $(CARGO_TARGET_DIR)/release/causeway bench $$part --quick --via tcp,shm || exit 1; done
	cargo bench --locked -p causeway-wire

gpu-bundle: programs
	cargo build --release --locked -p causeway-cli -p causeway-client -p causeway-comm -p causeway-nvml -p causeway-stubs -p causeway-model -p causeway-fabric-perf
	@scripts/gpu-bundle.sh

net-test: programs
	@tests/net/run

fuzz: setup
	@scripts/fuzz.sh

check-concurrency: setup
	@scripts/check-concurrency.sh

fuzz-bundle: setup
	@scripts/fuzz.sh pack

verbs-guest: setup
	@tests/verbs/guest/guest.py build

verbs-test: programs verbs-guest
	@tests/verbs/run

# A bundle that was packed elsewhere is used as it is where there is no Rust to build one with.
gpu-test:
	@if command -v cargo >/dev/null; then $(MAKE) --no-print-directory gpu-bundle; fi
	@build/gpu-bundle/gpu-test.sh $(PARTS)

.PHONY: help setup programs apps mpi mpis demo test lint book notices bench fuzz fuzz-bundle check-concurrency net-test verbs-guest \
        verbs-test gpu-bundle gpu-test
