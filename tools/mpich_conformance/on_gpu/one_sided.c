// One-sided calls. What they send is copied when they begin, and what they fetch may be looked at behind the
// call that ends the access to the target.

#include "on_gpu.h"

#include <pthread.h>

struct access {
    MPI_Win window;
    int target;
    struct moved *out, *in;
    struct access *next;
};

static struct access *first;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void keep(MPI_Win window, int target, int error, struct moved *out, struct moved *in) {
    if (out == NULL && in == NULL) return;
    if (error != MPI_SUCCESS) {
        end_moved(out);
        end_moved(in);
        return;
    }
    struct access *access = malloc(sizeof *access);
    if (access == NULL) abort();
    pthread_mutex_lock(&mutex);
    *access = (struct access){window, target, out, in, first};
    first = access;
    pthread_mutex_unlock(&mutex);
}

static void end_accesses(MPI_Win window, int target) {
    struct access *ended = NULL;
    end_requests(window, target);
    pthread_mutex_lock(&mutex);
    for (struct access **at = &first; *at != NULL;) {
        struct access *access = *at;
        if (access->window != window || (target != ALL && access->target != target)) {
            at = &access->next;
            continue;
        }
        *at = access->next;
        access->next = ended;
        ended = access;
    }
    pthread_mutex_unlock(&mutex);
    while (ended != NULL) {
        struct access *access = ended;
        ended = access->next;
        end_moved(access->out);
        end_moved(access->in);
        free(access);
    }
}

// What a call without a target would not touch stays where it is.
static struct moved *origin(int target, const void *address, MPI_Count count, MPI_Datatype type,
                            bool is_written) {
    return target == MPI_PROC_NULL ? NULL : move_elements(address, count, type, is_written);
}

#define TARGET(N) int k, MPI_Aint d, N m, MPI_Datatype u
#define ENDED_BY_CALL(q) keep(w, k, error, out, in)
#define ENDED_BY_BOTH(q) remember_access(*(q), error, w, k, out, in)
#define NO_REQUEST
#define REQUEST , MPI_Request *q
#define Q_NOT
#define Q_TOO , q

// A call and the same with a request: `more` are the parameters of that, `q_too` the arguments, `ending` what
// is done with the buffers.
#define TRANSFER(name, N, B, is_written, more, q_too, ending)                            \
    EXPORT int MPI_##name(B b, N n, MPI_Datatype t, TARGET(N), MPI_Win w more) {         \
        struct moved *here = origin(k, b, n, t, is_written);                             \
        struct moved *out = is_written ? NULL : here, *in = is_written ? here : NULL;    \
        int error = NEXT(MPI_##name)(moved_address(here, b), n, t, k, d, m, u, w q_too); \
        ending(q);                                                                       \
        return error;                                                                    \
    }
#define UPDATE(name, N, more, q_too, ending)                                                         \
    EXPORT int MPI_##name(const void *b, N n, MPI_Datatype t, TARGET(N), MPI_Op o, MPI_Win w more) { \
        struct moved *out = origin(k, b, n, t, false), *in = NULL;                                   \
        int error = NEXT(MPI_##name)(moved_address(out, b), n, t, k, d, m, u, o, w q_too);           \
        ending(q);                                                                                   \
        return error;                                                                                \
    }
#define UPDATE_AND_FETCH(name, N, more, q_too, ending)                                                       \
    EXPORT int MPI_##name(const void *b, N n, MPI_Datatype t, void *r, N h, MPI_Datatype v, TARGET(N),       \
                          MPI_Op o, MPI_Win w more) {                                                        \
        struct moved *out = o == MPI_NO_OP ? NULL : origin(k, b, n, t, false);                               \
        struct moved *in = origin(k, r, h, v, true);                                                         \
        int error = NEXT(MPI_##name)(moved_address(out, b), n, t, moved_address(in, r), h, v, k, d, m, u, o, \
                                     w q_too);                                                               \
        ending(q);                                                                                           \
        return error;                                                                                        \
    }
#define ONE_SIDED(suffix, N)                                                        \
    TRANSFER(Put##suffix, N, const void *, false, NO_REQUEST, Q_NOT, ENDED_BY_CALL) \
    TRANSFER(Get##suffix, N, void *, true, NO_REQUEST, Q_NOT, ENDED_BY_CALL)        \
    TRANSFER(Rput##suffix, N, const void *, false, REQUEST, Q_TOO, ENDED_BY_BOTH)   \
    TRANSFER(Rget##suffix, N, void *, true, REQUEST, Q_TOO, ENDED_BY_BOTH)          \
    UPDATE(Accumulate##suffix, N, NO_REQUEST, Q_NOT, ENDED_BY_CALL)                 \
    UPDATE(Raccumulate##suffix, N, REQUEST, Q_TOO, ENDED_BY_BOTH)                   \
    UPDATE_AND_FETCH(Get_accumulate##suffix, N, NO_REQUEST, Q_NOT, ENDED_BY_CALL)   \
    UPDATE_AND_FETCH(Rget_accumulate##suffix, N, REQUEST, Q_TOO, ENDED_BY_BOTH)

ONE_SIDED(, int)
#if MPI_VERSION >= 4
ONE_SIDED(_c, MPI_Count)
#endif

EXPORT int MPI_Fetch_and_op(const void *b, void *r, MPI_Datatype t, int k, MPI_Aint d, MPI_Op o, MPI_Win w) {
    struct moved *out = o == MPI_NO_OP ? NULL : origin(k, b, 1, t, false), *in = origin(k, r, 1, t, true);
    int error = NEXT(MPI_Fetch_and_op)(moved_address(out, b), moved_address(in, r), t, k, d, o, w);
    keep(w, k, error, out, in);
    return error;
}

EXPORT int MPI_Compare_and_swap(const void *b, const void *x, void *r, MPI_Datatype t, int k, MPI_Aint d,
                                MPI_Win w) {
    struct moved *out = origin(k, b, 1, t, false), *in = origin(k, r, 1, t, true);
    struct moved *compared = origin(k, x, 1, t, false);
    int error = NEXT(MPI_Compare_and_swap)(moved_address(out, b), moved_address(compared, x),
                                           moved_address(in, r), t, k, d, w);
    keep(w, k, error, out, in);
    keep(w, k, error, compared, NULL);
    return error;
}

// The calls that end accesses: to one target, or to all.
#define END_ONE(name)                                           \
    EXPORT int MPI_Win_##name(int target, MPI_Win window) {     \
        int error = NEXT(MPI_Win_##name)(target, window);       \
        if (error == MPI_SUCCESS) end_accesses(window, target); \
        return error;                                           \
    }
#define END_ALL(name)                                        \
    EXPORT int MPI_Win_##name(MPI_Win window) {              \
        int error = NEXT(MPI_Win_##name)(window);            \
        if (error == MPI_SUCCESS) end_accesses(window, ALL); \
        return error;                                        \
    }

END_ONE(unlock)
END_ONE(flush)
END_ONE(flush_local)
END_ALL(unlock_all)
END_ALL(flush_all)
END_ALL(flush_local_all)
END_ALL(complete)

EXPORT int MPI_Win_fence(int assertion, MPI_Win window) {
    int error = NEXT(MPI_Win_fence)(assertion, window);
    if (error == MPI_SUCCESS) end_accesses(window, ALL);
    return error;
}
