// Start of sends from a GPU and of receives, and the delivery of received messages: a payload, or a
// descriptor to fetch by.
//
// docs/src/concepts/messages.md describes the rules of matching.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../collective/staging.h"
#include "../probe.h"
#include "plain.h"

// Delivery.

// Copies bytes of host memory to the user's memory. The program may have freed the type.
static int deliver(struct operation *operation, const void *from, uint64_t bytes) {
    if (from == operation->user || bytes == 0) return MPI_SUCCESS;
    if (operation->on_gpu) {
        if (causeway_comm_deliver((uint32_t)operation->sender - 1, operation->user, from, bytes) == 0)
            return MPI_SUCCESS;
        return error_code("a receive into a GPU", causeway_comm_error());
    }
    if (operation->contiguous) {
        memcpy(operation->user, from, bytes);
        return MPI_SUCCESS;
    }
    if (!operation->is_mixed) {
        copy_runs_on_host(operation->runs, operation->user, (void *)from, bytes, false);
        return MPI_SUCCESS;
    }
    const char *message = copy_runs_anywhere(operation->runs, operation->user, (void *)from, bytes, false);
    return message == NULL ? MPI_SUCCESS : error_code("a receive into a GPU", message);
}

// For a non-blocking receive, the fetch may be in flight when this returns.
static int start_fetch(struct operation *operation, const void *descriptor) {
    int state = causeway_comm_start_fetch(descriptor, operation->user, operation->on_gpu, operation->capacity,
                                          &operation->fetching);
    return state < 0 ? error_code("a receive from a GPU", causeway_comm_error()) : MPI_SUCCESS;
}

static int fetch(struct operation *operation, const void *descriptor, uint64_t payload) {
    if (!operation->is_blocking && operation->contiguous && payload <= operation->capacity)
        return start_fetch(operation, descriptor);
    void *to = operation->user;
    void *other = NULL;
    if (!operation->contiguous && payload <= operation->capacity) {
        to = other = map_memory(payload + 1);
        if (to == NULL) return error_code("a receive", "cannot allocate memory to fetch the message into");
    }
    int error = MPI_SUCCESS;
    if (causeway_comm_fetch(descriptor, to, operation->on_gpu, operation->capacity, operation->is_blocking) !=
        0)
        error = error_code("a receive from a GPU", causeway_comm_error());
    else if (payload > operation->capacity)
        error = MPI_ERR_TRUNCATE;
    else if (other != NULL)
        error = deliver(operation, other, payload);
    if (other != NULL) munmap(other, payload + 1);
    return error;
}

// MPICH reports a message that ends within an element, if it splits elements with gaps; Open MPI does not.
static bool is_cut(const struct operation *operation) {
#ifdef MPICH_VERSION
    return operation->runs != NULL && !may_be_whole(operation->runs, operation->bytes);
#else
    (void)operation;
    return false;
#endif
}

void arrive(struct operation *operation, const void *start, uint64_t length) {
    bool is_there = start == operation->user;
    // A copy, since the payload may overwrite it.
    unsigned char bytes[CAUSEWAY_COMM_DESCRIPTOR];
    if (length == sizeof bytes) memcpy(bytes, start, sizeof bytes);
    switch (causeway_comm_classify(bytes, length, operation->capacity, &operation->bytes)) {
    case CAUSEWAY_COMM_PAYLOAD:
        // A fetch counts itself.
        if (operation->sender > 0)
            causeway_comm_count_operation((uint32_t)operation->sender - 1, operation->is_blocking);
        if (!is_there) operation->error = deliver(operation, start, length);
        break;
    case CAUSEWAY_COMM_TOO_LONG: operation->error = MPI_ERR_TRUNCATE; break;
    default:
        note_descriptor();
        operation->error = fetch(operation, bytes, operation->bytes);
        break;
    }
    if (operation->error == MPI_SUCCESS && is_cut(operation)) operation->error = MPI_ERR_TYPE;
}

void end_inner(struct operation *operation, int error) {
    operation->inner_done = true;
    if (error != MPI_SUCCESS) {
        operation->error = error;
        operation->is_raised = true;
        return;
    }
    if (operation->kind == SEND) return;
    MPI_Count length = 0;
    if (operation->kind == COLLECTIVE) {
        if (has_byte_count(operation->staging)) PMPI_Get_elements_x(&operation->status, MPI_BYTE, &length);
        operation->bytes = (uint64_t)length;
        operation->error = end_staging(operation->staging, operation->persistent == NULL);
        return;
    }
    int cancelled = 0;
    PMPI_Test_cancelled(&operation->status, &cancelled);
    operation->cancelled = cancelled != 0;
    operation->bytes = 0;
    if (cancelled || operation->status.MPI_SOURCE == MPI_PROC_NULL) return;
    PMPI_Get_elements_x(&operation->status, MPI_BYTE, &length);
    arrive(operation, operation->memory != NULL ? operation->memory : operation->user, (uint64_t)length);
}

// Start.

// The MPI's calls, with the largest counts that it supports.

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

// Whether the MPI must get a receive with the arguments of the program, to report what is wrong.
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

// Sends a message's bytes with the MPI, from a copy in host memory.
static int send_copy(struct operation *operation, enum mode mode, int to, int tag) {
    MPI_Comm comm = operation->comm;
    const char *call = "a send from a GPU";
    if (!replace_memory(operation, operation->bytes))
        return raise_error(comm, call, "cannot allocate memory to copy the message into");
    long start = now();
    const char *message =
        copy_elements(operation->user, operation->count, operation->type, operation->memory, true);
    if (message != NULL) return raise_error(comm, call, message);
    if (causeway_comm_is_short(operation->bytes)) copied_in = now() - start;
    return mpi_isend(mode, operation->memory, (MPI_Count)operation->bytes, MPI_BYTE, to, tag, comm,
                     &operation->inner);
}

// Sends the descriptor of a message on a GPU, or its bytes.
static int send_from_gpu(struct operation *operation, enum mode mode, int to, int tag) {
    const char *message = pack_elements(operation);
    if (message != NULL) return raise_error(operation->comm, "a send from a GPU", message);
    const void *buffer = operation->user;
    int peer = job_rank(operation->comm, to);
    bool is_offered = peer >= 0 && causeway_comm_is_offered((uint32_t)peer, buffer, operation->bytes);
    // The peer is connected by now, if it is on this node.
    if (peer >= 0) causeway_comm_count_operation((uint32_t)peer, operation->is_blocking);
    if (is_offered)
        operation->offer =
            causeway_comm_offer((uint32_t)peer, buffer, operation->bytes, operation->descriptor);
    if (operation->offer == 0) return send_copy(operation, mode, to, tag);
    operation->is_short = mode != SYNCHRONOUS && causeway_comm_is_short(operation->bytes);
    int error = mpi_isend(mode, operation->descriptor, sizeof operation->descriptor, MPI_BYTE, to, tag,
                          operation->comm, &operation->inner);
    if (error == MPI_SUCCESS) return error;
    // No receiver will get the descriptor.
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

// Prepares the unpacking of elements at the end: the program may free the type before.
static const char *prepare_elements(struct operation *operation) {
    if (operation->on_gpu) return pack_elements(operation);
    bool is_bytes = operation->is_mixed || is_received_as_bytes(operation->type);
    if (operation->contiguous || !is_bytes) return NULL;
    operation->runs = hold_runs(operation->type);
    return operation->runs == NULL ? NO_RUNS : NULL;
}

// The buffer of a receive for the MPI: the user's memory, if that is host memory without gaps and not smaller
// than a descriptor. All is received as bytes, since the length of a descriptor need not be a multiple of the
// program's elements: MPICH 4.0.2 asserts that of a message to the rank itself.
static int prepare_receive(struct operation *operation, void **buffer, MPI_Count *count, MPI_Datatype *type) {
    const char *message = prepare_elements(operation);
    if (message != NULL) return raise_error(operation->comm, "a receive into a GPU", message);
    *buffer = operation->user;
    *count = operation->count;
    *type = operation->type;
    uint64_t capacity = in_job ? receive_buffer_bytes(operation->capacity) : operation->capacity;
    bool has_gaps = operation->is_mixed || operation->runs != NULL;
    bool is_replaced = operation->on_gpu || has_gaps || capacity > operation->capacity;
    if (in_job || is_replaced) {
        *count = (MPI_Count)capacity;
        *type = MPI_BYTE;
    }
    if (!is_replaced) return MPI_SUCCESS;
    if (!replace_memory(operation, capacity))
        return raise_error(operation->comm, "a receive", "cannot allocate memory to receive the message");
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
    // Another thread's probe must not come between the search of the queue and the receive.
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

int start_unexpected(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type,
                     MPI_Comm comm, struct unexpected *unexpected) {
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
        if (error == MPI_SUCCESS)
            error = mpi_imrecv(buffer, count, type, &unexpected->message, &operation->inner);
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
