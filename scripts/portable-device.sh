#!/usr/bin/env bash
# Builds what goes with kernels that communicate into a tree of scripts/portable.sh: the program of `causeway bench device`, and
# the operations that kernels of Numba and of Triton are linked with.
#
#   scripts/portable-device.sh TREE
#
# Other compilers of CUDA and of LLVM make other bytes, so that these are not compared by `make reproducible`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/zig.sh
source scripts/zig.sh

tree=$(realpath "$1")
objects=build/cuda/objects
scripts/cuda-toolchain.sh
scripts/install-packages.sh clang llvm
install_zig
build() { make --silent --no-print-directory -C tests/cuda BUILD="$PWD/build/cuda" "$@"; }
build "$PWD"/build/cuda/causeway_device{_bench,.ltoir,.bc}
mkdir -p "$tree/lib/causeway/device"
install -m 644 build/cuda/causeway_device.{ltoir,bc} "$tree/lib/causeway/device/"

# The program once more, with no library of this machine's: nvcc knows no C++ library but the system's, which is linked in.
mapfile -t parts < <(cd bench/device && printf '%s\n' *.cu | sed "s|^|$objects/bench_|; s|cu$|o|")
zig cc -target x86_64-linux-gnu.2.28 -O2 -s -o "$tree/lib/causeway/device/causeway_device_bench" "${parts[@]}" \
    packaging/portable/glibc_2_28.c -L"$tree/lib/causeway" -lcauseway_comm \
    "$cache"/cuda-13.0/nvidia/cu13/lib/libcudart_static.a "$(g++ -print-file-name=libstdc++.a)" \
    -lunwind -lm -ldl -lrt -lpthread
python3 tools/package check "$tree"
