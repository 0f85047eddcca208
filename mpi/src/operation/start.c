// How sends from a GPU begin, and receives, which may bring what lies on a GPU.
//
// The rule of matching is told in docs/src/concepts/messages.md.

#include <stdlib.h>

#include "operation.h"

// The MPI's calls, with counts as long as it takes them.

#if MPI_VERSION >= 4
#define WITH_COUNTS(name) name##_c
typedef MPI_Count mpis_count;
#else
#define WITH_COUNTS(name) name
typedef int mpis_count;
#endif

static int mpi_isend(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                     MPI_Comm comm, MPI_Request *request) {
    bool is_made = make_narrow(&count, &type);
    mpis_count n = (mpis_count)count;
    int error;
    switch (mode) {
    case SYNCHRONOUS: error = WITH_COUNTS(PMPI_Issend)(buffer, n, type, to, tag, comm, request); break;
    case READY: error = WITH_COUNTS(PMPI_Irsend)(buffer, n, type, to, tag, comm, request); break;
    default: error = WITH_COUNTS(PMPI_Isend)(buffer, n, type, to, tag, comm, request);
    }
    if (is_made) PMPI_Type_free(&type);
    return error;
}

static int mpi_irecv(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                     MPI_Request *request) {
    bool is_made = make_narrow(&count, &type);
    int error = WITH_COUNTS(PMPI_Irecv)(buffer, (mpis_count)count, type, source, tag, comm, request);
    if (is_made) PMPI_Type_free(&type);
    return error;
}

static int mpi_imrecv(void *buffer, MPI_Count count, MPI_Datatype type, MPI_Message *message,
                      MPI_Request *request) {
    bool is_made = make_narrow(&count, &type);
    int error = WITH_COUNTS(PMPI_Imrecv)(buffer, (mpis_count)count, type, message, request);
    if (is_made) PMPI_Type_free(&type);
    return error;
}

// Whether the MPI must get a receive as the program has described it, to tell what is wrong.
static bool are_wrong(const void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || type == MPI_DATATYPE_NULL || count < 0) return true;
    return buffer == NULL && count > 0 && is_predefined(type);
}

static void set_location(struct operation *operation) {
    enum memory_location location = location_of(operation->user, operation->count, operation->type);
    operation->on_gpu = location == ON_GPU;
    operation->is_mixed = location == IN_BOTH;
    if (location == IN_HOST) return;
    bool is_absolute = operation->user == MPI_BOTTOM;
    causeway_comm_sync_memory(is_absolute ? (const void *)first_of(operation->type) : operation->user);
}

static void set_user(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type,
                     MPI_Comm comm) {
    operation->comm = comm;
    operation->user = buffer;
    operation->count = count;
    operation->type = type;
    operation->capacity = bytes_of(count, type);
    operation->contiguous = is_contiguous(type);
    operation->inner = MPI_REQUEST_NULL;
}

// Sends a message's bytes with the MPI, from a copy in memory of the host.
static int send_copy(struct operation *operation, enum mode mode, int to, int tag) {
    MPI_Comm comm = operation->comm;
    const char *call = "a send from a GPU";
    if (!replace_memory(operation, operation->bytes))
        return raise_error(comm, call, "memory to copy the message into cannot be had");
    long start = now();
    const char *message = copy_elements(operation->user, operation->count, operation->type, operation->memory, true);
    if (message != NULL) return raise_error(comm, call, message);
    if (causeway_comm_is_short(operation->bytes)) copied_in = now() - start;
    return mpi_isend(mode, operation->memory, (MPI_Count)operation->bytes, MPI_BYTE, to, tag, comm,
                     &operation->inner);
}

// Sends word of a message on a GPU, or its bytes.
static int send_from_gpu(struct operation *operation, enum mode mode, int to, int tag) {
    const char *message = pack_elements(operation);
    if (message != NULL) return raise_error(operation->comm, "a send from a GPU", message);
    const void *buffer = operation->user;
    int peer = job_rank(operation->comm, to);
    bool is_offered = peer >= 0 && causeway_comm_is_offered((uint32_t)peer, buffer, operation->bytes);
    // The peer has been met by now, if it is on this host.
    if (peer >= 0) causeway_comm_count_operation((uint32_t)peer, operation->is_blocking);
    if (is_offered)
        operation->offer =
            causeway_comm_offer((uint32_t)peer, buffer, operation->bytes, operation->descriptor);
    if (operation->offer == 0) return send_copy(operation, mode, to, tag);
    operation->is_short = mode != SYNCHRONOUS && causeway_comm_is_short(operation->bytes);
    int error = mpi_isend(mode, operation->descriptor, sizeof operation->descriptor, MPI_BYTE, to, tag,
                          operation->comm, &operation->inner);
    if (error == MPI_SUCCESS) return error;
    // Nobody will hear of it.
    causeway_comm_detach(operation->offer);
    causeway_comm_offer_state(operation->offer);
    operation->offer = 0;
    return error;
}

int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    operation->kind = SEND;
    set_user(operation, (void *)buffer, count, type, comm);
    if (to != MPI_PROC_NULL && count >= 0) set_location(operation);
    operation->bytes = operation->capacity;
    int error = operation->on_gpu || operation->is_mixed ? check_type(type, comm) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) return error;
    if (operation->on_gpu)
        error = send_from_gpu(operation, mode, to, tag);
    else if (operation->is_mixed)
        error = send_copy(operation, mode, to, tag);
    else
        error = mpi_isend(mode, buffer, count, type, to, tag, comm, &operation->inner);
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else
        release_memory(operation);
    return error;
}

// What is needed to bring elements to their places at the end: the program may free the type before.
static const char *prepare_elements(struct operation *operation) {
    if (operation->on_gpu) return pack_elements(operation);
    if (operation->contiguous || (!in_job && !operation->is_mixed)) return NULL;
    operation->runs = hold_runs(operation->type);
    return operation->runs == NULL ? NO_RUNS : NULL;
}

// What a receive gives the MPI: the user's memory, where that is the host's, has no gaps, and has room for a
// descriptor. All is received as bytes, since a descriptor need not be as long as a number of the program's
// elements: MPICH 4.0.2 asserts that of a message to the rank itself.
static int prepare_receive(struct operation *operation, void **buffer, MPI_Count *count, MPI_Datatype *type) {
    const char *message = prepare_elements(operation);
    if (message != NULL) return raise_error(operation->comm, "a receive into a GPU", message);
    *buffer = operation->user;
    *count = operation->count;
    *type = operation->type;
    bool is_short = in_job && operation->capacity < CAUSEWAY_COMM_DESCRIPTOR;
    bool has_gaps = operation->is_mixed || (in_job && !operation->contiguous);
    bool is_replaced = operation->on_gpu || is_short || has_gaps;
    uint64_t capacity = is_short ? CAUSEWAY_COMM_DESCRIPTOR : operation->capacity;
    if (in_job || is_replaced) {
        *count = (MPI_Count)capacity;
        *type = MPI_BYTE;
    }
    if (!is_replaced) return MPI_SUCCESS;
    if (!replace_memory(operation, capacity))
        return raise_error(operation->comm, "a receive", "memory to receive the message in cannot be had");
    *buffer = operation->memory;
    return MPI_SUCCESS;
}

int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    if (source == MPI_PROC_NULL || are_wrong(buffer, count, type, comm)) {
        int error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        operation->contiguous = true;
        if (error == MPI_SUCCESS) add_operation(operation);
        return error;
    }
    int error = check_type(type, comm);
    if (error != MPI_SUCCESS) return error;
    set_location(operation);
    if (in_job && operation->on_gpu && source >= 0) operation->sender = job_rank(comm, source) + 1;
    // Another thread's probe must not come between the look into the list and the receive.
    lock();
    struct unexpected *unexpected = in_job ? take_unexpected(comm, source, tag) : NULL;
    if (unexpected != NULL) {
        error = start_unexpected(operation, buffer, count, type, comm, unexpected);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS)
            error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        if (error == MPI_SUCCESS)
            add_operation(operation);
        else
            release_memory(operation);
    }
    unlock();
    return error;
}

int start_unexpected(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct unexpected *unexpected) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    set_location(operation);
    int error = MPI_SUCCESS;
    if (unexpected->is_received) {
        const char *message = prepare_elements(operation);
        if (message != NULL) operation->error = error_code("a receive into a GPU", message);
        operation->status = unexpected->status;
        operation->inner_done = true;
        if (message == NULL) arrive(operation, unexpected->bytes, sizeof unexpected->bytes);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS) error = mpi_imrecv(buffer, count, type, &unexpected->message, &operation->inner);
    }
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else
        release_memory(operation);
    free(unexpected);
    return error;
}

int start_collective(struct operation *operation, struct staging *staging, MPI_Request inner, MPI_Comm comm) {
    operation->kind = COLLECTIVE;
    operation->comm = comm;
    operation->staging = staging;
    operation->inner = inner;
    int error = start_staging(operation);
    if (error == MPI_SUCCESS)
        add_operation(operation);
    else if (operation->persistent == NULL)
        drop_staging(staging);
    return error;
}
