// Point-to-point loops of the OSU micro-benchmarks, with their numbers of iterations (mpi/pt2pt of version
// 7), and the channels of the messages.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

// Messages by channel: the interposer's library counts them, if it is loaded.

const char *channel_name(int path) {
    const char *(*name)(uint32_t) = (const char *(*)(uint32_t))dlsym(RTLD_DEFAULT, "causeway_comm_channel");
    return name == NULL || path >= MAX_PATHS ? NULL : name((uint32_t)path);
}

void count_messages(double counts[MAX_PATHS]) {
    uint64_t (*messages)(const char *) =
        (uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "causeway_comm_messages");
    for (int path = 0; path < MAX_PATHS; path++) {
        const char *name = channel_name(path);
        counts[path] = messages == NULL || name == NULL ? 0 : (double)messages(name);
    }
}

// The loops.

// Longer messages get fewer iterations (LARGE_MESSAGE_SIZE).
static const size_t LARGE = 8192;
enum { TAG = 100, REPLY = 101 };

// Beyond OSU's longest messages, 4 MiB, a window would take seconds: it has 1 GiB at most.
int window_of(const struct plan *plan, size_t bytes) {
    size_t max_window = ((size_t)1 << 30) / bytes;
    return max_window < (size_t)plan->window ? (int)max_window : plan->window;
}

static int share_of(const struct plan *plan, size_t bytes, int small, int large) {
    int iterations = plan->iterations / (bytes > LARGE ? large : small);
    return iterations > 2 ? iterations : 2;
}

// Runs rounds until it is known how many fit into the budget, and then so many; all ranks the same number.
static double timed(const struct plan *plan, int requested, void (*round)(const struct pair *, int, size_t),
                    const struct pair *pair, size_t bytes) {
    // A tenth warms up, as OSU's skipped iterations do.
    int warm_up = requested / 10 > 1 ? requested / 10 : 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    int done = 0;
    int is_running = 1;
    while (done < warm_up && is_running) {
        round(pair, window_of(plan, bytes), bytes);
        done++;
        // Looked at now and then, since the ranks have to agree about it.
        if ((done & (done - 1)) == 0 && pair->rank == 0) is_running = MPI_Wtime() - start < plan->budget / 4;
        if ((done & (done - 1)) == 0) MPI_Bcast(&is_running, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    double each = (MPI_Wtime() - start) / done;
    double fits = plan->budget / (each > 1e-9 ? each : 1e-9);
    int iterations = fits < 2 ? 2 : fits < requested ? (int)fits : requested;
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int at = 0; at < iterations; at++) round(pair, window_of(plan, bytes), bytes);
    return (MPI_Wtime() - start) * 1e6 / iterations;
}

static void ping_pong(const struct pair *pair, int window, size_t bytes) {
    (void)window;
    int count = (int)bytes;
    if (pair->is_first) {
        MPI_Send(pair->out, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD);
        MPI_Recv(pair->in, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(pair->in, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(pair->out, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD);
    }
}

double latency(const struct pair *pair, const struct plan *plan, size_t bytes) {
    return timed(plan, share_of(plan, bytes, 1, 10), ping_pong, pair, bytes) / 2;
}

static void one_way(const struct pair *pair, int window, size_t bytes) {
    static MPI_Request requests[MAX_WINDOW_BYTES];
    int count = (int)bytes;
    char reply[4] = {0};
    for (int at = 0; at < window; at++) {
        // As in OSU's, all of a window's messages lie in the same memory.
        if (pair->is_first)
            MPI_Isend(pair->out, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, &requests[at]);
        else
            MPI_Irecv(pair->in, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, &requests[at]);
    }
    MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
    if (pair->is_first)
        MPI_Recv(reply, 4, MPI_CHAR, pair->peer, REPLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(reply, 4, MPI_CHAR, pair->peer, REPLY, MPI_COMM_WORLD);
}

double bandwidth(const struct pair *pair, const struct plan *plan, size_t bytes) {
    return timed(plan, share_of(plan, bytes, 10, 50), one_way, pair, bytes);
}

static void send_and_receive(const struct pair *pair, int window, size_t bytes) {
    static MPI_Request sends[MAX_WINDOW_BYTES], receives[MAX_WINDOW_BYTES];
    int count = (int)bytes;
    for (int at = 0; at < window; at++)
        MPI_Irecv(pair->in, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, &receives[at]);
    for (int at = 0; at < window; at++)
        MPI_Isend(pair->out, count, MPI_BYTE, pair->peer, TAG, MPI_COMM_WORLD, &sends[at]);
    MPI_Waitall(window, sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(window, receives, MPI_STATUSES_IGNORE);
}

double bidirectional(const struct pair *pair, const struct plan *plan, size_t bytes) {
    return timed(plan, share_of(plan, bytes, 10, 50), send_and_receive, pair, bytes);
}

static void copy_once(const struct pair *pair, int window, size_t bytes) {
    (void)window;
    if (pair->rank != 0) return;
    gpu_begin_copy(pair->copied, pair->out, bytes);
    gpu_wait();
}

double one_copy(const struct pair *pair, const struct plan *plan, size_t bytes) {
    return timed(plan, share_of(plan, bytes, 1, 10), copy_once, pair, bytes);
}

static void copy_often(const struct pair *pair, int window, size_t bytes) {
    if (pair->rank != 0) return;
    for (int at = 0; at < window; at++) gpu_begin_copy(pair->copied, pair->out, bytes);
    gpu_wait();
}

double many_copies(const struct pair *pair, const struct plan *plan, size_t bytes) {
    return timed(plan, share_of(plan, bytes, 10, 50), copy_often, pair, bytes);
}

static void fill(char *host, size_t bytes, int seed) {
    for (size_t at = 0; at < bytes; at++) host[at] = (char)(at * 31 + at / 251 + (size_t)seed);
}

static void put(const struct pair *pair, char *to, const char *from, size_t bytes) {
    if (pair->memory == HOST)
        memcpy(to, from, bytes);
    else
        gpu_copy(to, from, bytes);
}

bool is_right(const struct pair *pair, size_t bytes) {
    // Of each rank other bytes.
    char *host = malloc(bytes), *expected = malloc(bytes);
    if (host == NULL || expected == NULL) {
        free(host);
        free(expected);
        return false;
    }
    fill(host, bytes, pair->rank);
    put(pair, pair->out, host, bytes);
    memset(host, 0x5a, bytes);
    put(pair, pair->in, host, bytes);
    ping_pong(pair, 0, bytes);
    put(pair, host, pair->in, bytes);
    fill(expected, bytes, pair->peer);
    bool same = memcmp(host, expected, bytes) == 0;
    free(host);
    free(expected);
    return same;
}
