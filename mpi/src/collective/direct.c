// Collective calls from GPU to GPU among ranks that reach each other, and the ranks of a communicator in the
// job.
//
// All ranks must decide the same, by what all of them know of a call. Where no rank knows how long a call is
// for the others, they agree on that first.

#include <stdlib.h>

#include "collective.h"
#include "two_level.h"

// Ranks of a communicator in the job.

static int forget_members(MPI_Comm comm, int key, void *members, void *unused) {
    (void)comm, (void)key, (void)unused;
    free(members);
    return MPI_SUCCESS;
}

static struct members *find_members(MPI_Comm comm) {
    int is_inter = 1, rank = 0, count = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &count);
    struct members *members = calloc(1, sizeof *members + (size_t)count * sizeof *members->ranks);
    if (members == NULL) abort();
    members->is_supported = !is_inter && count > 1;
    members->rank = (uint32_t)rank;
    members->count = (uint32_t)count;
    for (int at = 0; at < count && members->is_supported; at++) {
        int of_job = job_rank(comm, at);
        members->ranks[at] = (uint32_t)of_job;
        members->is_supported = of_job >= 0;
    }
    return members;
}

struct members *members_of(MPI_Comm comm) {
    static int key = MPI_KEYVAL_INVALID;
    struct members *members = NULL;
    lock();
    if (!find_attribute(comm, &key, forget_members, &members)) {
        members = find_members(comm);
        PMPI_Comm_set_attr(comm, key, members);
    }
    unlock();
    return members;
}

// The sum of the bytes of all counts of a side; 0 if one is invalid, which the MPI reports.
static uint64_t total_bytes(const struct call *call, const struct side *side, uint32_t ranks) {
    MPI_Count count = 0;
    for (uint32_t at = 0; at < ranks; at++) {
        MPI_Count more = count_at(call, side, (int)at);
        if (more < 0) return 0;
        count += more;
    }
    return bytes_of(count, side->type);
}

uint64_t bytes_known_to_all(const struct call *call, const struct members *members) {
    const struct side *in = &call->in, *out = &call->out;
    bool is_root = call->root == (int)members->rank;
    // The root may work in place, and the other ranks need not pass the counts of the root.
    bool is_sent = pattern_of(call) == GATHER ? !is_root : pattern_of(call) == SCATTER && is_root;
    switch (length_of_call(call)) {
    case OF_COUNT: return bytes_of(in->count, in->type);
    case OF_SUM: return total_bytes(call, in, members->count);
    case OF_EACH: return bytes_of(in->count * (MPI_Count)members->count, in->type);
    case OF_BLOCK: return is_sent ? bytes_of(out->count, out->type) : bytes_of(in->count, in->type);
    case OF_IRREGULAR:
    case OF_UNKNOWN: break;
    }
    return 0;
}

// Whether no rank knows the length of a call for the others (MPI_Alltoallv and its like).
static bool is_irregular(const struct call *call) {
    return length_of_call(call) == OF_IRREGULAR;
}

// Whether such calls are supported from GPU to GPU.
static bool supports_direct(const struct call *call) {
    return pattern_of(call) != NEIGHBORS && pattern_of(call) != LOCAL;
}

// Kernels support the padding of pairs.
static int reduce(const struct call *call, const struct causeway_comm_group *group) {
    const void *from = call->out.address == MPI_IN_PLACE ? call->in.address : call->out.address;
    void *to = call->in.address;
    int element = element_of(call->in.type), operation = operation_of(call->op);
    uint64_t count = (uint64_t)call->in.count, counts[group->ranks];
    if (call->what == COLLECTIVE_Allreduce)
        return causeway_comm_allreduce(group, from, to, count, element, operation);
    if (call->what == COLLECTIVE_Reduce)
        return causeway_comm_reduce(group, from, to, count, element, operation, (uint32_t)call->root);
    if (call->what == COLLECTIVE_Scan || call->what == COLLECTIVE_Exscan)
        return causeway_comm_scan(group, from, to, count, element, operation,
                                  call->what == COLLECTIVE_Exscan);
    bool is_list = call->what == COLLECTIVE_Reduce_scatter;
    for (uint32_t at = 0; at < group->ranks; at++)
        counts[at] = is_list ? (uint64_t)count_at(call, &call->in, (int)at) : count;
    return causeway_comm_reduce_scatter(group, from, to, counts, element, operation);
}

// Calls 1, 2, 4, 8 and so on: those of a program without GPUs on which the ranks agree.
static bool is_power_of_two(uint64_t call) {
    return (call & (call - 1)) == 0;
}

// Whether all ranks can make an irregular call, and it is long for one of them: by agreement.
static int agree_on_irregular(const struct call *call, struct members *members, const struct moves *moves,
                              bool *all_support, int *reason) {
    *all_support = false;
    members->irregular_calls++;
    bool is_agreement_due = members->has_gpus || is_power_of_two(members->irregular_calls);
    *reason = CAUSEWAY_COMM_CALL_NO_AGREEMENT;
    if (!is_agreement_due) return MPI_SUCCESS;
    struct moves_summary summary = summarize_moves(moves, members->count);
    // The maximum over all ranks.
    long facts[] = {summary.in_host, summary.on_gpu, (long)(summary.bytes >> 1)};
    int error = PMPI_Allreduce(MPI_IN_PLACE, facts, 3, MPI_LONG, MPI_MAX, call->comm);
    members->has_gpus |= facts[1] != 0;
    bool is_long = (uint64_t)facts[2] >= causeway_comm_direct_bytes() >> 1;
    *all_support = !facts[0] && facts[1] && is_long;
    *reason = is_long ? CAUSEWAY_COMM_CALL_RANK : CAUSEWAY_COMM_CALL_SHORT;
    return error;
}

static int exchange(const struct call *call, const struct causeway_comm_group *group, struct members *members,
                    uint64_t bytes, struct choice *choice, int *error) {
    struct causeway_comm_range sends[group->ranks], receives[group->ranks];
    struct moves moves = {sends, receives};
    bool all_support = true;
    int reason;
    lay_out_moves(call, group->rank, group->ranks, &moves);
    if (is_irregular(call)) *error = agree_on_irregular(call, members, &moves, &all_support, &reason);
    if (*error != MPI_SUCCESS) return 0;
    if (!all_support) choice->algorithm = reason;
    return all_support ? causeway_comm_exchange(group, sends, receives, bytes) : 1;
}

// Two-level calls have more steps in which ranks wait for each other, some of them over the network, and gain
// most by transferring one chunk while they copy another (docs/lab/2026-11-27-hosts.md).
enum { INTER_NODE_FACTOR = 16 };

static bool is_short_inter_node(const struct call *call, const struct members *members, uint64_t bytes) {
    uint64_t all = call->what == COLLECTIVE_Allgather ? bytes * members->count : bytes;
    return all / INTER_NODE_FACTOR < causeway_comm_direct_bytes();
}

// Reductions of so many times less than the threshold of other calls are made if the ranks map each other's
// memory: one kernel takes 18 us on two H100 from 8 B to 1 MiB, and copies to the host and back take 20 to 50
// us (2026-11-27).
enum { SHORT_REDUCTION_FRACTION = 16 };

// Whether a short reduction is tried: each one if the last one that was tried was made, and else calls 1, 2,
// 4, 8 and every 16th, so that programs without GPUs hardly pay for it. The same at all ranks.
static bool tries_short_reduction(struct members *members) {
    if (members->maps_peers) return true;
    uint64_t call = ++members->short_reductions;
    return is_power_of_two(call) || call % 16 == 0;
}

// Records why the MPI makes a call.
static bool fall_back(struct choice *choice, int reason) {
    choice->algorithm = reason;
    return false;
}

bool run_on_gpus(const struct call *call, struct choice *choice, int *error) {
    bool is_reduction = pattern_of(call) == REDUCTION;
    *choice = (struct choice){.algorithm = CAUSEWAY_COMM_CALL_UNSUPPORTED};
    if (!in_job || !supports_direct(call)) return false;
    struct members *members = members_of(call->comm);
    if (!members->is_supported) return fall_back(choice, CAUSEWAY_COMM_CALL_GROUP);
    if (has_root(call) && (call->root < 0 || call->root >= (int)members->count)) return false;
    uint64_t bytes = bytes_known_to_all(call, members), threshold = causeway_comm_direct_bytes();
    bool is_short = !is_irregular(call) && bytes < threshold;
    if (is_short && (bytes == 0 || !is_reduction || bytes < threshold / SHORT_REDUCTION_FRACTION))
        return fall_back(choice, CAUSEWAY_COMM_CALL_SHORT);
    // The operation and the type are the same at all ranks.
    if (is_reduction && !causeway_comm_reduces(element_of(call->in.type), operation_of(call->op)))
        return fall_back(choice, CAUSEWAY_COMM_CALL_NO_KERNEL);
    *error = MPI_SUCCESS;
    if (!is_irregular(call)) {
        struct node_groups *groups;
        *error = node_groups_of(call->comm, members, &groups);
        if (*error != MPI_SUCCESS) return true;
        if (is_short && (groups->count > 1 || !tries_short_reduction(members)))
            return fall_back(choice, CAUSEWAY_COMM_CALL_SHORT);
        choice->hosts = groups->count;
        choice->is_leader = groups->is_leader;
        bool is_two_level = supports_two_level(call, groups);
        if (is_two_level && is_short_inter_node(call, members, bytes))
            return fall_back(choice, CAUSEWAY_COMM_CALL_SHORT_INTER_NODE);
        if (is_two_level) return run_two_level(call, members, groups, bytes, &choice->algorithm, error);
        // No rank could reach those of other nodes.
        if (groups->count > 1 && !groups->has_network)
            return fall_back(choice, CAUSEWAY_COMM_CALL_INTER_NODE);
    }
    MPI_Comm comm = call->comm;
    struct causeway_comm_group group = {
        .rank = members->rank,
        .ranks = members->count,
        .members = members->ranks,
        .exchange = exchange_control,
        .context = &comm,
        .fetched_from = threshold,
    };
    choice->algorithm = CAUSEWAY_COMM_CALL_DIRECT;
    int status = is_reduction ? reduce(call, &group) : exchange(call, &group, members, bytes, choice, error);
    if (is_short) {
        members->maps_peers = status <= 0;
        if (members->maps_peers) members->short_reductions = 0;
    }
    if (status > 0 && choice->algorithm == CAUSEWAY_COMM_CALL_DIRECT)
        *choice = (struct choice){.algorithm = is_short ? CAUSEWAY_COMM_CALL_SHORT : CAUSEWAY_COMM_CALL_RANK};
    if (status < 0) *error = raise_error(call->comm, name_of(call), causeway_comm_error());
    return status <= 0;
}
