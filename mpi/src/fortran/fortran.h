// How Fortran's calls come to the entry points in C.
//
// Open MPI's own go to its PMPI_* at once. `mpif.h` and the module `mpi` call mpi_NAME_, and the module
// `mpi_f08` ompi_NAME_f, or pmpi_NAME_ where there are logical arguments, with the same arguments: all by
// address, handles as numbers, and the error last. MPICH's own go to the entry points in C, but for those of
// the module `mpi_f08` that take no buffer: they are mpi_NAME_f08_, and a status is as C has it, which is
// what numbers of it are, too.
#ifndef CAUSEWAY_FORTRAN_H
#define CAUSEWAY_FORTRAN_H

#include "../interposer.h"

// A call of these parameters, and the expression that gives its error.
#define FORTRAN_BODY(symbol, parameters, ...)         \
    void symbol parameters {                          \
        int result = (__VA_ARGS__);                   \
        if (error != NULL) *error = (MPI_Fint)result; \
    }
#ifdef OPEN_MPI
#define FORTRAN_ALIAS(symbol, name, parameters) \
    EXPORT void symbol parameters __attribute__((alias("ompi_" #name "_f")));
#define FORTRAN(name, parameters, ...)              \
    EXPORT void ompi_##name##_f parameters;         \
    FORTRAN_ALIAS(mpi_##name, name, parameters)     \
    FORTRAN_ALIAS(mpi_##name##_, name, parameters)  \
    FORTRAN_ALIAS(mpi_##name##__, name, parameters) \
    FORTRAN_ALIAS(pmpi_##name##_, name, parameters) \
    FORTRAN_BODY(ompi_##name##_f, parameters, __VA_ARGS__)
#else
#define FORTRAN(name, parameters, ...)        \
    EXPORT void mpi_##name##_f08_ parameters; \
    FORTRAN_BODY(mpi_##name##_f08_, parameters, __VA_ARGS__)
#endif
#if defined(OPEN_MPI) || defined(MPICH)
#define HAS_FORTRAN 1
#else
#define HAS_FORTRAN 0
#endif

#define COMM(handle) PMPI_Comm_f2c(*(handle))
#define TYPE(handle) PMPI_Type_f2c(*(handle))
#define OP(handle) PMPI_Op_f2c(*(handle))

// job.c: Fortran's MPI_BOTTOM, MPI_IN_PLACE and the statuses that are ignored are variables.

void *buffer_of(const void *address);
bool is_ignored(const MPI_Fint *status);
bool are_ignored(const MPI_Fint *statuses);
// What a program sees of a status; nothing where it is ignored.
void store_status(const MPI_Status *from, MPI_Fint *to);
// A request as a number.
int store_request(int error, MPI_Request request, MPI_Fint *to);

#endif
