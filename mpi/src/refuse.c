// Calls that do not take memory on a GPU: they say so, where the MPI below does not take it itself. And what
// a program hears that asks whether memory on a GPU is taken.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "shim.h"

static const char *const WORDS = "this call does not take memory on a GPU: copy it to the host first";

// Whether the MPI itself says that it takes memory on a GPU.
static bool mpi_takes_gpus(void) {
    static int known = -1;
    if (known < 0) {
        int (*query)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPIX_Query_cuda_support");
        known = query != NULL && query() == 1;
    }
    return known == 1;
}

static bool is_refused(const void *address) {
    return causeway_comm_on_gpu(address) && !mpi_takes_gpus();
}

static int refuse_file(MPI_File file, const char *call) {
    fprintf(stderr, "causeway: %s: %s\n", call, WORDS);
    int code = error_code(call, WORDS);
    PMPI_File_call_errhandler(file, code);
    return code;
}

static int refuse_window(MPI_Win window, const char *call) {
    fprintf(stderr, "causeway: %s: %s\n", call, WORDS);
    int code = error_code(call, WORDS);
    PMPI_Win_call_errhandler(window, code);
    return code;
}

EXPORT int MPIX_Query_cuda_support(void) {
    return 1;
}

// MPICH's question; 0 is CUDA.
EXPORT int MPIX_GPU_query_support(int kind, int *is_supported) {
    *is_supported = kind == 0;
    return MPI_SUCCESS;
}

// Collective calls: s is what is sent, r what is received.

#define WITH_ONE(name, parameters, arguments, one, comm)                    \
    EXPORT int MPI_##name parameters {                                      \
        if (is_refused(one)) return raise_error(comm, "MPI_" #name, WORDS); \
        return PMPI_##name arguments;                                       \
    }
#define WITH_TWO(name, parameters, arguments, one, two, comm)                                  \
    EXPORT int MPI_##name parameters {                                                         \
        if (is_refused(one) || is_refused(two)) return raise_error(comm, "MPI_" #name, WORDS); \
        return PMPI_##name arguments;                                                          \
    }
#define PARAMETERS(...) __VA_ARGS__
#define COLLECTIVE(lower, upper, parameters, arguments)                \
    WITH_TWO(upper, (parameters, MPI_Comm c), (arguments, c), s, r, c) \
    WITH_TWO(I##lower, (parameters, MPI_Comm c, MPI_Request * q), (arguments, c, q), s, r, c)

WITH_ONE(Bcast, (void *s, int n, MPI_Datatype t, int root, MPI_Comm c), (s, n, t, root, c), s, c)
WITH_ONE(Ibcast, (void *s, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request *q),
         (s, n, t, root, c, q), s, c)

#define ONE_TYPE const void *s, void *r, int n, MPI_Datatype t, MPI_Op o
COLLECTIVE(allreduce, Allreduce, PARAMETERS(ONE_TYPE), PARAMETERS(s, r, n, t, o))
COLLECTIVE(scan, Scan, PARAMETERS(ONE_TYPE), PARAMETERS(s, r, n, t, o))
COLLECTIVE(exscan, Exscan, PARAMETERS(ONE_TYPE), PARAMETERS(s, r, n, t, o))
COLLECTIVE(reduce_scatter_block, Reduce_scatter_block, PARAMETERS(ONE_TYPE), PARAMETERS(s, r, n, t, o))
COLLECTIVE(reduce, Reduce, PARAMETERS(ONE_TYPE, int root), PARAMETERS(s, r, n, t, o, root))
COLLECTIVE(reduce_scatter, Reduce_scatter,
           PARAMETERS(const void *s, void *r, const int *n, MPI_Datatype t, MPI_Op o),
           PARAMETERS(s, r, n, t, o))

#define TWO_TYPES const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u
COLLECTIVE(allgather, Allgather, PARAMETERS(TWO_TYPES), PARAMETERS(s, n, t, r, m, u))
COLLECTIVE(alltoall, Alltoall, PARAMETERS(TWO_TYPES), PARAMETERS(s, n, t, r, m, u))
COLLECTIVE(gather, Gather, PARAMETERS(TWO_TYPES, int root), PARAMETERS(s, n, t, r, m, u, root))
COLLECTIVE(scatter, Scatter, PARAMETERS(TWO_TYPES, int root), PARAMETERS(s, n, t, r, m, u, root))

#define COUNTS_IN const void *s, int n, MPI_Datatype t, void *r, const int *m, const int *e, MPI_Datatype u
#define COUNTS_OUT const void *s, const int *n, const int *d, MPI_Datatype t, void *r
COLLECTIVE(allgatherv, Allgatherv, PARAMETERS(COUNTS_IN), PARAMETERS(s, n, t, r, m, e, u))
COLLECTIVE(gatherv, Gatherv, PARAMETERS(COUNTS_IN, int root), PARAMETERS(s, n, t, r, m, e, u, root))
COLLECTIVE(scatterv, Scatterv, PARAMETERS(COUNTS_OUT, int m, MPI_Datatype u, int root),
           PARAMETERS(s, n, d, t, r, m, u, root))
COLLECTIVE(alltoallv, Alltoallv, PARAMETERS(COUNTS_OUT, const int *m, const int *e, MPI_Datatype u),
           PARAMETERS(s, n, d, t, r, m, e, u))

// One-sided calls.

#define WINDOW(name, parameters, arguments, address)                    \
    EXPORT int MPI_##name parameters {                                  \
        if (is_refused(address)) return refuse_window(w, "MPI_" #name); \
        return PMPI_##name arguments;                                   \
    }
#define REMOTE int n, MPI_Datatype t, int to, MPI_Aint at, int m, MPI_Datatype u

WINDOW(Put, (const void *s, REMOTE, MPI_Win w), (s, n, t, to, at, m, u, w), s)
WINDOW(Get, (void *s, REMOTE, MPI_Win w), (s, n, t, to, at, m, u, w), s)
WINDOW(Accumulate, (const void *s, REMOTE, MPI_Op o, MPI_Win w), (s, n, t, to, at, m, u, o, w), s)
WINDOW(Rput, (const void *s, REMOTE, MPI_Win w, MPI_Request *q), (s, n, t, to, at, m, u, w, q), s)
WINDOW(Rget, (void *s, REMOTE, MPI_Win w, MPI_Request *q), (s, n, t, to, at, m, u, w, q), s)
WINDOW(Raccumulate, (const void *s, REMOTE, MPI_Op o, MPI_Win w, MPI_Request *q),
       (s, n, t, to, at, m, u, o, w, q), s)
WINDOW(Fetch_and_op, (const void *s, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Op o, MPI_Win w),
       (s, r, t, to, at, o, w), (is_refused(r) ? r : s))
WINDOW(Compare_and_swap,
       (const void *s, const void *x, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Win w),
       (s, x, r, t, to, at, w), (is_refused(r) ? r : s))

WITH_ONE(Win_create, (void *s, MPI_Aint n, int unit, MPI_Info i, MPI_Comm c, MPI_Win *w),
         (s, n, unit, i, c, w), s, c)

// Files.

#define FILE_CALL(name, parameters, arguments)                       \
    EXPORT int MPI_File_##name parameters {                          \
        if (is_refused(b)) return refuse_file(f, "MPI_File_" #name); \
        return PMPI_File_##name arguments;                           \
    }
#define FILE_READ(name) \
    FILE_CALL(name, (MPI_File f, void *b, int n, MPI_Datatype t, MPI_Status *s), (f, b, n, t, s))
#define FILE_WRITE(name) \
    FILE_CALL(name, (MPI_File f, const void *b, int n, MPI_Datatype t, MPI_Status *s), (f, b, n, t, s))
#define FILE_READ_AT(name)                                                                      \
    FILE_CALL(name, (MPI_File f, MPI_Offset at, void *b, int n, MPI_Datatype t, MPI_Status *s), \
              (f, at, b, n, t, s))
#define FILE_WRITE_AT(name)                                                                           \
    FILE_CALL(name, (MPI_File f, MPI_Offset at, const void *b, int n, MPI_Datatype t, MPI_Status *s), \
              (f, at, b, n, t, s))

FILE_READ(read)
FILE_READ(read_all)
FILE_READ(read_shared)
FILE_READ(read_ordered)
FILE_WRITE(write)
FILE_WRITE(write_all)
FILE_WRITE(write_shared)
FILE_WRITE(write_ordered)
FILE_READ_AT(read_at)
FILE_READ_AT(read_at_all)
FILE_WRITE_AT(write_at)
FILE_WRITE_AT(write_at_all)
