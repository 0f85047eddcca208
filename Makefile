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
	@echo 'make suites      tests of other projects on the software GPU (of Numba and Warp; of tinygrad if CAUSEWAY_SUITES_SOURCES has it): fails'
	@echo '                 if an outcome is not the expected one, and says what is skipped; SUITES="test_sync test_atomics" picks modules'
	@echo 'make bench       measure calls, copies and frames with the software GPU, over TCP and shared memory (see causeway bench --help)'
	@echo 'make wheel       build/packages/causeway_gpu-*.whl, with which Python programs use a server; make wheel-test tests it in a new'
	@echo '                 virtual environment, with CuPy, Numba and a kernel of Jupyter'
	@echo 'make packages    deb, rpm, archive and images into build/packages, with checksums and a bill of materials;'
	@echo '                 make packages-test installs them on bare roots of Debian 11, 12 and 13 by the commands of the book; needs root'
	@echo 'make portable    build/portable/x86_64: what these are made of, for glibc 2.28 or later; make reproducible builds it again'
	@echo '                 elsewhere, and compares'
	@echo 'make lint        formatting, clippy, documentation, licences and advisories of the dependencies'
	@echo 'make book        make the book, docs/book/index.html; make book-test opens its pages in Chromium without a screen, and fails'
	@echo '                 if a table is wider than its column; needs root where Chromium is missing'
	@echo 'make notices     make THIRD-PARTY-NOTICES.md, the licences of what the programs contain, from Cargo.lock'
	@echo 'make programs    compile the CUDA test programs into build/cuda, and the applications'
	@echo 'make bitcode     compile the operations of device/include as LLVM bitcode, build/cuda/causeway_device.bc, for Triton;'
	@echo '                 make bitcode-test runs the tests of these headers with what clang makes of them'
	@echo 'make apps        compile the applications of bench/apps into build/apps; python3 tools/gpu_test/apps measures them'
	@echo 'make gpu-bundle  pack build/gpu-bundle: all that a machine with a GPU needs to test Causeway without Rust or network'
	@echo 'make gpu-test    on a machine with a GPU: run the test programs, those of tests/python, the yardstick and the applications'
	@echo '                 natively and through Causeway; PARTS="programs model servers mpi device python counts yardstick apps" picks parts'
	@echo 'make net-test    measure copies and launches over networks of known rate and length, beside iperf3; needs root'
	@echo 'make verbs-test  test InfiniBand verbs between two hosts with software RDMA devices, in a guest with a kernel of its own; needs root'
	@echo '                 for what it installs; the kernel is built once, some 8 minutes. make verbs-guest builds it and runs nothing'
	@echo 'make fuzz        run every fuzz target for a minute; FUZZ_SECONDS="600" changes that, FUZZ_TARGETS="messages fatbin" picks some'
	@echo '                 (fuzz/README.md). make fuzz-bundle packs build/fuzz-bin, to run them on a machine without Rust or network'
	@echo 'make chaos       programs whose connections fail by chance, in 20,000 ways; CHAOS_SEEDS="500..900" takes others'
	@echo 'make check-concurrency'
	@echo '                 every order of the steps of each protocol of waiting, by loom and shuttle; Miri and ThreadSanitizer where the toolchain has them'
	@echo 'make mpi         build build/mpi/libcauseway_mpi.so, for MPI programs that send memory on GPUs, with the mpicc that is there,'
	@echo '                 and the program that `causeway bench mpi` starts'
	@echo 'make metrics-test'
	@echo '                 have Prometheus execute every query of the dashboard and the alerts against a server'
	@echo 'make slurm-test  run jobs of a small Slurm on a pool of servers with the software GPU; installs Slurm, and needs root'
	@echo 'make vsock-test  run the tests that want a vsock in a virtual machine whose kernel has one; installs QEMU, and needs root'
	@echo 'make compat      run programs with client and server of two releases, both ways; COMPAT=COMMIT names the other one'
	@echo 'make trace-browser-test'
	@echo '                 open a trace in speedscope, in Chromium without a screen; needs npm and its registry'
	@echo 'make aarch64-test'
	@echo '                 build the client for AArch64 and run a CUDA program with it under QEMU, on a server of this machine; needs root'
	@echo 'make setup       only install what the others need: a C++ compiler, Rust, the CUDA compiler'

setup:
	@scripts/setup.sh

programs: apps
	@$(BUILD_PROGRAMS)

# Kernels of Triton link it; clang is installed where it is missing.
bitcode:
	@scripts/install-packages.sh clang llvm
	@$(BUILD_PROGRAMS) $(PROGRAMS)/causeway_device.bc $(PROGRAMS)/bitcode/device_kernels.ptx

# The tests of the headers with what clang makes of them.
bitcode-test: bitcode
	CAUSEWAY_PROGRAMS=$(PROGRAMS)/bitcode cargo test --locked -p causeway-comm --test device

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

# What is handed out is built for an old glibc, by a linker that knows its symbols.
portable: setup
	@scripts/portable.sh
	@scripts/portable-device.sh build/portable/x86_64

reproducible: portable
	@scripts/reproducible.sh

wheel: portable
	@python3 tools/package wheel build/portable/x86_64 build/packages

wheel-test: wheel programs
	@tests/wheel/run build/packages/causeway_gpu-*.whl

packages: wheel
	@scripts/packages.sh

packages-test: packages
	@tests/packages/run

# CuPy, Numba and Jupyter for the test of the wheel, schemas for that of Kubernetes' manifests.
python-packages: setup
	@scripts/python-packages.sh
	@scripts/python-packages.sh kubernetes

# The two MPIs under which messages between GPUs are tested. They live side by side.
mpis:
	@scripts/install-packages.sh openmpi-bin libopenmpi-dev mpich libmpich-dev gfortran

test: programs mpis slurm python-packages
	@scripts/test.sh

# What other projects test, on the software GPU, beside the outcomes in tests/suites/expected. SUITES picks modules.
suites: python-packages
	@scripts/python-packages.sh suites >/dev/null
	cargo build --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	@tests/suites/run $(CARGO_TARGET_DIR)/debug/causeway $(SUITES)

lint: setup
	@scripts/lint.sh

book:
	@scripts/book.sh

book-test: book
	@command -v chromium chromium-browser google-chrome >/dev/null || scripts/install-packages.sh chromium
	@tests/book_browser/run

notices: setup
	@python3 tools/notices

bench: programs
	cargo build --release --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	for part in latency launch copy; do $(CARGO_TARGET_DIR)/release/causeway bench $$part --quick --via tcp,shm || exit 1; done
	cargo bench --locked -p causeway-wire

gpu-bundle: programs bitcode
	cargo build --release --locked -p causeway-cli -p causeway-client -p causeway-comm -p causeway-cublas -p causeway-nccl-net -p causeway-nvml -p causeway-stubs -p causeway-model -p causeway-fabric-perf
	@scripts/gpu-bundle.sh

net-test: programs
	@tests/net/run

fuzz: setup
	@scripts/fuzz.sh

metrics-test: programs
	@scripts/install-packages.sh prometheus tmux
	cargo build --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	@tools/metrics_test/run.py $(CARGO_TARGET_DIR)/debug/causeway build/cuda/vector_add

# A whole Slurm, which the test starts by itself.
slurm:
	@scripts/install-packages.sh munge slurmctld slurmd slurm-client libslurm-dev

slurm-test: programs slurm
	cargo build --locked -p causeway-cli -p causeway-client -p causeway-comm -p causeway-nvml -p causeway-stubs
	@tests/slurm/run $(CARGO_TARGET_DIR)/debug/causeway build/cuda/vector_add

vsock-test: programs
	cargo build --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	@tests/vsock/run

compat: programs
	@tools/compat/run.py $(COMPAT)

trace-browser-test: programs
	cargo build --locked -p causeway-cli -p causeway-client -p causeway-nvml -p causeway-stubs
	@tests/trace_browser/run $(CARGO_TARGET_DIR)/debug/causeway build/cuda/vector_add

aarch64-test: setup
	cargo build --locked -p causeway-cli
	@tests/aarch64/run $(CARGO_TARGET_DIR)/debug/causeway

# Each failure names what it ran: its number is the seed.
CHAOS_SEEDS ?= 0..20000
chaos: programs
	CAUSEWAY_CHAOS_SEEDS=$(CHAOS_SEEDS) cargo test --locked -p causeway-tests --test chaos -- --nocapture

check-concurrency: setup
	@scripts/check-concurrency.sh

fuzz-bundle: setup
	@scripts/fuzz.sh pack

verbs-guest: setup
	@tests/verbs/guest/guest.py build

verbs-test: programs mpis verbs-guest
	@tests/verbs/run

# A bundle that was packed elsewhere is used as it is where there is no Rust to build one with.
gpu-test:
	@if command -v cargo >/dev/null; then $(MAKE) --no-print-directory gpu-bundle; fi
	@build/gpu-bundle/gpu-test.sh $(PARTS)

.PHONY: help setup programs bitcode bitcode-test apps portable reproducible wheel wheel-test packages packages-test python-packages mpi mpis slurm slurm-test demo test suites lint book book-test notices bench fuzz fuzz-bundle chaos check-concurrency metrics-test compat trace-browser-test aarch64-test net-test vsock-test verbs-guest \
        verbs-test gpu-bundle gpu-test
