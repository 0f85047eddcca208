// MPI benchmark: the interface between its files.
#ifndef BENCH_H
#define BENCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "gpu.h"
#include "opencl.h"

// Maximum number of messages of a window.
enum { MAX_WINDOW_BYTES = 1024 };

// The requested measurement.
struct plan {
    // Round trips of short messages; other loops take a part of them, as OSU's do.
    int iterations;
    // Messages in flight in the loops of bandwidth.
    int window;
    // Time limit of a loop in seconds.
    double budget;
};

// A pair of ranks, and the memory between which messages go.
struct pair {
    int rank, pairs, peer;
    // Whether this rank is the pair's first.
    bool is_first;
    char *out, *in;
    // Destination of bare copies: memory of the peer's GPU if that is another one, else `in`.
    char *copied;
    enum memory memory;
    // What OpenCL's kernels may do with the memory, where that is OpenCL's: then its kind is HOST. 0
    // elsewhere.
    int opencl;
};

// point_to_point.c

// Number of messages of this size in flight.
int window_of(const struct plan *plan, size_t bytes);

// Microseconds of one round of each loop, at this rank.

typedef double loop(const struct pair *pair, const struct plan *plan, size_t bytes);
// Half a round trip of blocking calls, as in osu_latency and osu_multi_lat.
loop latency;
// A window of messages in one direction and a reply, as in osu_bw and osu_mbw_mr.
loop bandwidth;
// A window in each direction, as in osu_bibw.
loop bidirectional;
// A copy from the first rank's GPU to its peer's and the wait for its end, without any message.
loop one_copy;
// A window of such copies.
loop many_copies;
// Exchanges one message in each direction and compares the bytes.
bool is_right(const struct pair *pair, size_t bytes);

// collectives.c

bool is_collective(const char *kind);
// Microseconds of a collective call on memory of a kind, and of the same through pinned host memory. Whether
// its results are right.
bool collective(const char *kind, enum memory memory, int rank, const struct plan *plan, size_t bytes,
                double results[2]);

// point_to_point.c: the number of this rank's messages so far by channel.

enum { MAX_PATHS = 16 };
void count_messages(double counts[MAX_PATHS]);
// The name of a channel; NULL behind the last one, or without the interposer's library.
const char *channel_name(int path);

#endif
