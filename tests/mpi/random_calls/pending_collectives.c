// Non-blocking collective calls that begin before the messages and end after them.

#include <stdlib.h>

#include "random_calls.h"

enum { PENDING = 3 };
enum call { BARRIER, REDUCE, BROADCAST, EXCHANGE, CALLS };

struct pending {
    int count;
    struct {
        enum call call;
        uint64_t seed;
        int root;
        struct numbers in, out;
    } list[PENDING];
    MPI_Request requests[PENDING];
};

struct pending *start_collectives(struct group *group) {
    struct pending *pending = calloc(1, sizeof *pending);
    pending->count = (int)below(group, PENDING + 1);
    for (int at = 0; at < pending->count; at++) {
        size_t count = below(group, at == 0 ? 30000 : 2000), size = (size_t)group->ranks;
        enum call call = pending->list[at].call = (enum call)below(group, CALLS);
        pending->list[at].root = (int)below(group, size);
        pending->list[at].seed = below(group, 1000);
        struct numbers in = take(some_memory(group), call == EXCHANGE ? count * size : count);
        struct numbers out = take(some_memory(group), call == EXCHANGE ? count * size : count);
        if (call != BROADCAST || group->rank == pending->list[at].root)
            fill_with(&in, group->rank, pending->list[at].seed);
        MPI_Request *request = &pending->requests[at];
        int elements = (int)count;
        switch (call) {
        case BARRIER: MPI_Ibarrier(group->comm, request); break;
        case REDUCE:
            MPI_Iallreduce(in.there, out.there, elements, MPI_INT, MPI_MAX, group->comm, request);
            break;
        case BROADCAST:
            MPI_Ibcast(in.there, elements, MPI_INT, pending->list[at].root, group->comm, request);
            break;
        default:
            MPI_Ialltoall(in.there, elements, MPI_INT, out.there, elements, MPI_INT, group->comm, request);
        }
        pending->list[at].in = in;
        pending->list[at].out = out;
    }
    return pending;
}

// Each rank has sent its numbers to all, so many to each.
static void check_exchange(struct group *group, struct numbers *out, uint64_t seed) {
    size_t each = out->count / (size_t)group->ranks;
    read_in(out);
    for (size_t at = 0; at < out->count; at++) {
        int from = (int)(at / each);
        int expected = value(from, (size_t)group->rank * each + at % each, seed);
        if (out->here[at] == expected) continue;
        is_wrong(group, "MPI_Ialltoall: number %zu of %zu (%s) is %d, not %d", at, out->count,
                 gpu_name(out->memory), out->here[at], expected);
        return;
    }
}

void end_collectives(struct group *group, struct pending *pending) {
    if (below(group, 2))
        MPI_Waitall(pending->count, pending->requests, MPI_STATUSES_IGNORE);
    else
        for (int at = pending->count - 1; at >= 0; at--) MPI_Wait(&pending->requests[at], MPI_STATUS_IGNORE);
    for (int at = 0; at < pending->count; at++) {
        uint64_t seed = pending->list[at].seed;
        struct numbers *in = &pending->list[at].in, *out = &pending->list[at].out;
        switch (pending->list[at].call) {
        case BARRIER: break;
        case REDUCE: must_be(group, out, group->ranks - 1, seed, "MPI_Iallreduce"); break;
        case BROADCAST: must_be(group, in, pending->list[at].root, seed, "MPI_Ibcast"); break;
        default: check_exchange(group, out, seed);
        }
        give_back(in);
        give_back(out);
    }
    free(pending);
}
