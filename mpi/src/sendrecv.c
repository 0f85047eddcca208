// MPI_Sendrecv and its relatives: a send and a receive in one call.

#include <limits.h>
#include <stdlib.h>

#include "operation/plain.h"

// One direction, with the arguments of the program.
struct half {
    void *buffer;
    MPI_Count count;
    MPI_Datatype type;
    int peer, tag;
};

static int start_in(struct operation *operation, const struct half *in, MPI_Comm comm) {
    return start_receive(operation, in->buffer, in->count, in->type, in->peer, in->tag, comm);
}

static int start_out(struct operation *operation, const struct half *out, MPI_Comm comm) {
    return start_send(operation, STANDARD, out->buffer, out->count, out->type, out->peer, out->tag, comm);
}

// If the receive is a plain one, so is the send, since this process has no GPU. Whether it is.
static bool exchange_plain(const struct half *out, const struct half *in, MPI_Comm comm, MPI_Status *status,
                           int *error) {
    MPI_Request receiving, sending;
    if (out->count > INT_MAX) return false;
    if (!start_plain(in->buffer, in->count, in->type, in->peer, in->tag, comm, &receiving, error))
        return false;
    if (*error != MPI_SUCCESS) return true;
    int sent = PMPI_Isend(out->buffer, (int)out->count, out->type, out->peer, out->tag, comm, &sending);
    bool is_sending = sent == MPI_SUCCESS;
    if (!is_sending) PMPI_Cancel(&receiving);
    // Behind the receive the MPI waits for the send by itself.
    *error = MPI_Wait(&receiving, status);
    if (is_sending) sent = MPI_Wait(&sending, MPI_STATUS_IGNORE);
    if (*error == MPI_SUCCESS) *error = sent;
    return true;
}

static int exchange(const struct half *out, const struct half *in, MPI_Comm comm, MPI_Status *status) {
    int plain_error;
    if (exchange_plain(out, in, comm, status, &plain_error)) return plain_error;
    struct operation incoming = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
    struct operation outgoing = {.handle = MPI_REQUEST_NULL, .is_blocking = true};
    int error = start_in(&incoming, in, comm);
    if (error != MPI_SUCCESS) return error;
    int sent = start_out(&outgoing, out, comm);
    if (sent == MPI_SUCCESS)
        sent = finish(&outgoing, MPI_STATUS_IGNORE);
    else
        cancel(&incoming);
    error = finish(&incoming, status);
    return error == MPI_SUCCESS ? sent : error;
}

// A copy of the message to send: on the GPU if the elements are all on one, so that it is sent as other
// messages of GPUs, and takes no host memory. Null if it cannot be allocated.
static void *take_copy(const struct half *out, uint64_t bytes, void **holder) {
    *holder = NULL;
    if (bytes > 0 && location_of(out->buffer, out->count, out->type) == ON_GPU) {
        void *first = (char *)out->buffer + first_of(out->type);
        void *copy = causeway_comm_allocate(first, bytes, holder);
        if (copy != NULL) return copy;
    }
    return malloc(bytes + 1);
}

// The message to send is copied first, since the received one overwrites it. Returns the copy, or null if the
// error has been raised.
static void *copy_out(struct half *out, const char *call, MPI_Comm comm, void **holder, int *error) {
    *error = out->count < 0 ? MPI_ERR_COUNT : MPI_SUCCESS;
    if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm, *error);
    if (*error == MPI_SUCCESS) *error = check_type(out->type, comm);
    if (*error != MPI_SUCCESS) return NULL;
    uint64_t bytes = bytes_of(out->count, out->type);
    bool on_gpu = is_on_gpu(out->buffer, out->count, out->type);
    void *copy = take_copy(out, bytes, holder);
    const char *message = copy == NULL ? "cannot allocate memory for a copy of the message" : NULL;
    if (message == NULL) message = copy_elements(out->buffer, out->count, out->type, copy, true);
    if (message != NULL) {
        *error = raise_error(comm, call, message);
        drop_copy(copy, *holder);
        return NULL;
    }
    int peer = on_gpu && *holder == NULL ? job_rank(comm, out->peer) : -1;
    if (peer >= 0) causeway_comm_count_copied((uint32_t)peer, bytes);
    out->buffer = copy;
    out->count = (MPI_Count)bytes;
    out->type = MPI_BYTE;
    return copy;
}

static int replace(struct half *out, const struct half *in, MPI_Comm comm, MPI_Status *status) {
    int error;
    void *holder, *copy = copy_out(out, "MPI_Sendrecv_replace", comm, &holder, &error);
    if (copy == NULL) return error;
    error = exchange(out, in, comm, status);
    drop_copy(copy, holder);
    return error;
}

#if HAS_MPI_4

// Takes ownership of the copy, which may be null.
static int exchange_later(const struct half *out, const struct half *in, void *copy, void *holder,
                          MPI_Comm comm, MPI_Request *request) {
    struct operation *incoming, *outgoing = calloc(1, sizeof *outgoing);
    if (outgoing == NULL) abort();
    outgoing->handle = MPI_REQUEST_NULL;
    outgoing->copy = copy;
    outgoing->copy_holder = holder;
    int error = start_request(&incoming, request);
    // Neither half may complete before both have started.
    lock();
    if (error == MPI_SUCCESS) {
        error = start_in(incoming, in, comm);
        if (error != MPI_SUCCESS) drop_request(request);
    }
    bool is_started = error == MPI_SUCCESS;
    if (is_started) error = start_out(outgoing, out, comm);
    if (error == MPI_SUCCESS) {
        incoming->other = outgoing;
        outgoing->other = incoming;
    } else {
        drop_copy(copy, holder);
        free(outgoing);
    }
    if (is_started && error != MPI_SUCCESS) {
        cancel(incoming);
        incoming->is_freed = true;
        *request = MPI_REQUEST_NULL;
    }
    unlock();
    return error;
}

static int replace_later(struct half *out, const struct half *in, MPI_Comm comm, MPI_Request *request) {
    int error;
    void *holder, *copy = copy_out(out, "MPI_Isendrecv_replace", comm, &holder, &error);
    return copy == NULL ? error : exchange_later(out, in, copy, holder, comm, request);
}

#endif

// Both forms: `last` is the last parameter, whose name is `end`, and `own` what is done where there is memory
// on a GPU, or such a message may come. N is the type of counts.

#define EXCHANGE(name, N, last, end, may_be_mpis, own)                                                       \
    EXPORT int MPI_##name(const void *b, N n, MPI_Datatype t, int to, int tag, void *r, N m, MPI_Datatype u, \
                          int from, int other, MPI_Comm c, last) {                                           \
        if (may_be_mpis && !is_received_as_bytes(u) && !is_on_gpu(b, n, t) && !is_on_gpu(r, m, u))           \
            return PMPI_##name(b, n, t, to, tag, r, m, u, from, other, c, end);                              \
        struct half out = {(void *)b, n, t, to, tag}, in = {r, m, u, from, other};                           \
        return own;                                                                                          \
    }
#define REPLACE(name, N, last, end, may_be_mpis, own)                                                     \
    EXPORT int MPI_##name(void *b, N n, MPI_Datatype t, int to, int tag, int from, int other, MPI_Comm c, \
                          last) {                                                                         \
        if (may_be_mpis && !is_received_as_bytes(t) && !is_on_gpu(b, n, t))                               \
            return PMPI_##name(b, n, t, to, tag, from, other, c, end);                                    \
        struct half out = {b, n, t, to, tag}, in = {b, n, t, from, other};                                \
        return own;                                                                                       \
    }
#define AT_ONCE(suffix, N)                                                                     \
    EXCHANGE(Sendrecv##suffix, N, MPI_Status *s, s, in_flight == 0, exchange(&out, &in, c, s)) \
    REPLACE(Sendrecv_replace##suffix, N, MPI_Status *s, s, in_flight == 0, replace(&out, &in, c, s))
#define LATER(suffix, N)                                                                                 \
    EXCHANGE(Isendrecv##suffix, N, MPI_Request *q, q, true, exchange_later(&out, &in, NULL, NULL, c, q)) \
    REPLACE(Isendrecv_replace##suffix, N, MPI_Request *q, q, true, replace_later(&out, &in, c, q))

AT_ONCE(, int)
#if HAS_MPI_4
LATER(, int)
#endif
#if MPI_VERSION >= 4
AT_ONCE(_c, MPI_Count)
LATER(_c, MPI_Count)
#endif
