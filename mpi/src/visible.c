// Visibility of the MPI: an interposer that names no library of it (MPICH's interface) finds the MPI's
// functions among those that all of the process sees. A program that loads its MPI at run time, as Python
// does with mpi4py, has them for itself alone; then they are made visible to all before the first of them is
// called.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "interposer.h"

void make_mpi_visible(const void *caller) {
    Dl_info program, mpi;
    if (dlsym(RTLD_DEFAULT, "PMPI_Init") != NULL || dladdr(caller, &program) == 0) return;
    // The caller's own dependencies have it.
    void *library = dlopen(program.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    void *function = library != NULL ? dlsym(library, "PMPI_Init") : NULL;
    // The handle is kept: the functions must not go.
    if (function != NULL && dladdr(function, &mpi) != 0)
        dlopen(mpi.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
    if (library != NULL) dlclose(library);
}
