// Files.

#include "on_gpu.h"

#include <pthread.h>

#include "file_calls.h"

#define AT_ONCE(name, parameters, arguments)               \
    EXPORT int MPI_File_##name parameters {                \
        struct moved *m = move_elements(b, n, t, IS_READ); \
        b = moved_address(m, b);                           \
        int error = NEXT(MPI_File_##name) arguments;       \
        end_moved(m);                                      \
        return error;                                      \
    }
#define LATER(name, parameters, arguments)                                  \
    EXPORT int MPI_File_##name parameters {                                 \
        struct moved *m = move_elements(b, n, t, IS_READ);                  \
        b = moved_address(m, b);                                            \
        int error = NEXT(MPI_File_##name) arguments;                        \
        remember(*q, error, false, IS_READ ? NULL : m, IS_READ ? m : NULL); \
        return error;                                                       \
    }

// Split collective calls, of which a file has one at a time.

struct split {
    MPI_File file;
    struct moved *moved;
    struct split *next;
};

static struct split *first;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void keep(MPI_File file, int error, struct moved *moved) {
    if (moved == NULL || error != MPI_SUCCESS) {
        end_moved(moved);
        return;
    }
    struct split *split = malloc(sizeof *split);
    if (split == NULL) abort();
    pthread_mutex_lock(&mutex);
    *split = (struct split){file, moved, first};
    first = split;
    pthread_mutex_unlock(&mutex);
}

static struct moved *take(MPI_File file) {
    pthread_mutex_lock(&mutex);
    struct split **at = &first;
    while (*at != NULL && (*at)->file != file) at = &(*at)->next;
    struct split *split = *at;
    if (split != NULL) *at = split->next;
    pthread_mutex_unlock(&mutex);
    struct moved *moved = split != NULL ? split->moved : NULL;
    free(split);
    return moved;
}

#define BEGIN(name, parameters, arguments)                 \
    EXPORT int MPI_File_##name parameters {                \
        struct moved *m = move_elements(b, n, t, IS_READ); \
        b = moved_address(m, b);                           \
        int error = NEXT(MPI_File_##name) arguments;       \
        keep(f, error, m);                                 \
        return error;                                      \
    }
#define END(name, B)                                                  \
    EXPORT int MPI_File_##name(MPI_File f, B b, MPI_Status *s) {      \
        struct moved *m = take(f);                                    \
        int error = NEXT(MPI_File_##name)(f, moved_address(m, b), s); \
        end_moved(m);                                                 \
        return error;                                                 \
    }

#define HERE(name, B, N) AT_ONCE(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Status *s), (f, b, n, t, s))
#define THERE(name, B, N) \
    AT_ONCE(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Status *s), (f, at, b, n, t, s))
#define LATER_HERE(name, B, N) \
    LATER(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Request *q), (f, b, n, t, q))
#define LATER_THERE(name, B, N) \
    LATER(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Request *q), (f, at, b, n, t, q))
#define BEGIN_HERE(name, B, N) BEGIN(name, (MPI_File f, B b, N n, MPI_Datatype t), (f, b, n, t))
#define BEGIN_THERE(name, B, N) \
    BEGIN(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t), (f, at, b, n, t))

#define IS_READ true
FILE_CALLS(read, , void *, int)
FILE_ENDS(read, void *)
#if MPI_VERSION >= 4
FILE_CALLS(read, _c, void *, MPI_Count)
#endif
#undef IS_READ
#define IS_READ false
FILE_CALLS(write, , const void *, int)
FILE_ENDS(write, const void *)
#if MPI_VERSION >= 4
FILE_CALLS(write, _c, const void *, MPI_Count)
#endif
