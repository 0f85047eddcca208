// Threads that send and receive at once, under MPI_THREAD_MULTIPLE: threads ROUNDS. Each of them has a tag of
// its own, one probes, and one waits for any tag on a communicator of its own. Each has
// receives that it takes back. Then they match short messages, and free types of messages in flight.
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "causeway_comm.h"
#include "gpu.h"

enum { THREADS = 4, BYTES = 30000 };

static int rank, ranks, rounds, wrong;
static MPI_Comm other;

// Receives for which nothing comes.
static void take_back(MPI_Comm comm, int number, int from, void *in) {
    enum { NEVER = 3, UNUSED_TAG = 100 };
    MPI_Request requests[NEVER];
    MPI_Status statuses[NEVER];
    for (int at = 0; at < NEVER; at++)
        MPI_Irecv(in, BYTES, MPI_BYTE, from, UNUSED_TAG + number, comm, &requests[at]);
    for (int at = 0; at < NEVER; at++) MPI_Cancel(&requests[at]);
    MPI_Waitall(NEVER, requests, statuses);
    for (int at = 0; at < NEVER; at++) {
        int is_cancelled = 0;
        MPI_Test_cancelled(&statuses[at], &is_cancelled);
        if (!is_cancelled) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    }
}

static void *exchange(void *argument) {
    int number = (int)(intptr_t)argument, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Comm comm = number == 0 ? other : MPI_COMM_WORLD;
    gpu_use();
    unsigned char *host = malloc(BYTES);
    void *out = gpu_allocate(DEVICE, BYTES), *in = gpu_allocate(DEVICE, BYTES);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = round % 3 == 0 ? CAUSEWAY_COMM_DESCRIPTOR : BYTES - (size_t)round;
        for (size_t at = 0; at < bytes; at++)
            host[at] = (unsigned char)(at + (size_t)(rank * 7 + round * 3 + number));
        gpu_copy(out, host, bytes);
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(out, (int)bytes, MPI_BYTE, to, number, comm, &request);
        int tag = number == 0 ? MPI_ANY_TAG : number, count = 0;
        if (number == 1) {
            MPI_Probe(from, tag, comm, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (count != (int)bytes) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
        MPI_Recv(in, BYTES, MPI_BYTE, from, tag, comm, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        gpu_copy(host, in, bytes);
        int is_right = count == (int)bytes && status.MPI_TAG == number;
        for (size_t at = 0; at < bytes && is_right; at++)
            is_right = host[at] == (unsigned char)(at + (size_t)(from * 7 + round * 3 + number));
        if (!is_right) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (round % 4 == 0) take_back(MPI_COMM_WORLD, number, from, in);
    }
    free(host);
    return NULL;
}

// Short messages of the host's memory, each of which is taken out by a probe, or received at once.
static void *match(void *argument) {
    enum { TIMES = 1500, LONG = 100000, TAG = 50 };
    int number = (int)(intptr_t)argument, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *out = calloc(LONG, 1), *in = calloc(LONG, 1);
    for (int time = 0; time < TIMES; time++) {
        int bytes = time % 2 == 0   ? CAUSEWAY_COMM_DESCRIPTOR
                    : time % 4 == 1 ? 0
                                    : LONG >> time % 7,
            tag = TAG * (number + 1) + time % TAG, count;
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
        if (time % 9 > 0) {
            MPI_Message message;
            MPI_Mprobe(from, tag, MPI_COMM_WORLD, &message, &status);
            MPI_Mrecv(in, LONG, MPI_BYTE, &message, &status);
        } else {
            MPI_Recv(in, LONG, MPI_BYTE, from, tag, MPI_COMM_WORLD, &status);
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count != bytes || status.MPI_TAG != tag) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
    return NULL;
}

// Elements with gaps, whose types are freed as soon as a message of them has begun: the MPI frees each when
// it makes progress, in whatever thread that is, and others may call it then.
static void *free_types(void *argument) {
    enum { TIMES = 20, MESSAGES = 6, ELEMENTS = 200000, TAG = 1000 };
    int number = (int)(intptr_t)argument, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *out = malloc(2 * ELEMENTS), *in = malloc(MESSAGES * ELEMENTS);
    for (int time = 0; time < TIMES; time++) {
        MPI_Request requests[2 * MESSAGES];
        for (size_t at = 0; at < 2 * ELEMENTS; at++) out[at] = (unsigned char)(at + (size_t)(time + rank));
        for (int at = 0; at < MESSAGES; at++)
            MPI_Irecv(in + at * ELEMENTS, ELEMENTS, MPI_BYTE, from, TAG + number, MPI_COMM_WORLD,
                      &requests[at]);
        for (int at = 0; at < MESSAGES; at++) {
            MPI_Datatype type;
            MPI_Type_vector(ELEMENTS >> at, 1, 2, MPI_BYTE, &type);
            MPI_Type_commit(&type);
            MPI_Isend(out, 1, type, to, TAG + number, MPI_COMM_WORLD, &requests[MESSAGES + at]);
            MPI_Type_free(&type);
        }
        MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
        for (int message = 0; message < MESSAGES; message++) {
            bool is_right = true;
            for (size_t at = 0; at < (size_t)ELEMENTS >> message && is_right; at++)
                is_right =
                    in[(size_t)message * ELEMENTS + at] == (unsigned char)(2 * at + (size_t)(time + from));
            if (!is_right) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
    }
    free(out);
    free(in);
    return NULL;
}

static void run(void *do_it(void *)) {
    pthread_t threads[THREADS];
    for (intptr_t at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, do_it, (void *)at);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
}

int main(int argc, char **argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    gpu_start_on(rank);
    run(exchange);
    run(match);
    run(free_types);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&other);
    MPI_Finalize();
    if (rank == 0) printf("%d messages of threads are wrong, thread level %d\n", all, provided);
    return all != 0 || provided != MPI_THREAD_MULTIPLE;
}
