#!/usr/bin/env bash
# Builds build/portable/ARCHITECTURE: the program and the libraries that are handed out, for `make portable`.
#
#   scripts/portable.sh            for x86-64
#   PORTABLE_OUT=... scripts/portable.sh
#
# They need glibc 2.28 or later (RHEL 8, Debian 10, Ubuntu 20.04), hold nothing that only debuggers read,
# and are the same, byte for byte, wherever they are built: no path of this machine is in them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/zig.sh
source scripts/zig.sh

glibc=2.28
triple=x86_64-unknown-linux-gnu
out=${PORTABLE_OUT:-build/portable/x86_64}
target=${CARGO_TARGET_DIR:-$PWD/target}
registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
packages=(-p causeway-cli -p causeway-client -p causeway-comm -p causeway-cublas -p causeway-nccl-net -p causeway-nvml -p causeway-stubs -p causeway-fabric-perf)

install_zig
# The paths in messages of panics, of this tree, of what is generated, and of the crates from the registry.
RUSTFLAGS="--remap-path-prefix=$PWD=/causeway --remap-path-prefix=$target=/target --remap-path-prefix=$registry=/registry" \
    cargo zigbuild --locked --profile dist --target "$triple.$glibc" "${packages[@]}"

python3 tools/package stage "$target/$triple/dist" "$out"
scripts/portable-mpi.sh "$out"
python3 tools/package check "$out"
