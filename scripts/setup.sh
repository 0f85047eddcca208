#!/usr/bin/env bash
# Installs what building and testing need and is not there yet: a C++ compiler, Rust, NVIDIA's CUDA compiler.
# Costs nothing when all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=()
command -v g++ >/dev/null || packages+=(g++)
command -v make >/dev/null || packages+=(make)
command -v python3 >/dev/null || packages+=(python3)
[ ${#packages[@]} = 0 ] || scripts/install-packages.sh "${packages[@]}"
scripts/rust-toolchain.sh
scripts/cuda-toolchain.sh
