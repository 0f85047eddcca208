// Threads that send and receive at once, under MPI_THREAD_MULTIPLE: threads ROUNDS. Each of them has a tag of
// its own, one probes, and one waits for any tag on a communicator of its own. Each has
// receives that it takes back. Then they match short messages,
// free types of messages in flight, and get handles that another one has had.
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

// A thread waits for two requests. The MPI frees the first one while the second one is in flight, and gives
// its handle to another thread, for a persistent request: which has its own status, and is not that of the
// first one. An MPI that keeps such requests elsewhere gives other handles.

enum { FIRST = 2000, SECOND, PERSISTENT, SHORT = 100 };

struct reuse {
    MPI_Request first, other, made;
    void *memory;
};

static void must_be(const MPI_Status *status, int tag, int bytes) {
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (count == bytes && status->MPI_TAG == tag && status->MPI_SOURCE == rank) return;
    fprintf(stderr, "%d bytes with tag %d from %d instead of %d with tag %d\n", count, status->MPI_TAG,
            status->MPI_SOURCE, bytes, tag);
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void *reuse_handle(void *argument) {
    struct reuse *reuse = argument;
    unsigned char bytes[SHORT] = {0};
    int flag = 0;
    MPI_Status status;
    gpu_use();
    usleep(100000);
    // The interposer's needs two of the MPI's, of which the second one is the program's.
    MPI_Request_free(&reuse->other);
    MPI_Recv_init(reuse->memory, SHORT, MPI_BYTE, rank, PERSISTENT, MPI_COMM_WORLD, &reuse->made);
    MPI_Start(&reuse->made);
    MPI_Send(bytes, SHORT, MPI_BYTE, rank, PERSISTENT, MPI_COMM_WORLD);
    while (!flag) MPI_Request_get_status(reuse->made, &flag, &status);
    must_be(&status, PERSISTENT, SHORT);
    MPI_Send(bytes, 1, MPI_BYTE, rank, SECOND, MPI_COMM_WORLD);
    usleep(100000);
    MPI_Wait(&reuse->made, &status);
    must_be(&status, PERSISTENT, SHORT);
    return NULL;
}

static void reuse_handles(void) {
    unsigned char in[2], out[1] = {0};
    MPI_Request requests[2];
    MPI_Status statuses[2];
    pthread_t thread;
    struct reuse reuse = {.memory = gpu_allocate(DEVICE, SHORT)};
    MPI_Send_init(out, 1, MPI_BYTE, rank, SECOND, MPI_COMM_WORLD, &reuse.other);
    MPI_Irecv(&in[0], 1, MPI_BYTE, rank, FIRST, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_BYTE, rank, SECOND, MPI_COMM_WORLD, &requests[1]);
    reuse.first = requests[0];
    MPI_Send(out, 1, MPI_BYTE, rank, FIRST, MPI_COMM_WORLD);
    pthread_create(&thread, NULL, reuse_handle, &reuse);
    MPI_Waitall(2, requests, statuses);
    must_be(&statuses[0], FIRST, 1);
    must_be(&statuses[1], SECOND, 1);
    pthread_join(thread, NULL);
#ifdef MPICH_VERSION
    if (reuse.made != reuse.first) printf("the handle of a request is not used again\n");
#endif
    MPI_Request_free(&reuse.made);
    gpu_free(DEVICE, reuse.memory, SHORT);
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
    reuse_handles();
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_free(&other);
    MPI_Finalize();
    if (rank == 0) printf("%d messages of threads are wrong, thread level %d\n", all, provided);
    return all != 0 || provided != MPI_THREAD_MULTIPLE;
}
