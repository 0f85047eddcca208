// Plans of calls: which call on which communicator, and how much each rank sends and receives.
#include <stdbool.h>
#include <string.h>

#include "collectives.h"

static MPI_Comm reversed, half, inter, cart, graph;

void make_comms(void) {
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
    int me, size, peers, is_inter, is_root, sources[MAX_RANKS], destinations[MAX_RANKS];
    uint64_t salt = common_salt();
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
    // Of long ones it copies what overlaps, and ends.
    if (plan->what == REDUCE_SCATTER) plan->in_place &= plan->count <= 3000;
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
    int in[MAX_RANKS], out[MAX_RANKS];
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
        int mine[MAX_RANKS], sum = 0, even = (ranks + 1) / 2;
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

void choose(struct plan *plan) {
    plan->count = some_count();
    choose_comm(plan);
    choose_data(plan);
    leave_out_what_the_mpi_cannot(plan);
}
