// Errors of messages that threads receive at once: thread_errors SEED ROUNDS. Each thread hears of those of
// its own requests, also where an MPI gives the handle of one that has ended to another thread at once.
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"
#include "split_mix.h"

enum { THREADS = 6, MAX_MESSAGES = 4, BYTES = 400 };

static int rank, peer, rounds, wrong;
static uint64_t seed;

// The same for one thread of both ranks.
static uint64_t next(uint64_t *state) {
    return split_mix(state);
}

static void must_be(int error, int is_cut, const char *call, int number, int round) {
    int class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    if (class == (is_cut ? MPI_ERR_TRUNCATE : MPI_SUCCESS)) return;
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "rank %d, thread %d, round %d: %s gives class %d for a message that %s\n", rank, number,
            round, call, class, is_cut ? "is too long" : "fits");
}

// Receives of one round: `is_cut` says for which there is too little room.
static void receive(MPI_Request *requests, const int *is_cut, int count, int form, int number, int round) {
    MPI_Status statuses[MAX_MESSAGES];
    int done = 0, ended, indices[MAX_MESSAGES];
    if (form == 0) {
        for (int at = 0; at < count; at++)
            must_be(MPI_Wait(&requests[at], &statuses[at]), is_cut[at], "MPI_Wait", number, round);
    } else if (form == 1) {
        int error = MPI_Waitall(count, requests, statuses);
        for (int at = 0; at < count; at++)
            must_be(error == MPI_SUCCESS ? error : statuses[at].MPI_ERROR, is_cut[at], "MPI_Waitall", number,
                    round);
    } else if (form == 2) {
        for (; done < count; done++) {
            int error = MPI_Waitany(count, requests, &ended, statuses);
            must_be(error, is_cut[ended], "MPI_Waitany", number, round);
        }
    } else {
        for (; done < count; done += ended) {
            int error = MPI_Waitsome(count, requests, &ended, indices, statuses);
            for (int at = 0; at < ended; at++)
                must_be(error == MPI_SUCCESS ? error : statuses[at].MPI_ERROR, is_cut[indices[at]],
                        "MPI_Waitsome", number, round);
        }
    }
}

static void *exchange(void *argument) {
    int number = (int)(intptr_t)argument;
    uint64_t state = seed * 31 + (uint64_t)number;
    gpu_use();
    char *out = gpu_allocate(DEVICE, BYTES), *in = gpu_allocate(DEVICE, MAX_MESSAGES * BYTES);
    for (int round = 0; round < rounds; round++) {
        int count = 1 + (int)(next(&state) % MAX_MESSAGES), form = (int)(next(&state) % 4),
            is_cut[MAX_MESSAGES];
        MPI_Request receives[MAX_MESSAGES], sends[MAX_MESSAGES];
        MPI_Status ignored[MAX_MESSAGES];
        for (int at = 0; at < count; at++) {
            int bytes = 80 + (int)(next(&state) % (BYTES - 80));
            is_cut[at] = next(&state) % 3 == 0;
            MPI_Irecv(in + at * BYTES, bytes - is_cut[at], MPI_BYTE, peer, number, MPI_COMM_WORLD,
                      &receives[at]);
            MPI_Isend(out, bytes, MPI_BYTE, peer, number, MPI_COMM_WORLD, &sends[at]);
        }
        receive(receives, is_cut, count, form, number, round);
        // A message that is cut is none of the sender's errors.
        must_be(MPI_Waitall(count, sends, ignored), 0, "MPI_Waitall", number, round);
    }
    gpu_free(DEVICE, out, BYTES);
    gpu_free(DEVICE, in, MAX_MESSAGES * BYTES);
    return NULL;
}

int main(int argc, char **argv) {
    int provided = 0, ranks;
    if (argc != 3) return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0) return 2;
    peer = rank ^ 1;
    seed = strtoull(argv[1], NULL, 0);
    rounds = atoi(argv[2]);
    gpu_start_on(rank);
    pthread_t threads[THREADS];
    for (intptr_t at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, exchange, (void *)at);
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) printf("%d errors are another's\n", all);
    return all != 0 || provided != MPI_THREAD_MULTIPLE;
}
