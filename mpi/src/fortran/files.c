// File access from Fortran. MPICH's own goes to the entry points in C.

#include "../file_calls.h"
#include "fortran.h"

#ifdef OPEN_MPI

// The functions in C, for memory that is read or written.
typedef int here(MPI_File, void *, int, MPI_Datatype, MPI_Status *);
typedef int there(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Status *);
typedef int later_here(MPI_File, void *, int, MPI_Datatype, MPI_Request *);
typedef int later_there(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *);
typedef int end(MPI_File, void *, MPI_Status *);

static int access_here(here *call, MPI_File f, void *b, int n, MPI_Datatype t, MPI_Fint *to) {
    MPI_Status status = {0};
    int error = call(f, b, n, t, &status);
    store_status(&status, to);
    return error;
}

static int access_there(there *call, MPI_File f, MPI_Offset at, void *b, int n, MPI_Datatype t,
                        MPI_Fint *to) {
    MPI_Status status = {0};
    int error = call(f, at, b, n, t, &status);
    store_status(&status, to);
    return error;
}

static int start_here(later_here *call, MPI_File f, void *b, int n, MPI_Datatype t, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = call(f, b, n, t, &request);
    return store_request(error, request, q);
}

static int start_there(later_there *call, MPI_File f, MPI_Offset at, void *b, int n, MPI_Datatype t,
                       MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = call(f, at, b, n, t, &request);
    return store_request(error, request, q);
}

static int end_split(end *call, MPI_File f, void *b, MPI_Fint *to) {
    MPI_Status status = {0};
    int error = call(f, b, &status);
    store_status(&status, to);
    return error;
}

#define FILE_OF(handle) PMPI_File_f2c(*(handle))
#define F_ELEMENTS void *b, MPI_Fint *n, MPI_Fint *t
#define C_ELEMENTS buffer_of(b), *n, TYPE(t)

#define HERE(name, ...)                                                           \
    FORTRAN(file_##name, (MPI_Fint *f, F_ELEMENTS, MPI_Fint *s, MPI_Fint *error), \
            access_here((here *)MPI_File_##name, FILE_OF(f), C_ELEMENTS, s))
#define THERE(name, ...)                                                                          \
    FORTRAN(file_##name, (MPI_Fint *f, MPI_Offset *at, F_ELEMENTS, MPI_Fint *s, MPI_Fint *error), \
            access_there((there *)MPI_File_##name, FILE_OF(f), *at, C_ELEMENTS, s))
#define LATER_HERE(name, ...)                                                     \
    FORTRAN(file_##name, (MPI_Fint *f, F_ELEMENTS, MPI_Fint *q, MPI_Fint *error), \
            start_here((later_here *)MPI_File_##name, FILE_OF(f), C_ELEMENTS, q))
#define LATER_THERE(name, ...)                                                                    \
    FORTRAN(file_##name, (MPI_Fint *f, MPI_Offset *at, F_ELEMENTS, MPI_Fint *q, MPI_Fint *error), \
            start_there((later_there *)MPI_File_##name, FILE_OF(f), *at, C_ELEMENTS, q))
#define BEGIN_HERE(name, ...) \
    FORTRAN(file_##name, (MPI_Fint *f, F_ELEMENTS, MPI_Fint *error), MPI_File_##name(FILE_OF(f), C_ELEMENTS))
#define BEGIN_THERE(name, ...)                                                       \
    FORTRAN(file_##name, (MPI_Fint *f, MPI_Offset *at, F_ELEMENTS, MPI_Fint *error), \
            MPI_File_##name(FILE_OF(f), *at, C_ELEMENTS))
#define END(name, ...)                                                         \
    FORTRAN(file_##name, (MPI_Fint *f, void *b, MPI_Fint *s, MPI_Fint *error), \
            end_split((end *)MPI_File_##name, FILE_OF(f), buffer_of(b), s))

FILE_CALLS(read, , )
FILE_ENDS(read, )
FILE_CALLS(write, , )
FILE_ENDS(write, )

#endif
