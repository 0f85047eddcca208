// Every collective call with memory of all kinds, compared with the same call on memory of the host by the
// MPI itself (PMPI_*).
//
// collectives SEED STRIDE LONGEST: all ranks make the same plans from the seed. Of all combinations of a
// reduction, a type and an operation every STRIDE-th is tried, and as many calls that move data.
// collectives SEED 0 LONGEST COUNT: so many calls of those that are made in two levels between hosts.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives.h"

int rank, ranks;
size_t longest;

// Of the calls in two levels alone, blocking ones.
static bool only_levels;

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

static int try(enum what what, const struct type *type, const struct operation *operation) {
    struct plan plan = {.what = what, .type = type, .operation = operation};
    plan.form = (enum form)(1 + common(FORMS - 1));
    plan.place = (enum place[]){ANYWHERE, ANYWHERE, ON_GPUS, FOR_ALL_KERNELS}[common(4)];
    if (plan.place != ANYWHERE && common(3) != 0) plan.form = BLOCKING;
    if (only_levels) {
        plan.form = common(2) ? BLOCKING : LARGE;
        if (common(2)) plan.place = ON_GPUS;
    }
    choose(&plan);
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
    void *place = gpu_allocate(DEVICE, sizeof numbers);
    gpu_copy(place, numbers, sizeof numbers);
    MPI_Allreduce(MPI_IN_PLACE, place, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    gpu_copy(numbers, place, sizeof numbers);
    for (int at = 0; at < COUNT; at++) wrong += numbers[at] != (at + offset) * (ranks * (ranks + 1) / 2);
    if (wrong) fprintf(stderr, "rank %d: %d numbers of MPI_Allreduce in place are wrong\n", rank, wrong);
    // Nobody frees what another one reads.
    PMPI_Barrier(MPI_COMM_WORLD);
    gpu_free(DEVICE, place, sizeof numbers);
    return wrong != 0;
}

// Random calls of those that are made in two levels. Gives how many are wrong.
static int try_levels(int count) {
    int wrong = 0;
    only_levels = true;
    for (int made = 0; made < count;) {
        const struct type *type = &types[common(type_count)];
        const struct operation *operation = &operations[common(operation_count)];
        enum what what = (enum what[]){REDUCE,         ALLREDUCE,           BCAST, ALLGATHER, ALLGATHERV,
                                       REDUCE_SCATTER, REDUCE_SCATTER_BLOCK}[common(7)];
        if (what >= BCAST) operation = &operations[0];
        if (what < BCAST && !fits(operation, type)) continue;
        // MPICH 4.0.2 takes messages of these for too long in MPI_Allgather, too, between two groups.
        if (what > BCAST && type->class == PAIR) continue;
        wrong += try(what, type, operation);
        made++;
    }
    return wrong;
}

// Of all combinations of a reduction, a type and an operation every so many, and as many calls that move
// data. Gives how many are wrong.
static int try_all(int stride, int *tried_calls) {
    int wrong = 0, tried = 0, number = common(1 << 20);
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
    if (ranks < 2 || ranks > MAX_RANKS / 2) return 2;
    gpu_start_on(rank);
    make_elements();
    make_comms();
    start_random(strtoull(argv[1], NULL, 0));
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
