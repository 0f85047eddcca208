// Sends from a GPU, and receives, which may bring what lies on a GPU.
//
// The rule of matching is told in docs/src/concepts/messages.md.

#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "shim.h"

int under_way;
static struct operation *first;

// The MPI's calls, with counts as long as it takes them.

static int mpi_isend(enum mode mode, const void *buffer, MPI_Count count, MPI_Datatype type, int to, int tag,
                     MPI_Comm comm, MPI_Request *request) {
#if MPI_VERSION >= 4
    switch (mode) {
    case SYNCHRONOUS: return PMPI_Issend_c(buffer, count, type, to, tag, comm, request);
    case READY: return PMPI_Irsend_c(buffer, count, type, to, tag, comm, request);
    default: return PMPI_Isend_c(buffer, count, type, to, tag, comm, request);
    }
#else
    switch (mode) {
    case SYNCHRONOUS: return PMPI_Issend(buffer, (int)count, type, to, tag, comm, request);
    case READY: return PMPI_Irsend(buffer, (int)count, type, to, tag, comm, request);
    default: return PMPI_Isend(buffer, (int)count, type, to, tag, comm, request);
    }
#endif
}

static int mpi_irecv(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                     MPI_Request *request) {
#if MPI_VERSION >= 4
    return PMPI_Irecv_c(buffer, count, type, source, tag, comm, request);
#else
    return PMPI_Irecv(buffer, (int)count, type, source, tag, comm, request);
#endif
}

static int mpi_imrecv(void *buffer, MPI_Count count, MPI_Datatype type, MPI_Message *message,
                      MPI_Request *request) {
#if MPI_VERSION >= 4
    return PMPI_Imrecv_c(buffer, count, type, message, request);
#else
    return PMPI_Imrecv(buffer, (int)count, type, message, request);
#endif
}

// Memory of the host that costs nothing until it is touched: a receive into a GPU must have room for all that
// may come, and mostly gets a descriptor.
static void *take_memory(uint64_t bytes) {
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_back(struct operation *operation) {
    if (operation->memory == NULL) return;
    if (operation->memory_bytes > 0) munmap(operation->memory, operation->memory_bytes);
    operation->memory = NULL;
}

// Gives the MPI other memory than the user's. What a descriptor fits into lies in the operation itself.
static bool replace_memory(struct operation *operation, uint64_t bytes) {
    if (bytes <= sizeof operation->descriptor) {
        operation->memory = operation->descriptor;
        operation->memory_bytes = 0;
    } else {
        operation->memory = take_memory(bytes);
        operation->memory_bytes = bytes;
    }
    return operation->memory != NULL;
}

static void add(struct operation *operation) {
    lock();
    operation->previous = NULL;
    operation->next = first;
    if (first != NULL) first->previous = operation;
    first = operation;
    __atomic_add_fetch(&under_way, 1, __ATOMIC_RELAXED);
    unlock();
}

static void take_out(struct operation *operation) {
    if (operation->next != NULL) operation->next->previous = operation->previous;
    if (operation->previous != NULL) operation->previous->next = operation->next;
    if (first == operation) first = operation->next;
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_RELAXED);
}

static void set_user(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type,
                     MPI_Comm comm) {
    operation->comm = comm;
    operation->user = buffer;
    operation->count = count;
    operation->type = type;
    operation->room = bytes_of(count, type);
    operation->contiguous = is_contiguous(type);
    operation->inner = MPI_REQUEST_NULL;
}

int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    operation->kind = SEND;
    set_user(operation, (void *)buffer, count, type, comm);
    operation->on_gpu = to != MPI_PROC_NULL && causeway_comm_on_gpu(buffer);
    operation->bytes = operation->room;
    int error;
    if (!operation->on_gpu) {
        error = mpi_isend(mode, buffer, count, type, to, tag, comm, &operation->inner);
    } else if (!operation->contiguous) {
        return raise_error(comm, "a send from a GPU",
                           "the datatype is not contiguous: pack the elements first");
    } else {
        int peer = job_rank(comm, to);
        if (peer >= 0 && causeway_comm_is_offered((uint32_t)peer, operation->bytes))
            operation->offer =
                causeway_comm_offer((uint32_t)peer, buffer, operation->bytes, operation->descriptor);
        if (operation->offer != 0) {
            error = mpi_isend(mode, operation->descriptor, sizeof operation->descriptor, MPI_BYTE, to, tag,
                              comm, &operation->inner);
        } else {
            if (!replace_memory(operation, operation->bytes))
                return raise_error(comm, "a send from a GPU",
                                   "memory to copy the message into cannot be had");
            if (causeway_comm_copy(operation->memory, buffer, operation->bytes) != 0) {
                give_back(operation);
                return raise_error(comm, "a send from a GPU", causeway_comm_error());
            }
            error = mpi_isend(mode, operation->memory, count, type, to, tag, comm, &operation->inner);
        }
    }
    if (error == MPI_SUCCESS)
        add(operation);
    else
        give_back(operation);
    return error;
}

// What a receive gives the MPI: the user's memory, where that is the host's, has no gaps, and has room for a
// descriptor.
static int prepare_receive(struct operation *operation, void **buffer, MPI_Count *count, MPI_Datatype *type) {
    if (operation->on_gpu && !operation->contiguous)
        return raise_error(operation->comm, "a receive into a GPU",
                           "the datatype is not contiguous: unpack after it");
    bool is_short = in_job && operation->room < CAUSEWAY_COMM_DESCRIPTOR;
    bool has_gaps = in_job && !operation->contiguous;
    if (!operation->on_gpu && !is_short && !has_gaps) return MPI_SUCCESS;
    uint64_t room = is_short ? CAUSEWAY_COMM_DESCRIPTOR : operation->room;
    if (has_gaps && room > INT_MAX && MPI_VERSION < 4)
        return raise_error(operation->comm, "a receive", "more than 2 GiB with gaps: receive less at a time");
    if (!replace_memory(operation, room))
        return raise_error(operation->comm, "a receive", "memory to receive the message in cannot be had");
    *buffer = operation->memory;
    if (is_short || has_gaps) {
        *count = (MPI_Count)room;
        *type = MPI_BYTE;
    }
    return MPI_SUCCESS;
}

int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    if (source == MPI_PROC_NULL) {
        int error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        if (error == MPI_SUCCESS) add(operation);
        return error;
    }
    operation->on_gpu = causeway_comm_on_gpu(buffer);
    if (operation->on_gpu) causeway_comm_settle(buffer);
    // Another thread's probe must not come between the look into the list and the receive.
    lock();
    struct kept *kept = in_job ? take_kept(comm, source, tag) : NULL;
    int error;
    if (kept != NULL) {
        error = start_kept(operation, buffer, count, type, comm, kept);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS)
            error = mpi_irecv(buffer, count, type, source, tag, comm, &operation->inner);
        if (error == MPI_SUCCESS)
            add(operation);
        else
            give_back(operation);
    }
    unlock();
    return error;
}

static void arrive(struct operation *operation, const void *start, uint64_t length);

int start_kept(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct kept *kept) {
    operation->kind = RECEIVE;
    set_user(operation, buffer, count, type, comm);
    operation->on_gpu = causeway_comm_on_gpu(buffer);
    if (operation->on_gpu) causeway_comm_settle(buffer);
    int error = MPI_SUCCESS;
    if (kept->is_received) {
        operation->status = kept->status;
        operation->inner_done = true;
        arrive(operation, kept->bytes, sizeof kept->bytes);
    } else {
        error = prepare_receive(operation, &buffer, &count, &type);
        if (error == MPI_SUCCESS) error = mpi_imrecv(buffer, count, type, &kept->message, &operation->inner);
    }
    if (error == MPI_SUCCESS)
        add(operation);
    else
        give_back(operation);
    free(kept);
    return error;
}

// Brings bytes of the host into the user's memory.
static int deliver(struct operation *operation, const void *from, uint64_t bytes) {
    if (from == operation->user || bytes == 0) return MPI_SUCCESS;
    if (operation->on_gpu) {
        if (causeway_comm_copy(operation->user, from, bytes) == 0) return MPI_SUCCESS;
        return error_code("a receive into a GPU", causeway_comm_error());
    }
    if (operation->contiguous) {
        memcpy(operation->user, from, bytes);
        return MPI_SUCCESS;
    }
    uint64_t size = bytes_of(1, operation->type);
#if MPI_VERSION >= 4
    MPI_Count position = 0;
    return PMPI_Unpack_c(from, (MPI_Count)bytes, &position, operation->user, (MPI_Count)(bytes / size),
                         operation->type, operation->comm);
#else
    int position = 0;
    return PMPI_Unpack(from, (int)bytes, &position, operation->user, (int)(bytes / size), operation->type,
                       operation->comm);
#endif
}

static int fetch(struct operation *operation, const void *descriptor, uint64_t payload) {
    void *to = operation->user;
    void *other = NULL;
    if (!operation->contiguous && payload <= operation->room) {
        to = other = take_memory(payload + 1);
        if (to == NULL) return error_code("a receive", "memory to fetch the message into cannot be had");
    }
    int error = MPI_SUCCESS;
    if (causeway_comm_fetch(descriptor, to, operation->on_gpu, operation->room, operation->is_blocking) != 0)
        error = error_code("a receive from a GPU", causeway_comm_error());
    else if (payload > operation->room)
        error = MPI_ERR_TRUNCATE;
    else if (other != NULL)
        error = deliver(operation, other, payload);
    if (other != NULL) munmap(other, payload + 1);
    return error;
}

// A message has come, of so many bytes, which begin at `start`: in the user's memory, or elsewhere.
static void arrive(struct operation *operation, const void *start, uint64_t length) {
    bool is_there = start == operation->user;
    // A copy, since the payload may overwrite it.
    unsigned char word[CAUSEWAY_COMM_DESCRIPTOR];
    if (length == sizeof word) memcpy(word, start, sizeof word);
    switch (causeway_comm_judge(word, length, operation->room, &operation->bytes)) {
    case CAUSEWAY_COMM_PAYLOAD:
        if (!is_there) operation->error = deliver(operation, start, length);
        break;
    case CAUSEWAY_COMM_TOO_LONG: operation->error = MPI_ERR_TRUNCATE; break;
    default: operation->error = fetch(operation, word, operation->bytes); break;
    }
}

// The MPI's part has come to its end.
static void end_inner(struct operation *operation, int error) {
    operation->inner_done = true;
    if (error != MPI_SUCCESS) {
        operation->error = error;
        operation->is_raised = true;
        return;
    }
    if (operation->kind == SEND) return;
    int cancelled = 0;
    PMPI_Test_cancelled(&operation->status, &cancelled);
    operation->cancelled = cancelled != 0;
    operation->bytes = 0;
    if (cancelled || operation->status.MPI_SOURCE == MPI_PROC_NULL) return;
    MPI_Count length = 0;
    PMPI_Get_elements_x(&operation->status, MPI_BYTE, &length);
    arrive(operation, operation->memory != NULL ? operation->memory : operation->user, (uint64_t)length);
}

static void end(struct operation *operation) {
    take_out(operation);
    give_back(operation);
    operation->done = true;
    if (operation->persistent != NULL) {
        end_persistent(operation->persistent, operation);
        free(operation);
        return;
    }
    MPI_Request handle = operation->handle;
    if (handle == MPI_REQUEST_NULL) return;
    if (operation->error != MPI_SUCCESS)
        keep_error(handle, operation->comm, operation->error, operation->is_raised);
    bool is_freed = operation->is_freed;
    // The operation may go with its request.
    PMPI_Grequest_complete(handle);
    if (is_freed) PMPI_Request_free(&handle);
}

// Whether the receiver, which has been told of a message, does not fetch it. It may sit in a call of the MPI
// that knows nothing of this (MPI_Barrier), and wait there for what this rank does after its send.
static bool is_late(struct operation *operation) {
    enum { PATIENCE_MS = 20 };
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (operation->told_at == 0) operation->told_at = ms;
    return ms - operation->told_at > PATIENCE_MS;
}

static void advance(struct operation *operation) {
    if (!operation->inner_done) {
        if (operation->is_watched) return;
        int flag = 0;
        int error = PMPI_Test(&operation->inner, &flag, &operation->status);
        if (error == MPI_SUCCESS && !flag) return;
        end_inner(operation, error);
    }
    if (operation->kind == SEND && operation->offer != 0 && operation->error == MPI_SUCCESS) {
        int state = causeway_comm_offer_state(operation->offer);
        if (state == 0 && is_late(operation)) {
            causeway_comm_detach(operation->offer);
            state = causeway_comm_offer_state(operation->offer);
        }
        if (state == 0) return;
        if (state < 0) operation->error = error_code("a send from a GPU", causeway_comm_error());
    }
    end(operation);
}

void progress(void) {
    if (under_way == 0) return;
    lock();
    for (struct operation *operation = first, *next; operation != NULL; operation = next) {
        next = operation->next;
        advance(operation);
    }
    unlock();
}

void pause_for(int turn) {
    if (turn < 100) return;
    if (turn < 400) {
        sched_yield();
        return;
    }
    struct timespec some = {0, turn < 4000 ? 20000 : 200000};
    nanosleep(&some, NULL);
}

int wait_for(MPI_Request *request, MPI_Status *status) {
    int flag = 0, error = MPI_SUCCESS;
    for (int turn = 0; error == MPI_SUCCESS && !flag; turn++) {
        if (turn > 0) pause_for(turn);
        progress();
        error = PMPI_Test(request, &flag, status);
    }
    return error;
}

// Where nothing else is under way the MPI waits in its own way. Says whether it has.
static bool leave_it_to_the_mpi(struct operation *operation) {
    lock();
    bool is_alone = first == operation && operation->next == NULL && !operation->inner_done;
    operation->is_watched = is_alone;
    unlock();
    if (!is_alone) return false;
    int error = PMPI_Wait(&operation->inner, &operation->status);
    lock();
    operation->is_watched = false;
    end_inner(operation, error);
    unlock();
    return true;
}

int finish(struct operation *operation, MPI_Status *status) {
    operation->is_blocking = true;
    for (int turn = 0; !operation->done; turn++) {
        if (!leave_it_to_the_mpi(operation)) pause_for(turn);
        progress();
    }
    tell(operation, status);
    if (operation->error != MPI_SUCCESS && !operation->is_raised)
        PMPI_Comm_call_errhandler(operation->comm, operation->error);
    return operation->error;
}

void tell(const struct operation *operation, MPI_Status *status) {
    if (status == MPI_STATUS_IGNORE) return;
    int error = status->MPI_ERROR;
    *status = operation->status;
    status->MPI_ERROR = error;
    PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)operation->bytes);
    PMPI_Status_set_cancelled(status, operation->cancelled);
}

// The request that a user has of an operation: a generalised one, which the MPI waits for and frees as any
// other.

static int query_request(void *operation, MPI_Status *status) {
    tell(operation, status);
    return MPI_SUCCESS;
}

static int free_request(void *operation) {
    free(operation);
    return MPI_SUCCESS;
}

// A send is not cancelled: the receiver may have word of it.
void cancel(struct operation *operation) {
    lock();
    if (operation->kind == RECEIVE && !operation->inner_done) PMPI_Cancel(&operation->inner);
    unlock();
}

static int cancel_request(void *operation, int is_complete) {
    if (!is_complete) cancel(operation);
    return MPI_SUCCESS;
}

int start_request(struct operation **operation, MPI_Request *request) {
    *operation = calloc(1, sizeof **operation);
    if (*operation == NULL) return MPI_ERR_NO_MEM;
    int error = PMPI_Grequest_start(query_request, free_request, cancel_request, *operation, request);
    if (error != MPI_SUCCESS)
        free(*operation);
    else
        (*operation)->handle = *request;
    return error;
}

void drop_request(MPI_Request *request) {
    PMPI_Grequest_complete(*request);
    PMPI_Request_free(request);
}

bool free_later(MPI_Request request) {
    bool found = false;
    lock();
    for (struct operation *operation = first; operation != NULL; operation = operation->next) {
        if (operation->handle == request) found = operation->is_freed = true;
    }
    unlock();
    return found;
}
