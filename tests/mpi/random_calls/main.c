// Random messages that are under way while ranks make other calls: one-sided ones, of files, collective ones
// that block or go on meanwhile; and while they are late. What arrives is known, so nothing has to be sent
// twice.
//
// random_calls SEED ROUNDS THREADS FOLDER [host|some|unmapped]: so many threads of each rank do so, each with
// communicators of its own. With 0 threads the ranks call with MPI_THREAD_SINGLE. `host`: no rank has a GPU;
// `some`: every second one; `unmapped`: all, which do not map each other's memory as windows need it.

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../split_mix.h"
#include "random_calls.h"

enum { MAX_THREADS = 8 };

int wrong;
static int rounds;
static bool has_gpu;

static uint64_t next(struct group *group) {
    return split_mix(&group->state);
}

size_t below(struct group *group, size_t limit) {
    return next(group) % limit;
}

enum memory some_memory(struct group *group) {
    enum memory memory = (enum memory)below(group, MEMORIES);
    return group->is_host ? HOST : memory;
}

void copy_bytes(void *to, const void *from, size_t bytes) {
    if (has_gpu)
        gpu_copy(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

unsigned char byte_at(uint64_t seed, size_t at) {
    return (unsigned char)((seed + at * (2 * seed + 1)) >> 2);
}

void is_wrong(const struct group *group, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rank %d, thread %d: %s\n", group->rank, group->number, text);
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void *run(void *argument) {
    struct group *group = argument;
    if (has_gpu) gpu_use();
    for (int round = 0; round < rounds; round++) {
        struct pending *pending = start_collectives(group);
        struct messages *messages = start_messages(group);
        make_concurrent_call(group);
        end_messages(group, messages);
        end_collectives(group, pending);
    }
    return NULL;
}

// Makes an intercommunicator of the first ranks and the others.
static void connect_halves(struct group *group) {
    int rank, half;
    MPI_Comm own;
    MPI_Comm_rank(group->comm, &rank);
    MPI_Comm_size(group->comm, &half);
    half /= 2;
    group->between = MPI_COMM_NULL;
    if (half == 0) return;
    MPI_Comm_split(group->comm, rank < half, rank, &own);
    MPI_Intercomm_create(own, 0, group->comm, rank < half ? half : 0, 3, &group->between);
    MPI_Comm_free(&own);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int threads = atoi(argv[3]), provided = MPI_THREAD_SINGLE, rank = 0, all = 0;
    MPI_Init_thread(&argc, &argv, threads > 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (threads > MAX_THREADS || (threads > 0 && provided < MPI_THREAD_MULTIPLE)) return 2;
    const char *who = argc > 5 ? argv[5] : "all";
    has_gpu = strcmp(who, "host") != 0 && (strcmp(who, "some") != 0 || rank % 2 == 0);
    if (has_gpu) gpu_start_on(rank);
    rounds = atoi(argv[2]);
    // Larger than what all threads send with MPI_Bsend at a time.
    size_t room = (size_t)(threads > 0 ? threads : 1) * 12 * (900000 + MPI_BSEND_OVERHEAD);
    void *buffer = malloc(room);
    int size;
    MPI_Buffer_attach(buffer, (int)room);
    start_partitions();
    struct group groups[MAX_THREADS] = {0};
    pthread_t started[MAX_THREADS];
    for (int number = 0; number < threads || number == 0; number++) {
        struct group *group = &groups[number];
        *group =
            (struct group){.state = strtoull(argv[1], NULL, 0) + (uint64_t)number * 77, .folder = argv[4]};
        // In every second one the ranks are in the other order.
        MPI_Comm_split(MPI_COMM_WORLD, 0, (group->state + (uint64_t)number) % 2 ? -rank : rank, &group->comm);
        MPI_Comm_dup(group->comm, &group->probed);
        MPI_Comm_dup(group->comm, &group->ordered);
        connect_halves(group);
        MPI_Comm_rank(group->comm, &group->rank);
        MPI_Comm_size(group->comm, &group->ranks);
        group->has_threads = threads > 0;
        group->is_host = !has_gpu;
        group->all_have_gpus = strcmp(who, "all") == 0;
        group->number = number;
        if (threads > 0)
            pthread_create(&started[number], NULL, run, group);
        else
            run(group);
    }
    for (int number = 0; number < threads; number++) pthread_join(started[number], NULL);
    for (int number = 0; number < threads || number == 0; number++) {
        MPI_Comm_free(&groups[number].comm);
        MPI_Comm_free(&groups[number].probed);
        MPI_Comm_free(&groups[number].ordered);
        if (groups[number].between != MPI_COMM_NULL) MPI_Comm_free(&groups[number].between);
    }
    MPI_Buffer_detach(&buffer, &size);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d things are wrong\n", all);
    MPI_Finalize();
    return all != 0;
}
