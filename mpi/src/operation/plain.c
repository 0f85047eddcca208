// Receives into memory of the host that are the MPI's own, so that a program without GPUs pays for no operation of
// ours.
//
// Such a receive may bring word of a message on a GPU all the same, from a rank that has one: whoever ends it looks
// for that. Only then the message is fetched, so there are such receives until this process has a driver or has got
// such a word.

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

// One that is under way.
struct plain {
    MPI_Request request;
    MPI_Comm comm;
    void *user;
    uint64_t room;
    // What the MPI was given where the user's memory has no room for a descriptor.
    unsigned char bytes[CAUSEWAY_COMM_DESCRIPTOR];
    // It has ended, in a call that lets the request be.
    bool is_ended;
    int error;
    MPI_Status status;
    struct plain *next;
};

int plain_count;
// Word of a message on a GPU has come.
static bool have_come;

// By request, in chains; and those that are not used.
enum { BITS = 10 };
static struct plain *chains[1 << BITS], *unused;

static struct plain **chain_of(MPI_Request request) {
    uint64_t number = (uint64_t)(uintptr_t)request;
    return &chains[number * 0x9e3779b97f4a7c15 >> (64 - BITS)];
}

static struct plain *take_unused(void) {
    struct plain *plain = unused;
    if (plain != NULL)
        unused = plain->next;
    else if ((plain = malloc(sizeof *plain)) == NULL)
        abort();
    return plain;
}

struct plain *plain_with(MPI_Request request) {
    if (plain_count == 0) return NULL;
    lock();
    struct plain *plain = *chain_of(request);
    while (plain != NULL && plain->request != request) plain = plain->next;
    unlock();
    return plain;
}

void drop_plain(struct plain *plain) {
    lock();
    struct plain **at = chain_of(plain->request);
    while (*at != plain) at = &(*at)->next;
    *at = plain->next;
    plain->next = unused;
    unused = plain;
    __atomic_sub_fetch(&plain_count, 1, __ATOMIC_RELAXED);
    unlock();
}

static bool is_short(const struct plain *plain) {
    return plain->room < CAUSEWAY_COMM_DESCRIPTOR;
}

// The size of a type of the MPI's own without gaps, or -1: of others the MPI is asked at length. What is known of one
// holds for good, since it cannot be freed.
static int size_of(MPI_Datatype type) {
    enum { MOST_KNOWN = 16 };
    static struct {
        MPI_Datatype type;
        int size;
    } known[MOST_KNOWN];
    static int count;
    if (type == MPI_BYTE) return 1;
    for (int at = 0; at < count; at++)
        if (known[at].type == type) return known[at].size;
    if (type == MPI_DATATYPE_NULL || !is_predefined(type)) return -1;
    int size = 0;
    MPI_Aint lower, extent;
    PMPI_Type_size(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    if (lower != 0 || extent != size) size = -1;
    if (count < MOST_KNOWN) {
        known[count].type = type;
        known[count++].size = size;
    }
    return size;
}

// The bytes of a receive that may be one, or -1.
static long long room_of(const void *buffer, MPI_Count count, MPI_Datatype type, int source, MPI_Comm comm) {
    if (!in_job || have_come || source == MPI_PROC_NULL || comm == MPI_COMM_NULL) return -1;
    if (count < 0 || (buffer == NULL && count > 0)) return -1;
    // Where several threads call, one may wait in the MPI for what another one has to look at.
    if (may_have_threads() || causeway_comm_has_driver()) return -1;
    int size = size_of(type);
    if (size < 0) return -1;
    return count <= INT_MAX / (size > 0 ? size : 1) ? (long long)count * size : -1;
}

bool start_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request, int *error) {
    long long room = room_of(buffer, count, type, source, comm);
    if (room < 0) return false;
    // Another thread's probe must not come between the look into the list and the receive.
    lock();
    bool is_kept = has_kept();
    if (!is_kept) {
        struct plain *plain = take_unused();
        plain->user = buffer;
        plain->room = (uint64_t)room;
        plain->comm = comm;
        plain->is_ended = false;
        bool has_room = !is_short(plain);
        *error = PMPI_Irecv(has_room ? buffer : plain->bytes, has_room ? (int)room : CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE,
                            source, tag, comm, request);
        struct plain **first = *error == MPI_SUCCESS ? chain_of(*request) : &unused;
        plain->request = *request;
        plain->next = *first;
        *first = plain;
        if (*error == MPI_SUCCESS) __atomic_add_fetch(&plain_count, 1, __ATOMIC_RELAXED);
    }
    unlock();
    return !is_kept;
}

// What has come, where more is to be done than the MPI has: a descriptor, or bytes for less room than one has.
static int arrive_plain(const struct plain *plain, MPI_Status *status) {
    struct operation operation = {.kind = RECEIVE, .is_blocking = true, .contiguous = true, .comm = plain->comm};
    operation.handle = MPI_REQUEST_NULL;
    operation.user = plain->user;
    operation.room = plain->room;
    operation.memory = is_short(plain) ? (void *)plain->bytes : NULL;
    operation.status = *status;
    end_inner(&operation, MPI_SUCCESS);
    tell(&operation, status);
    return operation.error;
}

static int end(const struct plain *plain, MPI_Status *status) {
    int length = 0;
    PMPI_Get_count(status, MPI_BYTE, &length);
    if (length != CAUSEWAY_COMM_DESCRIPTOR && (!is_short(plain) || (uint64_t)length <= plain->room)) {
        int cancelled = 0;
        if (!is_short(plain) || length <= 0) return MPI_SUCCESS;
        PMPI_Test_cancelled(status, &cancelled);
        if (!cancelled) memcpy(plain->user, plain->bytes, (size_t)length);
        return MPI_SUCCESS;
    }
    return arrive_plain(plain, status);
}

int end_plain(struct plain *plain, MPI_Status *status) {
    int error = plain->error;
    if (plain->is_ended)
        copy_status(&plain->status, status);
    else
        error = end(plain, status);
    drop_plain(plain);
    return error;
}

void look_at_plain(struct plain *plain, int *flag, MPI_Status *status) {
    MPI_Status found;
    if (!plain->is_ended) {
        int has_ended = 0;
        if (PMPI_Request_get_status(plain->request, &has_ended, &found) != MPI_SUCCESS || !has_ended) {
            *flag = 0;
            return;
        }
        plain->error = end(plain, &found);
        plain->status = found;
        plain->is_ended = true;
    }
    *flag = 1;
    copy_status(&plain->status, status);
}

void look_at_plains(void) {
    lock();
    for (int chain = 0; chain < 1 << BITS && plain_count > 0; chain++)
        for (struct plain *plain = chains[chain]; plain != NULL; plain = plain->next) {
            int flag;
            look_at_plain(plain, &flag, MPI_STATUS_IGNORE);
        }
    unlock();
}

void note_descriptor(void) {
    have_come = true;
}

bool receive_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status, int *error) {
    long long room = under_way == 0 ? room_of(buffer, count, type, source, comm) : -1;
    // In a call of the MPI's nobody looks at the others.
    if (room < 0 || plain_count > 0 || has_kept()) return false;
    struct plain plain = {.user = buffer, .room = (uint64_t)room, .comm = comm};
    MPI_Status found;
    bool has_room = !is_short(&plain);
    *error = PMPI_Recv(has_room ? buffer : plain.bytes, has_room ? (int)room : CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE,
                       source, tag, comm, &found);
    if (*error != MPI_SUCCESS) return true;
    *error = end(&plain, &found);
    copy_status(&found, status);
    if (*error != MPI_SUCCESS) PMPI_Comm_call_errhandler(comm, *error);
    return true;
}

int free_plain(struct plain *plain, MPI_Request *request) {
    if (plain->is_ended) {
        drop_plain(plain);
        return PMPI_Request_free(request);
    }
    // What is to be done at its end an operation does, which keeps its memory.
    struct operation *operation;
    MPI_Request handle;
    int error = start_request(&operation, &handle);
    if (error != MPI_SUCCESS) return error;
    operation->kind = RECEIVE;
    operation->comm = plain->comm;
    operation->user = plain->user;
    operation->contiguous = true;
    operation->room = plain->room;
    operation->type = MPI_BYTE;
    operation->count = (MPI_Count)plain->room;
    operation->memory = is_short(plain) ? plain->bytes : NULL;
    operation->inner = *request;
    add_operation(operation);
    free_later(handle);
    lock();
    struct plain **at = chain_of(plain->request);
    while (*at != plain) at = &(*at)->next;
    *at = plain->next;
    __atomic_sub_fetch(&plain_count, 1, __ATOMIC_RELAXED);
    unlock();
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

bool is_quick(enum mode mode, MPI_Count count, MPI_Datatype type) {
    // MPIs send so many bytes without waiting for their receiver.
    enum { EAGER = 2048 };
    if (plain_count == 0) return true;
    if (may_have_threads() || mode == SYNCHRONOUS) return false;
    int size = size_of(type);
    return size >= 0 && count <= EAGER / (size > 0 ? size : 1);
}

MPI_Comm comm_of_plain(const struct plain *plain) {
    return plain->comm;
}
