// One-sided calls (RMA). Those to memory on a GPU access it directly (window/). In others, the origin and
// result buffers may be on a GPU: they use staging buffers in host memory. A staging buffer stays until a
// call ends the access, since the MPI reads or writes it until then; that call copies results to the GPU.

#define _GNU_SOURCE
#include <stdlib.h>

#include "collective/staging.h"
#include "window/window.h"

// A buffer of a call: the argument, and its elements.
struct buffer {
    void **address;
    MPI_Count count;
    MPI_Datatype type;
    bool is_result;
};

enum { MAX_BUFFERS = 3 };

// A call that is not complete.
struct access {
    MPI_Win window;
    int target;
    struct staging_buffer *images[MAX_BUFFERS];
    struct access *next;
};

static struct access *first;

static void drop_images(struct staging_buffer **images) {
    for (int at = 0; at < MAX_BUFFERS; at++) drop_staging_buffer(images[at]);
}

// A staging buffer with the bytes of a buffer: also if the MPI writes it, since gaps stay as they are.
static const char *make_image_of(const struct buffer *buffer, struct staging_buffer **image) {
    struct side side = {.address = *buffer->address, .count = buffer->count, .type = buffer->type};
    struct block block = {0, buffer->count, buffer->type};
    struct layout layout = {.is_read = true, .is_written = buffer->is_result, .count = 1, .blocks = &block};
    int error;
    *image = make_staging_buffer(&side, &layout, &error);
    if (*image == NULL) return "cannot stage its memory on a GPU in host memory";
    return fill_staging_buffer(*image);
}

// Makes staging buffers for the buffers that the MPI cannot access, and replaces the arguments by them.
// `has_some`: whether there are any. Returns an error that has been raised.
static int stage_buffers(struct buffer *buffers, int count, MPI_Win window, const char *call,
                         struct staging_buffer **images, bool *has_some) {
    const char *message = NULL;
    *has_some = false;
    for (int at = 0; at < count && message == NULL; at++) {
        const struct buffer *buffer = &buffers[at];
        if (is_inaccessible(*buffer->address, buffer->count, buffer->type)) {
            message = make_image_of(buffer, &images[at]);
            *has_some = true;
        }
    }
    if (message != NULL) {
        drop_images(images);
        return raise_in_window(window, call, message);
    }
    for (int at = 0; at < count; at++)
        if (images[at] != NULL) *buffers[at].address = address_of(images[at]);
    return MPI_SUCCESS;
}

static int keep_access(MPI_Win window, int target, struct staging_buffer **images, int error) {
    struct access *access = error == MPI_SUCCESS ? malloc(sizeof *access) : NULL;
    if (access == NULL) {
        if (error == MPI_SUCCESS) abort();
        drop_images(images);
        return error;
    }
    lock();
    *access = (struct access){.window = window, .target = target, .next = first};
    for (int at = 0; at < MAX_BUFFERS; at++) access->images[at] = images[at];
    first = access;
    unlock();
    return error;
}

// Removes the calls to a window, to one rank or, with NULL, to all of them.
static struct access *take_accesses(MPI_Win window, const int *target) {
    struct access *taken = NULL;
    lock();
    for (struct access **at = &first; *at != NULL;) {
        struct access *access = *at;
        if (access->window != window || (target != NULL && access->target != *target)) {
            at = &access->next;
            continue;
        }
        *at = access->next;
        access->next = taken;
        taken = access;
    }
    unlock();
    return taken;
}

// The MPI has completed the accesses of this rank: complete ours.
static int end_accesses(MPI_Win window, const int *target, const char *call, int error) {
    if (error != MPI_SUCCESS) return error;
    // Those with a request have completed, too, and their buffers may be read.
    progress();
    if (__atomic_load_n(&first, __ATOMIC_RELAXED) == NULL) return error;
    const char *message = NULL;
    for (struct access *access = take_accesses(window, target), *next; access != NULL; access = next) {
        next = access->next;
        for (int at = 0; at < MAX_BUFFERS; at++) {
            const char *found = access->images[at] != NULL ? flush_staging_buffer(access->images[at]) : NULL;
            if (found != NULL) message = found;
        }
        drop_images(access->images);
        free(access);
    }
    return message == NULL ? error : raise_in_window(window, call, message);
}

// Calls with a request: an operation copies the result to the GPU. `images` are those of an origin and a
// result.
static int begin_request(struct operation **operation, struct staging_buffer **images, const char *call,
                         MPI_Request *request) {
    int error = start_request(operation, request);
    if (error != MPI_SUCCESS) {
        drop_images(images);
        return error;
    }
    struct staging *staging = calloc(1, sizeof *staging);
    if (staging == NULL) abort();
    staging->name = call;
    staging->out = images[0];
    staging->in = images[1];
    (*operation)->kind = COLLECTIVE;
    (*operation)->comm = error_comm();
    (*operation)->staging = staging;
    return error;
}

static int continue_staged(struct operation *operation, int error, const struct buffer *buffers, int count,
                           int target, MPI_Win window, MPI_Request *request) {
#ifdef MPICH_VERSION
    // MPICH 4.0.2 completes the request of MPI_Rget before the bytes have arrived, if elements have gaps.
    // Such requests are in epochs in which a rank may wait for them otherwise.
    for (int at = 0; at < count && error == MPI_SUCCESS; at++)
        if (buffers[at].is_result && !is_contiguous(buffers[at].type))
            error = PMPI_Win_flush_local(target, window);
#else
    (void)buffers, (void)count, (void)target, (void)window;
#endif
    if (error == MPI_SUCCESS) {
        add_operation(operation);
    } else {
        drop_staging(operation->staging);
        drop_request(request);
    }
    return error;
}

// A completed request.
static int make_completed_request(MPI_Win window, MPI_Request *request) {
    return PMPI_Rput(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, 0, MPI_BYTE, window, request);
}

// Calls with counts of both kinds. `N` is the type of counts. What an operation does not read is not a
// buffer.

#define ORIGIN(n, t) {(void **)&s, n, t, false}
#define RESULT(k, v) {&r, k, v, true}
#define READ_BY(op, n) ((op) == MPI_NO_OP ? 0 : (n))
#define COUNT_OF(array) (int)(sizeof array / sizeof *array)
#define STAGE(name, ...)                                                                       \
    struct buffer buffers[] = {__VA_ARGS__};                                                   \
    struct staging_buffer *images[MAX_BUFFERS] = {NULL, NULL, NULL};                           \
    bool has_some;                                                                             \
    int error = stage_buffers(buffers, COUNT_OF(buffers), w, "MPI_" #name, images, &has_some); \
    if (error != MPI_SUCCESS) return error;                                                    \
    if (!has_some) return PMPI_##name

// Calls to memory on a GPU access it directly, and are then complete.
#define REMOTE(...) ((struct remote){__VA_ARGS__})
#define FROM(n, t) .from = s, .from_count = n, .from_type = t
#define BACK(k, v) .result = r, .result_count = k, .result_type = v
#define THERE(m, u) .to = to, .at = at, .count = m, .type = u
#define ACCESS(name, parameters, arguments, remote, ...)                                           \
    EXPORT int MPI_##name parameters {                                                             \
        int direct;                                                                                \
        if (window_count > 0 && access_directly(&remote, w, "MPI_" #name, &direct)) return direct; \
        STAGE(name, __VA_ARGS__) arguments;                                                        \
        return keep_access(w, to, images, PMPI_##name arguments);                                  \
    }
// The origin is the first buffer, and the result the second one.
#define WITH_REQUEST(name, parameters, arguments, remote, ...)                                      \
    EXPORT int MPI_##name parameters {                                                              \
        int direct;                                                                                 \
        if (window_count > 0 && access_directly(&remote, w, "MPI_" #name, &direct))                 \
            return direct == MPI_SUCCESS ? make_completed_request(w, q) : direct;                   \
        STAGE(name, __VA_ARGS__) arguments;                                                         \
        struct operation *operation;                                                                \
        MPI_Request *request = q;                                                                   \
        error = begin_request(&operation, images, "MPI_" #name, request);                           \
        if (error != MPI_SUCCESS) return error;                                                     \
        q = &operation->inner;                                                                      \
        return continue_staged(operation, PMPI_##name arguments, buffers, COUNT_OF(buffers), to, w, \
                               request);                                                            \
    }
#define NO_ORIGIN {&(void *){NULL}, 0, MPI_BYTE, false}

#define TARGET(N) int to, MPI_Aint at, N m, MPI_Datatype u
#define FROM_HERE(N) const void *s, N n, MPI_Datatype t, TARGET(N)
#define TO_HERE(N) void *r, N k, MPI_Datatype v
#define PUTS REMOTE(REMOTE_PUT, FROM(n, t), THERE(m, u), .op = MPI_REPLACE)
#define GETS REMOTE(REMOTE_GET, BACK(k, v), THERE(m, u), .op = MPI_NO_OP)
#define UPDATES REMOTE(REMOTE_UPDATE, FROM(n, t), THERE(m, u), .op = o)
#define UPDATES_AND_GETS REMOTE(REMOTE_UPDATE, FROM(n, t), BACK(k, v), THERE(m, u), .op = o)
#define WINDOW_CALLS(suffix, N)                                                                              \
    ACCESS(Put##suffix, (FROM_HERE(N), MPI_Win w), (s, n, t, to, at, m, u, w), PUTS, ORIGIN(n, t))           \
    ACCESS(Get##suffix, (TO_HERE(N), TARGET(N), MPI_Win w), (r, k, v, to, at, m, u, w), GETS, RESULT(k, v))  \
    ACCESS(Accumulate##suffix, (FROM_HERE(N), MPI_Op o, MPI_Win w), (s, n, t, to, at, m, u, o, w), UPDATES,  \
           ORIGIN(n, t))                                                                                     \
    ACCESS(Get_accumulate##suffix,                                                                           \
           (const void *s, N n, MPI_Datatype t, TO_HERE(N), TARGET(N), MPI_Op o, MPI_Win w),                 \
           (s, n, t, r, k, v, to, at, m, u, o, w), UPDATES_AND_GETS, ORIGIN(READ_BY(o, n), t), RESULT(k, v)) \
    WITH_REQUEST(Rput##suffix, (FROM_HERE(N), MPI_Win w, MPI_Request *q), (s, n, t, to, at, m, u, w, q),     \
                 PUTS, ORIGIN(n, t))                                                                         \
    WITH_REQUEST(Rget##suffix, (TO_HERE(N), TARGET(N), MPI_Win w, MPI_Request *q),                           \
                 (r, k, v, to, at, m, u, w, q), GETS, NO_ORIGIN, RESULT(k, v))                               \
    WITH_REQUEST(Raccumulate##suffix, (FROM_HERE(N), MPI_Op o, MPI_Win w, MPI_Request *q),                   \
                 (s, n, t, to, at, m, u, o, w, q), UPDATES, ORIGIN(n, t))                                    \
    WITH_REQUEST(                                                                                            \
        Rget_accumulate##suffix,                                                                             \
        (const void *s, N n, MPI_Datatype t, TO_HERE(N), TARGET(N), MPI_Op o, MPI_Win w, MPI_Request *q),    \
        (s, n, t, r, k, v, to, at, m, u, o, w, q), UPDATES_AND_GETS, ORIGIN(READ_BY(o, n), t), RESULT(k, v))

WINDOW_CALLS(, int)
#if MPI_VERSION >= 4
WINDOW_CALLS(_c, MPI_Count)
#endif
ACCESS(Fetch_and_op, (const void *s, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Op o, MPI_Win w),
       (s, r, t, to, at, o, w), REMOTE(REMOTE_UPDATE, FROM(1, t), BACK(1, t), THERE(1, t), .op = o),
       ORIGIN(READ_BY(o, 1), t), RESULT(1, t))
ACCESS(Compare_and_swap,
       (const void *s, const void *x, void *r, MPI_Datatype t, int to, MPI_Aint at, MPI_Win w),
       (s, x, r, t, to, at, w),
       REMOTE(REMOTE_SWAP, FROM(1, t), BACK(1, t), THERE(1, t), .compared = x, .op = MPI_REPLACE),
       ORIGIN(1, t), RESULT(1, t), {(void **)&x, 1, t, false})

// Calls that end accesses.

#define END(name, parameters, arguments, target, before)                     \
    EXPORT int MPI_##name parameters {                                       \
        before;                                                              \
        return end_accesses(w, target, "MPI_" #name, PMPI_##name arguments); \
    }

END(Win_complete, (MPI_Win w), (w), NULL, end_start(w))
END(Win_unlock, (int to, MPI_Win w), (to, w), &to, end_lock(w, to))
END(Win_unlock_all, (MPI_Win w), (w), NULL, end_all_locks(w))
END(Win_flush, (int to, MPI_Win w), (to, w), &to, (void)0)
END(Win_flush_all, (MPI_Win w), (w), NULL, (void)0)
END(Win_flush_local, (int to, MPI_Win w), (to, w), &to, (void)0)
END(Win_flush_local_all, (MPI_Win w), (w), NULL, (void)0)

EXPORT int MPI_Win_fence(int assertion, MPI_Win w) {
    bool has_entered = enter_mpi();
    begin_fence(w, assertion);
    return end_accesses(w, NULL, "MPI_Win_fence", leave_mpi(has_entered, PMPI_Win_fence(assertion, w)));
}

EXPORT int MPI_Win_free(MPI_Win *w) {
    MPI_Win window = *w;
    finish_fetches();
    int error = free_window(w);
    // Another window may get its handle. The program is not notified of accesses that it has not completed.
    struct access *access = error == MPI_SUCCESS ? take_accesses(window, NULL) : NULL;
    for (struct access *next; access != NULL; access = next) {
        next = access->next;
        drop_images(access->images);
        free(access);
    }
    return error;
}
