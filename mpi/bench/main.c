// MPI benchmark: latency and bandwidth of messages and collective calls. An ordinary MPI program, which
// `causeway bench mpi` starts:
//
//   mpirun -n 2 causeway_mpi_bench KINDS MEMORIES SIZES ITERATIONS WINDOW BUDGET
//   mpirun -n 2 causeway_mpi_bench latency,bandwidth gpu 8,65536 1000 64 0.5
//
// KINDS are latency, bandwidth (and rate), bidirectional and copy, between pairs of ranks, and allreduce,
// bcast, allgather, alltoall, reduce, reduce-scatter (MPI_Reduce_scatter_block), gather, scatter and scan,
// which all ranks call. With N ranks, rank r and rank r + N/2 are a pair, and all pairs send at once
// (osu_mbw_mr). Rank 0 prints a line for each result, with tabs between the columns:
//
//   row KIND MEMORY BYTES VALUE UNIT PATHS
//
// PATHS are the channels of the messages, each with its share in percent; `copy 100` if there were none.
// Bytes are compared before they are timed; if one is wrong, the program reports it and ends.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const struct kind_of_memory {
    const char *name;
    enum memory memory;
    // Of buffers of OpenCL.
    int opencl;
} MEMORY_NAMES[] = {{"gpu", DEVICE, 0},
                    {"exportable", EXPORTABLE, 0},
                    {"pool", POOL, 0},
                    {"managed", MANAGED, 0},
                    {"pinned", PINNED, 0},
                    {"pageable", HOST, 0},
                    {"opencl", HOST, READ_WRITE},
                    {"opencl-write-only", HOST, WRITE_ONLY},
                    {"opencl-read-only", HOST, READ_ONLY}};

enum { MAX_ITEMS = 64 };

static struct plan plan;
static struct pair pair;

static void give_up(const char *what, const char *item) {
    if (pair.rank == 0) fprintf(stderr, "causeway_mpi_bench: %s %s\n", what, item);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

// Splits a list at its commas.
static int split_list(char *list, char *items[MAX_ITEMS]) {
    int count = 0;
    for (char *item; (item = strsep(&list, ",")) != NULL; items[count++] = item)
        if (count == MAX_ITEMS) give_up("too many items in a list, the last being", item);
    return count;
}

// The channels of the messages since `before`, of all ranks.
static void print_paths(const double before[MAX_PATHS]) {
    double now[MAX_PATHS], all[MAX_PATHS], sum = 0;
    count_messages(now);
    for (int path = 0; path < MAX_PATHS; path++) now[path] -= before[path];
    MPI_Reduce(now, all, MAX_PATHS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (pair.rank != 0) return;
    for (int path = 0; path < MAX_PATHS; path++) sum += all[path];
    // Nothing was counted: the MPI has sent the messages.
    if (sum == 0) printf("mpi 100");
    const char *between = "";
    for (int path = 0; path < MAX_PATHS; path++) {
        if (all[path] <= 0) continue;
        printf("%s%s %.0f", between, channel_name(path), 100 * all[path] / sum);
        between = ", ";
    }
    printf("\n");
    fflush(stdout);
}

static void print_row(const char *kind, const char *memory, size_t bytes, double value, const char *unit) {
    if (pair.rank == 0) printf("row\t%s\t%s\t%zu\t%.6g\t%s\t", kind, memory, bytes, value, unit);
}

static void measure_collective(const char *kind, const char *memory, size_t bytes) {
    double before[MAX_PATHS], results[2];
    char by_host[64];
    count_messages(before);
    // Memory of OpenCL is the host's, of which the call without a GPU has its own row.
    if (bytes < sizeof(float) || pair.opencl != 0) return;
    if (!collective(kind, pair.memory, pair.rank, &plan, bytes, results))
        give_up("bytes of a call are wrong, in memory of the kind", memory);
    print_row(kind, memory, bytes, results[0], "us");
    print_paths(before);
    snprintf(by_host, sizeof by_host, "%s_by_host", kind);
    print_row(by_host, memory, bytes, results[1], "us");
    if (pair.rank == 0) printf("mpi 100\n");
}

static void measure(const char *kind, const char *memory, size_t bytes) {
    if (is_collective(kind)) {
        measure_collective(kind, memory, bytes);
        return;
    }
    bool is_copy = strcmp(kind, "copy") == 0;
    loop *of_kind = strcmp(kind, "latency") == 0         ? latency
                    : strcmp(kind, "bandwidth") == 0     ? bandwidth
                    : strcmp(kind, "bidirectional") == 0 ? bidirectional
                    : is_copy                            ? one_copy
                                                         : NULL;
    if (of_kind == NULL) give_up("unknown measurement", kind);
    // A copy from GPU to GPU is compared with messages between their memory.
    if (is_copy && (pair.memory == HOST || pair.memory == PINNED)) return;
    int right = is_right(&pair, bytes), all_right = 0;
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!all_right) give_up("bytes of a message are wrong, in memory of the kind", memory);
    double before[MAX_PATHS], mean = 0, max_time = 0;
    count_messages(before);
    double own = of_kind(&pair, &plan, bytes);
    MPI_Reduce(&own, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&own, &max_time, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (is_copy) {
        print_row("copy_latency", memory, bytes, own, "us");
        if (pair.rank == 0) printf("copy 100\n");
        own = many_copies(&pair, &plan, bytes);
        print_row("copy_bandwidth", memory, bytes, (double)bytes * window_of(&plan, bytes) / own / 1e3,
                  "GB/s");
        if (pair.rank == 0) printf("copy 100\n");
    } else if (of_kind == latency) {
        print_row(kind, memory, bytes, mean / (2 * pair.pairs), "us");
        print_paths(before);
    } else {
        double messages = (double)window_of(&plan, bytes) * pair.pairs * (of_kind == bidirectional ? 2 : 1);
        print_row(kind, memory, bytes, (double)bytes * messages / max_time / 1e3, "GB/s");
        print_paths(before);
        if (of_kind != bandwidth) return;
        print_row("rate", memory, bytes, messages / max_time, "M/s");
        print_paths(before);
    }
}

static const struct kind_of_memory *memory_of(const char *name) {
    for (size_t at = 0; at < sizeof MEMORY_NAMES / sizeof *MEMORY_NAMES; at++)
        if (strcmp(MEMORY_NAMES[at].name, name) == 0) return &MEMORY_NAMES[at];
    give_up("unknown kind of memory", name);
    return MEMORY_NAMES;
}

// The memory of a pair, `out` and `in`, for messages of so many bytes.
static void allocate_memory(const char *name, size_t bytes, struct opencl_memory opencl[2]) {
    const struct kind_of_memory *kind = memory_of(name);
    pair.memory = kind->memory;
    pair.opencl = kind->opencl;
    char **buffers[] = {&pair.out, &pair.in};
    for (int at = 0; at < 2; at++) {
        if (pair.opencl == 0) {
            *buffers[at] = gpu_allocate(pair.memory, bytes);
        } else {
            bool is_there = opencl_start() && opencl_allocate((enum opencl)pair.opencl, bytes, &opencl[at]);
            *buffers[at] = is_there ? opencl[at].address : NULL;
        }
        if (*buffers[at] == NULL) {
            // Each rank has said why: the first to come here ends the others.
            fprintf(stderr, "causeway_mpi_bench: rank %d has no memory of the kind %s\n", pair.rank, name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

static void free_memory(size_t bytes, struct opencl_memory opencl[2]) {
    char *buffers[] = {pair.out, pair.in};
    for (int at = 0; at < 2; at++) {
        if (pair.opencl != 0)
            opencl_free(&opencl[at]);
        else
            gpu_free(pair.memory, buffers[at], bytes);
    }
}

static size_t size_of(const char *item) {
    char *end;
    size_t bytes = strtoull(item, &end, 10);
    if (*end != 0 || bytes == 0 || bytes > 1 << 30) give_up("messages have from 1 byte to 1 GiB, not", item);
    return bytes;
}

// The number of a rank's GPU: those of a pair differ where there are several, whatever the number of pairs.
static int gpu_of(int rank) {
    return rank % pair.pairs + rank / pair.pairs;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &pair.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 7) give_up("usage:", "KINDS MEMORIES SIZES ITERATIONS WINDOW BUDGET");
    if (ranks % 2 != 0) give_up("ranks are paired, so there must be", "an even number of them");
    pair.pairs = ranks / 2;
    pair.is_first = pair.rank < pair.pairs;
    pair.peer = (pair.rank + pair.pairs) % ranks;
    char *kinds[MAX_ITEMS], *memories[MAX_ITEMS], *sizes[MAX_ITEMS];
    int kind_count = split_list(argv[1], kinds);
    int memory_count = split_list(argv[2], memories);
    int size_count = split_list(argv[3], sizes);
    plan = (struct plan){atoi(argv[4]), atoi(argv[5]), atof(argv[6])};
    if (plan.iterations < 1 || !(plan.budget > 0)) give_up("the last arguments must be", "positive numbers");
    if (plan.window < 1 || plan.window > MAX_WINDOW_BYTES)
        give_up("a window has 1 to 1024 messages, not", argv[5]);

    size_t max_bytes = 0;
    bool needs_gpu = false, copies = false;
    for (int at = 0; at < kind_count; at++) {
        needs_gpu |= is_collective(kinds[at]);
        copies |= strcmp(kinds[at], "copy") == 0;
    }
    for (int at = 0; at < size_count; at++)
        if (size_of(sizes[at]) > max_bytes) max_bytes = size_of(sizes[at]);
    for (int at = 0; at < memory_count; at++) needs_gpu |= memory_of(memories[at])->memory != HOST;
    if (needs_gpu) gpu_start_on(gpu_of(pair.rank));
    copies &= needs_gpu;
    for (int memory = 0; memory < memory_count; memory++) {
        // For all sizes the same, as in OSU's.
        struct opencl_memory opencl[2];
        allocate_memory(memories[memory], max_bytes, opencl);
        char *copy_target = copies && pair.rank == 0 ? gpu_allocate_on(gpu_of(pair.peer), max_bytes) : NULL;
        pair.copied = copy_target != NULL ? copy_target : pair.in;
        for (int kind = 0; kind < kind_count; kind++)
            for (int size = 0; size < size_count; size++)
                measure(kinds[kind], memories[memory], size_of(sizes[size]));
        // A peer may still map this memory.
        MPI_Barrier(MPI_COMM_WORLD);
        if (copy_target != NULL) gpu_free(DEVICE, copy_target, max_bytes);
        free_memory(max_bytes, opencl);
    }
    MPI_Finalize();
    return 0;
}
