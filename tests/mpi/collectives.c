// Every collective call with memory of all kinds, compared with the same call on memory of the host by the
// MPI itself (PMPI_*).
//
// collectives SEED STRIDE LONGEST: all ranks make the same plans from the seed. Of all combinations of a
// reduction, a type and an operation every STRIDE-th is tried, and as many calls that move data.
// collectives SEED 0 LONGEST COUNT: so many calls of those that are made in two levels between hosts.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "gpu.h"

enum { GUARD = 32, MOST_RANKS = 64 };

enum what {
    REDUCE,
    ALLREDUCE,
    SCAN,
    EXSCAN,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    REDUCE_LOCAL,
    REDUCTIONS,
    BCAST = REDUCTIONS,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    NEIGHBOR_ALLGATHER,
    NEIGHBOR_ALLGATHERV,
    NEIGHBOR_ALLTOALL,
    NEIGHBOR_ALLTOALLV,
    NEIGHBOR_ALLTOALLW,
    WHATS
};
static const char *const NAMES[] = {
    "Reduce",
    "Allreduce",
    "Scan",
    "Exscan",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Reduce_local",
    "Bcast",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
};

enum form { HOST_FORM, BLOCKING, LATER, OFTEN, LARGE, LARGE_LATER, LARGE_OFTEN, FORMS };

// A memory region with bytes behind it that must stay.
struct region {
    enum memory kind;
    // Bytes in front of it, so that it does not begin where its allocation does.
    size_t bytes, shift;
    unsigned char *before, *expected, *address;
};

struct lists {
    int counts[MOST_RANKS], places[MOST_RANKS];
    MPI_Count large_counts[MOST_RANKS];
    MPI_Aint large_places[MOST_RANKS];
    MPI_Datatype types[MOST_RANKS];
};

// Any mix; on GPUs, as calls that go from GPU to GPU need it; there, and of kinds that others can open.
enum place { ANYWHERE, ON_GPUS, FOR_ALL_KERNELS };

struct plan {
    enum what what;
    enum form form;
    const struct type *type;
    const struct operation *operation;
    MPI_Comm comm;
    const char *comm_name;
    int count, root, in_place;
    // Where all ranks have their memory.
    enum place place;
    // This rank's.
    struct lists out, in;
    struct region sent, received;
};

// Of those calls alone, blocking ones.
static bool only_levels;
static uint64_t common_state, own_state;
static int rank, ranks;
static size_t longest;
static MPI_Comm reversed, half, inter, cart, graph;

static uint64_t advance(uint64_t *state) {
    // splitmix64 (Steele, Lea and Flood, 2014).
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static uint64_t own(void) {
    return advance(&own_state);
}

// The same at all ranks.
static int common(int limit) {
    return (int)(advance(&common_state) % (uint64_t)limit);
}

static MPI_Aint extent_of(const struct type *type) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type->type, &lower, &extent);
    return extent;
}

static void fill_region(struct region *region, size_t elements, const struct plan *plan) {
    region->bytes = elements * (size_t)extent_of(plan->type) + GUARD;
    region->before = malloc(region->bytes);
    region->expected = malloc(region->bytes);
    fill_elements(region->before, elements, plan->type, plan->operation, own);
    memset(region->before + region->bytes - GUARD, 0x5a, GUARD);
    memcpy(region->expected, region->before, region->bytes);
    region->kind = (enum memory)(own() % MEMORIES);
    if (own() % 3 == 0) region->kind = DEVICE;
    if (plan->place == ON_GPUS) region->kind = (enum memory[]){DEVICE, POOL, EXPORTABLE}[own() % 3];
    if (plan->place == FOR_ALL_KERNELS) region->kind = (enum memory[]){DEVICE, EXPORTABLE}[own() % 2];
    region->shift = own() % 3 * (size_t)extent_of(plan->type);
    region->address = (unsigned char *)gpu_take(region->kind, region->shift + region->bytes) + region->shift;
    gpu_copy(region->address, region->before, region->bytes);
}

static void drop_region(struct region *region) {
    gpu_give_back(region->kind, region->address - region->shift, region->shift + region->bytes);
    free(region->before);
    free(region->expected);
}

// Whether a region on a GPU is what it should be; behind it nothing has changed.
static int is_right(const struct region *region, const struct plan *plan, size_t skip_from, size_t skip_to) {
    unsigned char *found = malloc(region->bytes);
    gpu_copy(found, region->address, region->bytes);
    size_t extent = (size_t)extent_of(plan->type), at = 0;
    for (; at < region->bytes; at++) {
        if (found[at] == region->expected[at] || (at >= skip_from && at < skip_to)) continue;
        size_t in_element = at % extent, first = plan->type->part, second = plan->type->second_at;
        int in_data = plan->type->class != PAIR || in_element < first ||
                      (in_element >= second && in_element < second + plan->type->second);
        if (plan->type->type == MPI_LONG_DOUBLE) in_data = in_element < 10;
        if (in_data || at >= region->bytes - GUARD) break;
    }
    int right = at == region->bytes;
    if (!right)
        fprintf(stderr, "rank %d: byte %zu of %zu is %d and not %d\n", rank, at, region->bytes, found[at],
                region->expected[at]);
    free(found);
    return right;
}

#define LIST(...) __VA_ARGS__
#if MPI_VERSION >= 4
// The call in a form. What is repeated by a persistent request begins with the same bytes.
static void again(const struct plan *plan, MPI_Request *request) {
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
#ifdef MPICH
    // MPICH 4.0.2 copies what a rank has for itself when the request is made, and never again.
    if (plan->what != BCAST) {
        MPI_Request_free(request);
        return;
    }
#endif
    gpu_copy(plan->sent.address, plan->sent.before, plan->sent.bytes);
    gpu_copy(plan->received.address, plan->received.before, plan->received.bytes);
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    MPI_Request_free(request);
}

#define FOUR(name, lower, arguments, large)                                 \
    case OFTEN:                                                             \
        MPI_##name##_init(arguments, plan->comm, MPI_INFO_NULL, &request);  \
        again(plan, &request);                                              \
        break;                                                              \
    case LARGE: MPI_##name##_c(large, plan->comm); break;                   \
    case LARGE_LATER: MPI_I##lower##_c(large, plan->comm, &request); break; \
    case LARGE_OFTEN:                                                       \
        MPI_##name##_init_c(large, plan->comm, MPI_INFO_NULL, &request);    \
        again(plan, &request);                                              \
        break;
#else
#define FOUR(name, lower, arguments, large)               \
    case OFTEN:                                           \
    case LARGE_OFTEN:                                     \
    case LARGE: MPI_##name(arguments, plan->comm); break; \
    case LARGE_LATER: MPI_I##lower(arguments, plan->comm, &request); break;
#endif
#define CALL(name, lower, arguments, large)                    \
    switch (form) {                                            \
    case HOST_FORM: PMPI_##name(arguments, plan->comm); break; \
    case BLOCKING: MPI_##name(arguments, plan->comm); break;   \
    case LATER:                                                \
        MPI_I##lower(arguments, plan->comm, &request);         \
        break;                                                 \
        FOUR(name, lower, LIST(arguments), LIST(large))        \
    default: break;                                            \
    }                                                          \
    break

static void perform(const struct plan *plan, enum form form, void *out, void *in) {
    const struct lists *o = &plan->out, *i = &plan->in;
    int n = plan->count, root = plan->root;
    MPI_Datatype t = plan->type->type;
    MPI_Op op = plan->operation->op;
    MPI_Request request = MPI_REQUEST_NULL;
    if (plan->in_place) out = MPI_IN_PLACE;
    switch (plan->what) {
    case REDUCE: CALL(Reduce, reduce, LIST(out, in, n, t, op, root), LIST(out, in, n, t, op, root));
    case ALLREDUCE: CALL(Allreduce, allreduce, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case SCAN: CALL(Scan, scan, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case EXSCAN: CALL(Exscan, exscan, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case REDUCE_SCATTER:
        CALL(Reduce_scatter, reduce_scatter, LIST(out, in, i->counts, t, op),
             LIST(out, in, i->large_counts, t, op));
    case REDUCE_SCATTER_BLOCK:
        CALL(Reduce_scatter_block, reduce_scatter_block, LIST(out, in, n, t, op), LIST(out, in, n, t, op));
    case REDUCE_LOCAL:
        if (form == HOST_FORM)
            PMPI_Reduce_local(out, in, n, t, op);
        else
            MPI_Reduce_local(out, in, n, t, op);
        break;
    case BCAST: CALL(Bcast, bcast, LIST(in, n, t, root), LIST(in, n, t, root));
    case GATHER: CALL(Gather, gather, LIST(out, n, t, in, n, t, root), LIST(out, n, t, in, n, t, root));
    case GATHERV:
        CALL(Gatherv, gatherv, LIST(out, o->counts[0], t, in, i->counts, i->places, t, root),
             LIST(out, o->counts[0], t, in, i->large_counts, i->large_places, t, root));
    case SCATTER: {
        // In place is what the root receives.
        void *from = form == HOST_FORM ? plan->sent.expected : plan->sent.address;
        void *to = plan->in_place ? MPI_IN_PLACE : in;
        CALL(Scatter, scatter, LIST(from, n, t, to, n, t, root), LIST(from, n, t, to, n, t, root));
    }
    case SCATTERV: {
        void *from = form == HOST_FORM ? plan->sent.expected : plan->sent.address;
        void *to = plan->in_place ? MPI_IN_PLACE : in;
        CALL(Scatterv, scatterv, LIST(from, o->counts, o->places, t, to, i->counts[0], t, root),
             LIST(from, o->large_counts, o->large_places, t, to, i->counts[0], t, root));
    }
    case ALLGATHER: CALL(Allgather, allgather, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case ALLGATHERV:
        CALL(Allgatherv, allgatherv, LIST(out, o->counts[0], t, in, i->counts, i->places, t),
             LIST(out, o->counts[0], t, in, i->large_counts, i->large_places, t));
    case ALLTOALL: CALL(Alltoall, alltoall, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case ALLTOALLV:
        CALL(Alltoallv, alltoallv, LIST(out, o->counts, o->places, t, in, i->counts, i->places, t),
             LIST(out, o->large_counts, o->large_places, t, in, i->large_counts, i->large_places, t));
    case ALLTOALLW:
        CALL(Alltoallw, alltoallw,
             LIST(out, o->counts, o->places, o->types, in, i->counts, i->places, i->types),
             LIST(out, o->large_counts, o->large_places, o->types, in, i->large_counts, i->large_places,
                  i->types));
    case NEIGHBOR_ALLGATHER:
        CALL(Neighbor_allgather, neighbor_allgather, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case NEIGHBOR_ALLGATHERV:
        CALL(Neighbor_allgatherv, neighbor_allgatherv, LIST(out, n, t, in, i->counts, i->places, t),
             LIST(out, n, t, in, i->large_counts, i->large_places, t));
    case NEIGHBOR_ALLTOALL:
        CALL(Neighbor_alltoall, neighbor_alltoall, LIST(out, n, t, in, n, t), LIST(out, n, t, in, n, t));
    case NEIGHBOR_ALLTOALLV:
        CALL(Neighbor_alltoallv, neighbor_alltoallv,
             LIST(out, o->counts, o->places, t, in, i->counts, i->places, t),
             LIST(out, o->large_counts, o->large_places, t, in, i->large_counts, i->large_places, t));
    case NEIGHBOR_ALLTOALLW:
        CALL(Neighbor_alltoallw, neighbor_alltoallw,
             LIST(out, o->counts, o->large_places, o->types, in, i->counts, i->large_places, i->types),
             LIST(out, o->large_counts, o->large_places, o->types, in, i->large_counts, i->large_places,
                  i->types));
    default: break;
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int some_count(void) {
    switch (common(5)) {
    case 0: return common(3);
    case 1: return common(40);
    case 2: return 256 + common(2);
    case 3: return common(3000);
    default: return common((int)longest);
    }
}

// Counts and places of a list: places have gaps, and are in bytes where each block has a type of its own.
static size_t make_lists(struct lists *lists, int peers, const int *counts, MPI_Datatype type, size_t unit) {
    size_t place = 0;
    for (int at = 0; at < peers; at++) {
        place += own() % 3;
        lists->counts[at] = counts[at];
        lists->large_counts[at] = counts[at];
        lists->places[at] = (int)(place * unit);
        lists->large_places[at] = (MPI_Aint)(place * unit);
        lists->types[at] = type;
        place += (size_t)counts[at];
    }
    return place;
}

// How many elements go from one rank to another: the same at both.
static int between(const struct plan *plan, uint64_t salt, int from, int to) {
    uint64_t state = salt + (uint64_t)from * 1000 + (uint64_t)to;
    uint64_t word = advance(&state);
    return word % 4 == 0 ? 0 : (int)(word % (uint64_t)(plan->count + 1));
}

static void choose_comm(struct plan *plan) {
    int is_neighbour = plan->what >= NEIGHBOR_ALLGATHER;
    int choice = common(4);
    plan->comm = is_neighbour ? (choice % 2 ? cart : graph) : MPI_COMM_WORLD;
    plan->comm_name = is_neighbour ? (choice % 2 ? "grid" : "graph") : "world";
    if (is_neighbour || choice == 0) return;
    if (choice == 1) plan->comm = reversed, plan->comm_name = "reversed";
    // In groups of one MPICH 4.0.2 takes MPI_Iallgatherv_c for one without displacements.
    if (choice == 2 && ranks > 3) plan->comm = half, plan->comm_name = "half";
    if (choice == 3 && plan->what != SCAN && plan->what != EXSCAN && plan->what != REDUCE_LOCAL &&
        inter != MPI_COMM_NULL)
        plan->comm = inter, plan->comm_name = "inter";
}

// Lists and regions of this rank.
static void choose_data(struct plan *plan) {
    int me, size, peers, is_inter, is_root, sources[MOST_RANKS], destinations[MOST_RANKS];
    uint64_t salt = advance(&common_state);
    MPI_Comm_rank(plan->comm, &me);
    MPI_Comm_size(plan->comm, &size);
    MPI_Comm_test_inter(plan->comm, &is_inter);
    peers = size;
    if (is_inter) MPI_Comm_remote_size(plan->comm, &peers);
    int root = common(ranks), is_neighbour = plan->what >= NEIGHBOR_ALLGATHER, place = common(4);
    plan->root = root % size;
    is_root = me == plan->root;
    if (is_inter) {
        // The root is one of the even ranks.
        int even = (ranks + 1) / 2;
        root %= even;
        plan->root = rank % 2 ? root : me == root ? MPI_ROOT : MPI_PROC_NULL;
        is_root = plan->root == MPI_ROOT;
    }
    plan->in_place =
        !is_inter && !is_neighbour && place == 0 && plan->what != BCAST && plan->what != REDUCE_LOCAL;
    if (plan->what == REDUCE || (plan->what >= GATHER && plan->what <= SCATTERV)) plan->in_place &= is_root;
#ifdef MPICH
    // MPICH 4.0.2 reads what MPI_IN_PLACE points to, where that is another root than the first rank (its
    // own programs end so, too).
    if (plan->what == REDUCE) plan->in_place &= me == 0;
#endif
    int nsources = peers, ndestinations = peers;
    for (int at = 0; at < peers; at++) sources[at] = destinations[at] = at;
    if (plan->comm == cart) {
        nsources = ndestinations = 4;
        MPI_Cart_shift(cart, 0, 1, &sources[0], &sources[1]);
        MPI_Cart_shift(cart, 1, 1, &sources[2], &sources[3]);
        memcpy(destinations, sources, sizeof sources);
    } else if (plan->comm == graph) {
        int weighted;
        MPI_Dist_graph_neighbors_count(graph, &nsources, &ndestinations, &weighted);
        MPI_Dist_graph_neighbors(graph, nsources, sources, MPI_UNWEIGHTED, ndestinations, destinations,
                                 MPI_UNWEIGHTED);
    }
    int in[MOST_RANKS], out[MOST_RANKS];
    size_t n = (size_t)plan->count, all = n, received = n;
    int by_type = plan->what == ALLTOALLW || plan->what == NEIGHBOR_ALLTOALLW;
    size_t unit = by_type ? (size_t)extent_of(plan->type) : 1;
    MPI_Datatype type = plan->type->type;
    int of_all = plan->what == ALLTOALLV || plan->what == ALLTOALLW || plan->what == NEIGHBOR_ALLTOALLV ||
                 plan->what == NEIGHBOR_ALLTOALLW;
    // In place as much goes one way as the other; sides of a pair of groups have numbers of their own.
    for (int at = 0; at < nsources; at++) {
        int a = sources[at], b = me;
        if (of_all && plan->in_place) a = a < b ? a : b, b = sources[at] < b ? b : sources[at];
        if (a == MPI_PROC_NULL || b == MPI_PROC_NULL) {
            in[at] = plan->count;
            continue;
        }
        in[at] = of_all ? between(plan, salt + (is_inter && rank % 2 == 0), a, b) : between(plan, salt, a, 0);
        if (plan->what == NEIGHBOR_ALLGATHERV) in[at] = plan->count;
        if (plan->comm == cart && of_all) in[at] = plan->count;
    }
    for (int at = 0; at < ndestinations; at++) {
        int a = me, b = destinations[at];
        if (of_all && plan->in_place) a = a < b ? a : b, b = me < destinations[at] ? destinations[at] : me;
        if (a == MPI_PROC_NULL || b == MPI_PROC_NULL) {
            out[at] = plan->count;
            continue;
        }
        out[at] =
            of_all ? between(plan, salt + (is_inter && rank % 2 == 1), a, b) : between(plan, salt, b, 0);
        if (plan->comm == cart && of_all) out[at] = plan->count;
    }
    switch (plan->what) {
    case REDUCE_SCATTER: {
        // Both groups of a pair reduce as many elements.
        int mine[MOST_RANKS], sum = 0, even = (ranks + 1) / 2;
        for (int at = 0; at < size; at++) {
            mine[at] = between(plan, salt, at, 0);
            if (is_inter && rank % 2 == 0) mine[at] = at < even ? 6 * (at + 1) : 0;
            sum += mine[at];
        }
        if (is_inter) {
            int total = 3 * even * (even + 1), odd = ranks / 2, left = total;
            for (int at = 0; at < size && rank % 2; at++) {
                mine[at] = at == odd - 1 ? left : total / odd;
                left -= mine[at];
            }
            sum = total;
        }
        make_lists(&plan->in, size, mine, type, 1);
        all = (size_t)sum;
        received = plan->in_place ? all : (size_t)mine[me];
        break;
    }
    case REDUCE_SCATTER_BLOCK: {
        int even = (ranks + 1) / 2, odd = ranks / 2;
        if (is_inter) plan->count = (plan->count % 100) * (rank % 2 ? even : odd);
        n = (size_t)plan->count;
        all = n * (size_t)size;
        received = plan->in_place ? all : n;
        break;
    }
    case GATHER: received = is_root ? n * (size_t)peers : 0; break;
    case SCATTER: all = is_root ? n * (size_t)peers : 0; break;
    case GATHERV:
        plan->out.counts[0] = between(plan, salt, me, 0);
        all = (size_t)plan->out.counts[0];
        received = is_root ? make_lists(&plan->in, peers, in, type, 1) : 0;
        break;
    case SCATTERV:
        plan->in.counts[0] = between(plan, salt, me, 0);
        received = (size_t)plan->in.counts[0];
        all = is_root ? make_lists(&plan->out, peers, out, type, 1) : 0;
        break;
    case ALLGATHERV:
        if (is_inter)
            for (int at = 0; at < peers; at++) in[at] = between(plan, salt + (rank % 2 == 0), at, 0);
        plan->out.counts[0] = between(plan, salt + (is_inter && rank % 2), me, 0);
        all = (size_t)plan->out.counts[0];
        received = make_lists(&plan->in, peers, in, type, 1);
        break;
    case ALLGATHER: received = n * (size_t)peers; break;
    case ALLTOALL: all = received = n * (size_t)peers; break;
    case NEIGHBOR_ALLGATHER: received = n * (size_t)nsources; break;
    case NEIGHBOR_ALLGATHERV: received = make_lists(&plan->in, nsources, in, type, 1); break;
    case NEIGHBOR_ALLTOALL:
        all = n * (size_t)ndestinations;
        received = n * (size_t)nsources;
        break;
    case ALLTOALLV:
    case ALLTOALLW:
    case NEIGHBOR_ALLTOALLV:
    case NEIGHBOR_ALLTOALLW:
        all = make_lists(&plan->out, ndestinations, out, type, unit);
        received = make_lists(&plan->in, nsources, in, type, unit);
        break;
    default: break;
    }
    fill_region(&plan->sent, all, plan);
    fill_region(&plan->received, received, plan);
}

// What an MPI gets wrong by itself: MPICH 4.0.2 non-blocking calls and persistent requests between two
// groups, Open MPI 4.1.4 those in place that list counts, some of which hang where counts are 0.
static void leave_out_what_the_mpi_cannot(struct plan *plan) {
#ifdef MPICH
    bool is_left_out = plan->comm == inter;
#else
    bool is_rooted = plan->what == SCATTERV || plan->what == GATHERV;
    bool is_list = plan->what == ALLGATHERV || plan->what == ALLTOALLV || plan->what == ALLTOALLW;
    bool is_left_out = is_rooted || (is_list && plan->in_place);
#endif
    if (is_left_out) plan->form = plan->form < LARGE ? BLOCKING : LARGE;
}

static int try(enum what what, const struct type *type, const struct operation *operation) {
    struct plan plan = {.what = what, .type = type, .operation = operation};
    plan.form = (enum form)(1 + common(FORMS - 1));
    plan.place = (enum place[]){ANYWHERE, ANYWHERE, ON_GPUS, FOR_ALL_KERNELS}[common(4)];
    if (plan.place != ANYWHERE && common(3) != 0) plan.form = BLOCKING;
    if (only_levels) {
        plan.form = common(2) ? BLOCKING : LARGE;
        if (common(2)) plan.place = ON_GPUS;
    }
    plan.count = some_count();
    choose_comm(&plan);
    choose_data(&plan);
    leave_out_what_the_mpi_cannot(&plan);
    perform(&plan, HOST_FORM, plan.sent.expected, plan.received.expected);
    perform(&plan, plan.form, plan.sent.address, plan.received.address);
    size_t from = 0, to = 0;
    int me = 0, size = 0;
    MPI_Comm_rank(plan.comm, &me);
    MPI_Comm_size(plan.comm, &size);
    if (plan.in_place && (what == REDUCE_SCATTER || what == REDUCE_SCATTER_BLOCK)) {
        from = (size_t)(what == REDUCE_SCATTER ? plan.in.counts[me] : plan.count) * (size_t)extent_of(type);
        to = plan.received.bytes - GUARD;
    }
    // What the first rank has after it is not said.
    if (what == EXSCAN && me == 0) to = plan.received.bytes - GUARD;
    int right = is_right(&plan.received, &plan, from, to) & is_right(&plan.sent, &plan, 0, 0);
    if (!right)
        fprintf(stderr,
                "rank %d (%d of %s): MPI_%s of %d %s with %s%s, form %d, root %d, from %s to %s is wrong\n",
                rank, me, plan.comm_name, NAMES[what], plan.count, type->name, operation->name,
                plan.in_place ? " in place" : "", plan.form, plan.root, gpu_name(plan.sent.kind),
                gpu_name(plan.received.kind));
    // Nobody frees what another one reads.
    PMPI_Barrier(MPI_COMM_WORLD);
    drop_region(&plan.sent);
    drop_region(&plan.received);
    return !right;
}

// A sum in place on the GPUs of all ranks, however many: whose numbers are a kernel's late source, too.
static int add_in_place(void) {
    enum { COUNT = 10000 };
    static int numbers[COUNT];
    int offset = common(1 << 16), wrong = 0;
    for (int at = 0; at < COUNT; at++) numbers[at] = (at + offset) * (rank + 1);
    void *place = gpu_take(DEVICE, sizeof numbers);
    gpu_copy(place, numbers, sizeof numbers);
    MPI_Allreduce(MPI_IN_PLACE, place, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    gpu_copy(numbers, place, sizeof numbers);
    for (int at = 0; at < COUNT; at++) wrong += numbers[at] != (at + offset) * (ranks * (ranks + 1) / 2);
    if (wrong) fprintf(stderr, "rank %d: %d numbers of MPI_Allreduce in place are wrong\n", rank, wrong);
    // Nobody frees what another one reads.
    PMPI_Barrier(MPI_COMM_WORLD);
    gpu_give_back(DEVICE, place, sizeof numbers);
    return wrong != 0;
}

static void make_comms(void) {
    int grid[2] = {0, 0}, next[2], previous[2];
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? 0 : 1, 7, &inter);
    MPI_Dims_create(ranks, 2, grid);
    // Whoever is the neighbour on both sides could get both blocks in either order.
    int is_round[2] = {grid[0] > 2, grid[1] > 2};
    MPI_Cart_create(MPI_COMM_WORLD, 2, grid, is_round, 0, &cart);
    // To the next one and the one after it; to itself with two ranks.
    for (int at = 0; at < 2; at++) {
        next[at] = (rank + at + 1) % ranks;
        previous[at] = (rank + ranks - at - 1) % ranks;
    }
    int degree = ranks > 2 ? 2 : 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, degree, previous, MPI_UNWEIGHTED, degree, next,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
}

// Random calls of those that are made in two levels. Gives how many are wrong.
static int try_levels(int count) {
    int wrong = 0;
    only_levels = true;
    for (int made = 0; made < count;) {
        const struct type *type = &types[common(type_count)];
        const struct operation *operation = &operations[common(operation_count)];
        enum what what = (enum what[]){REDUCE, ALLREDUCE, BCAST}[common(3)];
        if (what == BCAST) operation = &operations[0];
        if (what != BCAST && !fits(operation, type)) continue;
        wrong += try(what, type, operation);
        made++;
    }
    return wrong;
}

// Of all combinations of a reduction, a type and an operation every so many, and as many calls that move data.
// Gives how many are wrong.
static int try_all(int stride, int *tried_calls) {
    int tried = 0;
    int wrong = 0, number = common(1 << 20);
    for (int type = 0; type < type_count; type++) {
        for (int operation = 0; operation < operation_count; operation++) {
            if (!fits(&operations[operation], &types[type])) continue;
            for (int what = 0; what < REDUCTIONS; what++) {
                if (number++ % stride != 0) continue;
                wrong += try((enum what)what, &types[type], &operations[operation]);
                tried++;
            }
        }
    }
    for (int moved = 0, count = 3 * WHATS > tried ? 3 * WHATS : tried; moved < count; moved++) {
        enum what what = (enum what)(BCAST + moved % (WHATS - BCAST));
        const struct type *type = &types[common(type_count)];
        // MPICH 4.0.2 takes messages of these for too long in MPI_Scatter.
        if (type->class == PAIR) type = &types[0];
        wrong += try(what, type, &operations[0]);
        tried++;
    }
    *tried_calls = tried;
    return wrong;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks > MOST_RANKS / 2) return 2;
    gpu_start_on(rank);
    make_elements();
    make_comms();
    common_state = strtoull(argv[1], NULL, 0);
    own_state = common_state * 31 + (uint64_t)rank;
    longest = strtoull(argv[3], NULL, 0);
    int more = argc == 5 ? atoi(argv[4]) : 0, tried = more;
    int wrong = more ? try_levels(more) : try_all(atoi(argv[2]), &tried);
    wrong += add_in_place();
    tried++;
    int all = 0;
    PMPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    free_elements();
    MPI_Finalize();
    if (rank == 0) printf("%d of %d calls are wrong\n", all, tried);
    return all != 0;
}
