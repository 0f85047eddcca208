// Collective loops of the OSU micro-benchmarks (mpi/collective of version 7). Each call is timed by itself,
// with a barrier between calls; the result is the mean over calls and ranks.
//
// The baseline of each call is what a program does whose MPI does not support GPUs: it copies to pinned host
// memory, calls the MPI, and copies back.

#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum what { ALLREDUCE, BCAST, ALLGATHER, ALLTOALL, REDUCE, REDUCE_SCATTER, GATHER, SCATTER, SCAN, WHATS };
static const char *const NAMES[] = {"allreduce",      "bcast",  "allgather", "alltoall", "reduce",
                                    "reduce-scatter", "gather", "scatter",   "scan"};

static int ranks_of_all(void) {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks;
}

static void call(enum what what, char *out, char *in, size_t bytes) {
    int count = (int)bytes, floats = (int)(bytes / sizeof(float));
    MPI_Comm world = MPI_COMM_WORLD;
    switch (what) {
    case ALLREDUCE: MPI_Allreduce(out, in, floats, MPI_FLOAT, MPI_SUM, world); break;
    case BCAST: MPI_Bcast(out, count, MPI_CHAR, 0, world); break;
    case ALLGATHER: MPI_Allgather(out, count, MPI_CHAR, in, count, MPI_CHAR, world); break;
    case ALLTOALL: MPI_Alltoall(out, count, MPI_CHAR, in, count, MPI_CHAR, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(out, in, floats, MPI_FLOAT, MPI_SUM, world); break;
    case GATHER: MPI_Gather(out, count, MPI_CHAR, in, count, MPI_CHAR, 0, world); break;
    case SCATTER: MPI_Scatter(out, count, MPI_CHAR, in, count, MPI_CHAR, 0, world); break;
    case SCAN: MPI_Scan(out, in, floats, MPI_FLOAT, MPI_SUM, world); break;
    default: MPI_Reduce(out, in, floats, MPI_FLOAT, MPI_SUM, 0, world); break;
    }
}

// Bytes that a call reads and writes at this rank.
static size_t out_bytes(enum what what, size_t bytes) {
    bool has_blocks = what == ALLTOALL || what == REDUCE_SCATTER || what == SCATTER;
    return has_blocks ? bytes * (size_t)ranks_of_all() : bytes;
}

static size_t in_bytes(enum what what, size_t bytes) {
    if (what == BCAST) return 0;
    bool has_blocks = what == ALLGATHER || what == ALLTOALL || what == GATHER;
    return has_blocks ? bytes * (size_t)ranks_of_all() : bytes;
}

// Which ranks send something, and which receive.
static bool sends(enum what what, bool is_first) {
    return is_first || (what != BCAST && what != SCATTER);
}

static bool receives(enum what what, bool is_first) {
    return what == BCAST ? !is_first : is_first || (what != REDUCE && what != GATHER);
}

struct memories {
    char *out, *in, *host_out, *host_in;
};

static void call_by_host(enum what what, const struct memories *memories, size_t bytes, bool is_first) {
    if (sends(what, is_first)) gpu_copy(memories->host_out, memories->out, out_bytes(what, bytes));
    call(what, memories->host_out, memories->host_in, bytes);
    if (!receives(what, is_first)) return;
    if (what == BCAST)
        gpu_copy(memories->out, memories->host_out, bytes);
    else
        gpu_copy(memories->in, memories->host_in, in_bytes(what, bytes));
}

static double mean_of(enum what what, const struct memories *memories, const struct plan *plan, size_t bytes,
                      bool by_host, bool is_first) {
    double spent = 0, started = MPI_Wtime();
    int iterations = plan->iterations / (bytes > 8192 ? 10 : 1), done = 0, is_running = 1;
    if (iterations < 2) iterations = 2;
    int warm_up = iterations / 10 > 1 ? iterations / 10 : 1;
    for (int at = 0; at < warm_up + iterations && is_running; at++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (by_host)
            call_by_host(what, memories, bytes, is_first);
        else
            call(what, memories->out, memories->in, bytes);
        if (at >= warm_up) {
            spent += MPI_Wtime() - start;
            done++;
        }
        // The ranks have to agree about it.
        if (done < 2 || (at & (at - 1)) != 0) continue;
        is_running = MPI_Wtime() - started < plan->budget;
        MPI_Bcast(&is_running, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    double mean = done > 0 ? spent * 1e6 / done : 0, all = 0;
    MPI_Allreduce(&mean, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all / ranks_of_all();
}

// Whether a call has the result of the MPI on host memory.
static bool is_the_same(enum what what, const struct memories *memories, size_t bytes, int rank) {
    size_t out = out_bytes(what, bytes), in = in_bytes(what, bytes);
    char *found = malloc(out + in + 1), *expected = malloc(out + in + 1);
    float *numbers = (float *)memories->host_out;
    for (size_t at = 0; at < out / sizeof(float); at++)
        numbers[at] = (float)((at * 7 + (size_t)rank * 13) % 1000);
    gpu_copy(memories->out, memories->host_out, out);
    // What a broadcast writes is compared as what is sent.
    bool writes = what == BCAST || receives(what, rank == 0);
    call(what, memories->out, memories->in, bytes);
    call(what, memories->host_out, memories->host_in, bytes);
    memcpy(expected, memories->host_out, out);
    if (writes) memcpy(expected + out, memories->host_in, in);
    gpu_copy(found, memories->out, out);
    if (writes) gpu_copy(found + out, memories->in, in);
    bool same = memcmp(found, expected, writes ? out + in : out) == 0;
    free(found);
    free(expected);
    return same;
}

bool is_collective(const char *kind) {
    for (int what = 0; what < WHATS; what++)
        if (strcmp(NAMES[what], kind) == 0) return true;
    return false;
}

bool collective(const char *kind, enum memory memory, int rank, const struct plan *plan, size_t bytes,
                double results[2]) {
    enum what what = ALLREDUCE;
    while (strcmp(NAMES[what], kind) != 0) what++;
    size_t out = out_bytes(what, bytes), in = in_bytes(what, bytes);
    struct memories memories = {gpu_allocate(memory, out), gpu_allocate(memory, in),
                                gpu_allocate(PINNED, out), gpu_allocate(PINNED, in)};
    int right = is_the_same(what, &memories, bytes, rank), all_right = 0;
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (all_right) {
        results[0] = mean_of(what, &memories, plan, bytes, false, rank == 0);
        results[1] = mean_of(what, &memories, plan, bytes, true, rank == 0);
    }
    // A peer may still map this memory: it is freed after all ranks are done.
    MPI_Barrier(MPI_COMM_WORLD);
    gpu_free(memory, memories.out, out);
    gpu_free(memory, memories.in, in);
    gpu_free(PINNED, memories.host_out, out);
    gpu_free(PINNED, memories.host_in, in);
    return all_right;
}
