// What becomes of a message that has come: the payload itself, or word of one that lies on a GPU.

#include <string.h>
#include <sys/mman.h>

#include "operation.h"

// Brings bytes of the host into the user's memory. The program may have freed the type.
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
    if (!operation->is_mixed) {
        copy_runs_on_host(operation->runs, operation->user, (void *)from, bytes, false);
        return MPI_SUCCESS;
    }
    const char *message = copy_runs_anywhere(operation->runs, operation->user, (void *)from, bytes, false);
    return message == NULL ? MPI_SUCCESS : error_code("a receive into a GPU", message);
}

// For a receive that nobody waits for, the fetch may be under way when this returns.
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
        if (to == NULL) return error_code("a receive", "memory to fetch the message into cannot be had");
    }
    int error = MPI_SUCCESS;
    if (causeway_comm_fetch(descriptor, to, operation->on_gpu, operation->capacity, operation->is_blocking) != 0)
        error = error_code("a receive from a GPU", causeway_comm_error());
    else if (payload > operation->capacity)
        error = MPI_ERR_TRUNCATE;
    else if (other != NULL)
        error = deliver(operation, other, payload);
    if (other != NULL) munmap(other, payload + 1);
    return error;
}

// MPICH tells of a message that ends within an element, where it takes elements with gaps apart; Open MPI
// does not.
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
        // What is fetched is counted by that.
        if (operation->sender > 0) causeway_comm_count_operation((uint32_t)operation->sender - 1, operation->is_blocking);
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
