// A program of MPI 4's sessions alone, without MPI_Init: persistent messages, calls in place, and threads
// that send and receive at once, on memory of GPUs.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

enum { COUNT = 5000, ROUNDS = 30, THREADS = 3 };

static int rank;

static void must(int is_right, const char *what) {
    if (is_right) return;
    printf("sessions: rank %d: %s\n", rank, what);
    fflush(stdout);
    exit(1);
}

#if MPI_VERSION >= 4

static MPI_Comm comms[THREADS];
static int ranks;

static void exchange(MPI_Comm comm, int number, int is_persistent) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    size_t bytes = COUNT * sizeof(int);
    int *out = (int *)gpu_allocate(DEVICE, bytes), *in = (int *)gpu_allocate(DEVICE, bytes),
        *host = malloc(bytes);
    MPI_Request requests[2];
    if (is_persistent) {
        MPI_Recv_init(in, COUNT, MPI_INT, before, number, comm, &requests[0]);
        MPI_Send_init(out, COUNT, MPI_INT, next, number, comm, &requests[1]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < COUNT; at++) host[at] = at + number * 1000 + round + rank;
        gpu_copy(out, host, bytes);
        if (is_persistent) {
            MPI_Startall(2, requests);
        } else {
            MPI_Irecv(in, COUNT, MPI_INT, before, number, comm, &requests[0]);
            MPI_Isend(out, COUNT, MPI_INT, next, number, comm, &requests[1]);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        gpu_copy(host, in, bytes);
        for (int at = 0; at < COUNT; at++)
            must(host[at] == at + number * 1000 + round + before, "a number that was received is another");
    }
    for (int at = 0; is_persistent && at < 2; at++) MPI_Request_free(&requests[at]);
    gpu_free(DEVICE, out, bytes);
    gpu_free(DEVICE, in, bytes);
    free(host);
}

static void *work(void *argument) {
    long number = (long)argument;
    gpu_use();
    exchange(comms[number], (int)number, number == 0);
    return NULL;
}

int main(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Info info;
    gpu_start();
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    MPI_Session_init(info, MPI_ERRORS_RETURN, &session);
    MPI_Info_free(&info);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comms[0]);
    MPI_Group_free(&group);
    MPI_Comm_rank(comms[0], &rank);
    MPI_Comm_size(comms[0], &ranks);
    for (int at = 1; at < THREADS; at++) MPI_Comm_dup(comms[0], &comms[at]);
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, work, (void *)at);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    // An error or none is the MPI's affair; the program goes on.
    int *numbers = (int *)gpu_allocate(DEVICE, sizeof(int)), zero = 0;
    gpu_copy(numbers, &zero, sizeof zero);
    MPI_Allreduce(numbers, numbers, 1, MPI_INT, MPI_SUM, comms[0]);
    must(MPI_Reduce_local(numbers, numbers + 0, 0, MPI_INT, MPI_SUM) == MPI_SUCCESS,
         "nothing is not reduced");
    for (int at = 0; at < THREADS; at++) MPI_Comm_disconnect(&comms[at]);
    MPI_Session_finalize(&session);
    printf("sessions: ok\n");
    return 0;
}

#else
int main(void) {
    must(0, "this MPI has none");
}
#endif
