// Control messages between the ranks of a communicator, and calls of the MPI in which all ranks wait for each
// other.
//
// If all ranks are on one node, the control messages of a collective call from GPU to GPU use slots in shared
// memory: the MPI takes longer, and in isolated containers, where it uses the network, many times as long.
// The ranks agree on a slot when they first exchange control messages on a communicator, which they do
// collectively and in the same order. The slot is an attribute of the communicator and freed with it.
// Otherwise control messages use MPI_Alltoall.
//
// A rank that waits for control messages makes progress on operations in flight, including those of the MPI:
// another rank may enter this call only when one of those has been received.

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../operation/operation.h"
#include "collective.h"

// Attempts of the agreement: other threads may take a free slot.
enum { ATTEMPTS = 4 };

// Rounds of a wait: spinning, then yielding, then sleeping. The MPI makes progress in each of so many.
enum { SPINNING = 300, YIELDING = 20000, BETWEEN_PROGRESS = 16, SLEEP_NS = 20000 };

struct control {
    // Null if control messages use the MPI.
    struct causeway_comm_control *open;
    uint32_t slot;
};

// Slots in use by communicators of this process, and a number above all generations that they have had.
static bool is_slot_used[CAUSEWAY_COMM_CONTROL_SLOTS];
static uint32_t next_generation = 1;
static int key = MPI_KEYVAL_INVALID;

static void drop_control(struct control *control) {
    if (control->open != NULL) {
        causeway_comm_close_control(control->open);
        lock();
        is_slot_used[control->slot] = false;
        unlock();
    }
    free(control);
}

static int delete_control(MPI_Comm comm, int which, void *control, void *unused) {
    (void)comm, (void)which, (void)unused;
    drop_control(control);
    return MPI_SUCCESS;
}

void free_world_control(void) {
    delete_world_attribute(key);
}

// Reserves a slot that is free at all ranks. Whether this rank could.
static bool reserve(uint32_t slot, uint32_t generation) {
    lock();
    bool is_reserved = !is_slot_used[slot];
    is_slot_used[slot] = true;
    if (next_generation <= generation) next_generation = generation + 1;
    unlock();
    return is_reserved;
}

static void unreserve(uint32_t slot) {
    lock();
    is_slot_used[slot] = false;
    unlock();
}

static bool are_local(const struct members *members) {
    bool are = true;
    for (uint32_t at = 0; at < members->count; at++)
        are &= at == members->rank || causeway_comm_is_local(members->ranks[at]);
    return are;
}

// Finds a slot that is free at all ranks, with a generation that none of them has had; whether there is one.
// The next attempt may find another one.
static int find_free(MPI_Comm comm, uint32_t *slot, uint32_t *generation, bool *is_there) {
    long state[CAUSEWAY_COMM_CONTROL_SLOTS + 1];
    lock();
    for (int at = 0; at < CAUSEWAY_COMM_CONTROL_SLOTS; at++) state[at] = is_slot_used[at];
    state[CAUSEWAY_COMM_CONTROL_SLOTS] = next_generation;
    unlock();
    int error = PMPI_Allreduce(MPI_IN_PLACE, state, CAUSEWAY_COMM_CONTROL_SLOTS + 1, MPI_LONG, MPI_MAX, comm);
    if (error != MPI_SUCCESS) return error;
    *generation = (uint32_t)state[CAUSEWAY_COMM_CONTROL_SLOTS];
    *slot = 0;
    while (*slot < CAUSEWAY_COMM_CONTROL_SLOTS && state[*slot]) ++*slot;
    *is_there = *slot < CAUSEWAY_COMM_CONTROL_SLOTS;
    return MPI_SUCCESS;
}

// Agrees with all ranks on a slot, or that there is none. The result is the same at all of them.
static int agree(MPI_Comm comm, const struct members *members, struct control *control) {
    // Each rank has tried to reach all others: both ends know what they share.
    int is_remote = !are_local(members);
    int error = PMPI_Allreduce(MPI_IN_PLACE, &is_remote, 1, MPI_INT, MPI_MAX, comm);
    for (int at = 0; at < ATTEMPTS && error == MPI_SUCCESS && !is_remote; at++) {
        uint32_t generation;
        bool is_there = false;
        error = find_free(comm, &control->slot, &generation, &is_there);
        if (error != MPI_SUCCESS || !is_there) break;
        bool is_reserved = reserve(control->slot, generation);
        if (is_reserved)
            control->open = causeway_comm_open_control(members->ranks, members->count, members->rank,
                                                       control->slot, generation);
        // What a rank lacks: the slot, or memory shared with another rank.
        int missing[] = {!is_reserved, is_reserved && control->open == NULL};
        error = PMPI_Allreduce(MPI_IN_PLACE, missing, 2, MPI_INT, MPI_MAX, comm);
        if (error == MPI_SUCCESS && !missing[0] && !missing[1]) return MPI_SUCCESS;
        causeway_comm_close_control(control->open);
        control->open = NULL;
        if (is_reserved) unreserve(control->slot);
        if (missing[1]) break;
    }
    return error;
}

// All ranks of the communicator call this collectively, if the slot is not known yet.
static int control_of(MPI_Comm comm, struct control **control) {
    if (find_attribute(comm, &key, delete_control, control)) return MPI_SUCCESS;
    const struct members *members = members_of(comm);
    *control = calloc(1, sizeof **control);
    if (*control == NULL) abort();
    int error = members->is_supported ? agree(comm, members, *control) : MPI_SUCCESS;
    if (error == MPI_SUCCESS) error = PMPI_Comm_set_attr(comm, key, *control);
    if (error != MPI_SUCCESS) drop_control(*control);
    return error;
}

static void pause_and_progress(uint64_t round) {
    if (round % BETWEEN_PROGRESS == BETWEEN_PROGRESS - 1) {
        int flag;
        progress();
        // The MPI makes progress in any call; this one waits for no message.
        PMPI_Iprobe(0, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
    if (round < SPINNING) return;
    if (round < YIELDING) {
        sched_yield();
        return;
    }
    struct timespec some = {0, SLEEP_NS};
    nanosleep(&some, NULL);
}

int exchange_control(void *context, const void *out, void *in, uint64_t bytes) {
    MPI_Comm comm = *(MPI_Comm *)context;
    struct control *control;
    int error = control_of(comm, &control);
    if (error != MPI_SUCCESS) return error;
    // All ranks use the blocking call, since it does not match the other form.
    if (control->open == NULL || bytes > CAUSEWAY_COMM_CONTROL_BYTES)
        return PMPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, comm);
    int is_complete = 0;
    for (uint64_t round = 0; is_complete == 0; round++) {
        is_complete = causeway_comm_exchange_control(control->open, out, in, bytes);
        if (is_complete == 0) pause_and_progress(round);
    }
    if (is_complete > 0) return MPI_SUCCESS;
    fprintf(stderr, "causeway: %s\n", causeway_comm_error());
    return MPI_ERR_OTHER;
}

// Collective calls that move none of the program's data. This rank may wait in them for one that waits for
// the end of a copy from it, which this rank makes: so that copy is completed first.

#define COLLECTIVE(name, parameters, arguments)               \
    EXPORT int MPI_##name parameters {                        \
        bool has_entered = enter_mpi();                       \
        return leave_mpi(has_entered, PMPI_##name arguments); \
    }

COLLECTIVE(Comm_dup, (MPI_Comm c, MPI_Comm *n), (c, n))
COLLECTIVE(Comm_dup_with_info, (MPI_Comm c, MPI_Info i, MPI_Comm *n), (c, i, n))
COLLECTIVE(Comm_create, (MPI_Comm c, MPI_Group g, MPI_Comm *n), (c, g, n))
COLLECTIVE(Comm_create_group, (MPI_Comm c, MPI_Group g, int tag, MPI_Comm *n), (c, g, tag, n))
COLLECTIVE(Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *n), (c, color, key, n))
COLLECTIVE(Comm_split_type, (MPI_Comm c, int kind, int key, MPI_Info i, MPI_Comm *n), (c, kind, key, i, n))
COLLECTIVE(Intercomm_create, (MPI_Comm c, int leader, MPI_Comm peers, int other, int tag, MPI_Comm *n),
           (c, leader, peers, other, tag, n))
COLLECTIVE(Intercomm_merge, (MPI_Comm c, int high, MPI_Comm *n), (c, high, n))
COLLECTIVE(Cart_create, (MPI_Comm c, int d, const int s[], const int p[], int reorder, MPI_Comm *n),
           (c, d, s, p, reorder, n))
COLLECTIVE(Cart_sub, (MPI_Comm c, const int d[], MPI_Comm *n), (c, d, n))
COLLECTIVE(Graph_create, (MPI_Comm c, int k, const int x[], const int e[], int reorder, MPI_Comm *n),
           (c, k, x, e, reorder, n))
COLLECTIVE(Dist_graph_create,
           (MPI_Comm c, int k, const int s[], const int g[], const int d[], const int w[], MPI_Info i,
            int reorder, MPI_Comm *n),
           (c, k, s, g, d, w, i, reorder, n))
COLLECTIVE(Dist_graph_create_adjacent,
           (MPI_Comm c, int k, const int s[], const int v[], int l, const int d[], const int w[], MPI_Info i,
            int reorder, MPI_Comm *n),
           (c, k, s, v, l, d, w, i, reorder, n))
