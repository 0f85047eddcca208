// Calls that do not take memory on a GPU: they say so, where the MPI below does not take it itself. And what
// a program hears that asks whether memory on a GPU is taken.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "shim.h"

static const char *const WORDS = "this call does not take memory on a GPU: copy it to the host first";

bool mpi_takes_gpus(void) {
    static int known = -1;
    if (known < 0) {
        int (*query)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPIX_Query_cuda_support");
        known = query != NULL && query() == 1;
    }
    return known == 1;
}

static bool is_refused(const void *address, MPI_Datatype type) {
    return is_on_gpu(address, type) && !mpi_takes_gpus();
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

// One-sided calls, with counts of both kinds. `N` is the type of counts.

#define WINDOW(name, parameters, arguments, refused)        \
    EXPORT int MPI_##name parameters {                      \
        if (refused) return refuse_window(w, "MPI_" #name); \
        return PMPI_##name arguments;                       \
    }
#define TARGET(N) int to, MPI_Aint at, N m, MPI_Datatype u
#define FROM_HERE(N) const void *s, N n, MPI_Datatype t, TARGET(N)
#define TO_HERE(N) void *r, N k, MPI_Datatype v
#define WINDOW_CALLS(suffix, N)                                                                          \
    WINDOW(Put##suffix, (FROM_HERE(N), MPI_Win w), (s, n, t, to, at, m, u, w), is_refused(s, t))         \
    WINDOW(Get##suffix, (TO_HERE(N), TARGET(N), MPI_Win w), (r, k, v, to, at, m, u, w), is_refused(r, v)) \
    WINDOW(Accumulate##suffix, (FROM_HERE(N), MPI_Op o, MPI_Win w), (s, n, t, to, at, m, u, o, w),       \
           is_refused(s, t))                                                                             \
    WINDOW(Get_accumulate##suffix,                                                                       \
           (const void *s, N n, MPI_Datatype t, TO_HERE(N), TARGET(N), MPI_Op o, MPI_Win w),             \
           (s, n, t, r, k, v, to, at, m, u, o, w), is_refused(s, t) || is_refused(r, v))                 \
    WINDOW(Rput##suffix, (FROM_HERE(N), MPI_Win w, MPI_Request *q), (s, n, t, to, at, m, u, w, q),       \
           is_refused(s, t))                                                                             \
    WINDOW(Rget##suffix, (TO_HERE(N), TARGET(N), MPI_Win w, MPI_Request *q),                             \
           (r, k, v, to, at, m, u, w, q), is_refused(r, v))                                              \
    WINDOW(Raccumulate##suffix, (FROM_HERE(N), MPI_Op o, MPI_Win w, MPI_Request *q),                     \
           (s, n, t, to, at, m, u, o, w, q), is_refused(s, t))                                           \
    WINDOW(Rget_accumulate##suffix,                                                                      \
           (const void *s, N n, MPI_Datatype t, TO_HERE(N), TARGET(N), MPI_Op o, MPI_Win w,              \
            MPI_Request *q),                                                                             \
           (s, n, t, r, k, v, to, at, m, u, o, w, q), is_refused(s, t) || is_refused(r, v))

WINDOW_CALLS(, int)
WINDOW(Fetch_and_op, (const void *s, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Op o, MPI_Win w),
       (s, r, t, to, at, o, w), is_refused(s, t) || is_refused(r, t))
WINDOW(Compare_and_swap,
       (const void *s, const void *x, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Win w),
       (s, x, r, t, to, at, w), is_refused(s, t) || is_refused(x, t) || is_refused(r, t))
WINDOW(Win_attach, (MPI_Win w, void *s, MPI_Aint n), (w, s, n), is_refused(s, MPI_BYTE))

// There is no window yet whose error handler could be called.
#define WINDOW_OF(suffix, UNIT)                                                                            \
    EXPORT int MPI_Win_create##suffix(void *s, MPI_Aint n, UNIT unit, MPI_Info i, MPI_Comm c, MPI_Win *w) { \
        if (is_refused(s, MPI_BYTE)) return raise_error(c, "MPI_Win_create" #suffix, WORDS);               \
        return PMPI_Win_create##suffix(s, n, unit, i, c, w);                                               \
    }

WINDOW_OF(, int)

// Files: from where they are, or from an offset; blocking, non-blocking, or in two calls.

#define FILE_CALL(name, parameters, arguments)                          \
    EXPORT int MPI_File_##name parameters {                             \
        if (is_refused(b, t)) return refuse_file(f, "MPI_File_" #name); \
        return PMPI_File_##name arguments;                              \
    }
#define FILE_HERE(name, B, N) \
    FILE_CALL(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Status *s), (f, b, n, t, s))
#define FILE_AT(name, B, N) \
    FILE_CALL(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Status *s), (f, at, b, n, t, s))
#define FILE_LATER(name, B, N) \
    FILE_CALL(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Request *q), (f, b, n, t, q))
#define FILE_LATER_AT(name, B, N)                                                           \
    FILE_CALL(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Request *q), \
              (f, at, b, n, t, q))
#define FILE_BEGIN(name, B, N) FILE_CALL(name, (MPI_File f, B b, N n, MPI_Datatype t), (f, b, n, t))
#define FILE_BEGIN_AT(name, B, N) \
    FILE_CALL(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t), (f, at, b, n, t))
#define FILE_CALLS(verb, B, suffix, N)               \
    FILE_HERE(verb##suffix, B, N)                    \
    FILE_HERE(verb##_all##suffix, B, N)              \
    FILE_HERE(verb##_shared##suffix, B, N)           \
    FILE_HERE(verb##_ordered##suffix, B, N)          \
    FILE_AT(verb##_at##suffix, B, N)                 \
    FILE_AT(verb##_at_all##suffix, B, N)             \
    FILE_LATER(i##verb##suffix, B, N)                \
    FILE_LATER(i##verb##_all##suffix, B, N)          \
    FILE_LATER(i##verb##_shared##suffix, B, N)       \
    FILE_LATER_AT(i##verb##_at##suffix, B, N)        \
    FILE_LATER_AT(i##verb##_at_all##suffix, B, N)    \
    FILE_BEGIN(verb##_all_begin##suffix, B, N)       \
    FILE_BEGIN(verb##_ordered_begin##suffix, B, N)   \
    FILE_BEGIN_AT(verb##_at_all_begin##suffix, B, N)

FILE_CALLS(read, void *, , int)
FILE_CALLS(write, const void *, , int)

// Partitioned messages. Open MPI 5 has them, and calls itself MPI 3.1.

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PARTITIONED(name, B)                                                                           \
    EXPORT int MPI_##name(B b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c,  \
                          MPI_Info i, MPI_Request *q) {                                                \
        if (is_refused(b, t)) return raise_error(c, "MPI_" #name, WORDS);                              \
        return PMPI_##name(b, parts, n, t, peer, tag, c, i, q);                                        \
    }

PARTITIONED(Psend_init, const void *)
PARTITIONED(Precv_init, void *)
#endif

// Packing in the representation that all machines share. The calls have no communicator.

EXPORT int MPI_Pack_external(const char name[], const void *s, int n, MPI_Datatype t, void *r, MPI_Aint size,
                             MPI_Aint *at) {
    if (is_refused(s, t) || is_refused(r, MPI_BYTE))
        return raise_error(MPI_COMM_SELF, "MPI_Pack_external", WORDS);
    return PMPI_Pack_external(name, s, n, t, r, size, at);
}

EXPORT int MPI_Unpack_external(const char name[], const void *s, MPI_Aint size, MPI_Aint *at, void *r, int n,
                               MPI_Datatype t) {
    if (is_refused(s, MPI_BYTE) || is_refused(r, t))
        return raise_error(MPI_COMM_SELF, "MPI_Unpack_external", WORDS);
    return PMPI_Unpack_external(name, s, size, at, r, n, t);
}

#if MPI_VERSION >= 4
WINDOW_CALLS(_c, MPI_Count)
WINDOW_OF(_c, MPI_Aint)
FILE_CALLS(read, void *, _c, MPI_Count)
FILE_CALLS(write, const void *, _c, MPI_Count)
#endif
