// Messages from and into the same memory again and again, as programs with steps send them: reuse SCENE
// ROUNDS. The receivers then have the senders' memory open. Bytes differ each time. Prints "SCENE: ok", or
// what is wrong.
//
// windows: many messages under way at once, long and short. turns: short ones back and forth. crossed: both
// ranks send first and receive then. late: receivers that come late. devices: a receiver with memory on two
// GPUs, for whom the sender's memory is opened once.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "causeway_comm.h"
#include "gpu.h"

enum { WINDOW = 24, SLOT = 70000 };

static int rank, peer, rounds;
static const char *scene;
static unsigned char *host;

static unsigned char byte_of(int from, int round, int number, size_t at) {
    return (unsigned char)(at * 31 + at / 251 + (size_t)(from * 101 + round * 7 + number * 13));
}

static void fill(char *memory, size_t bytes, int round, int number) {
    for (size_t at = 0; at < bytes; at++) host[at] = byte_of(rank, round, number, at);
    gpu_copy(memory, host, bytes);
}

static void check(const char *memory, size_t bytes, int round, int number) {
    gpu_copy(host, memory, bytes);
    for (size_t at = 0; at < bytes; at++) {
        if (host[at] == byte_of(peer, round, number, at)) continue;
        printf("%s: rank %d: round %d, message %d: byte %zu of %zu is wrong\n", scene, rank, round, number,
               at, bytes);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

// The sizes of a window's messages: mostly long, some short, one of nothing.
static size_t size_of(int round, int number) {
    static const size_t sizes[] = {SLOT, CAUSEWAY_COMM_DESCRIPTOR, 8, 65536, 4096, 0, 33333, 1, 4095};
    return sizes[(size_t)(round * 5 + number) % (sizeof sizes / sizeof *sizes)];
}

static void windows(char *out, char *in) {
    MPI_Request requests[2 * WINDOW];
    MPI_Status statuses[2 * WINDOW];
    for (int round = 0; round < rounds; round++) {
        for (int at = 0; at < WINDOW; at++) {
            fill(out + at * SLOT, size_of(round, at), round, at);
            MPI_Irecv(in + at * SLOT, SLOT, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[at]);
        }
        for (int at = 0; at < WINDOW; at++)
            MPI_Isend(out + at * SLOT, (int)size_of(round, at), MPI_BYTE, peer, at, MPI_COMM_WORLD,
                      &requests[WINDOW + at]);
        if (round % 3 == 0) MPI_Waitall(2 * WINDOW, requests, statuses);
        // The last one first: those that were begun before it are done, too.
        for (int at = 2 * WINDOW - 1; round % 3 == 1 && at >= 0; at--) MPI_Wait(&requests[at], &statuses[at]);
        for (int left = 2 * WINDOW, index; round % 3 == 2 && left > 0; left--) {
            MPI_Status status;
            MPI_Waitany(2 * WINDOW, requests, &index, &status);
            statuses[index] = status;
        }
        for (int at = 0; at < WINDOW; at++) {
            int count = -1;
            MPI_Get_count(&statuses[at], MPI_BYTE, &count);
            if (count != (int)size_of(round, at)) {
                printf("%s: message %d has %d bytes\n", scene, at, count);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            check(in + at * SLOT, size_of(round, at), round, at);
        }
    }
}

static void turns(char *out, char *in) {
    for (int round = 0; round < rounds; round++) {
        size_t bytes = 1 + (size_t)(round * 37) % 300;
        fill(out, bytes, round, 0);
        // Those that are synchronous wait for the receiver, however busy the machine is.
        int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm) = round % 2 ? MPI_Ssend : MPI_Send;
        if (rank % 2 == 0) send(out, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(in, SLOT, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank % 2 == 1) send(out, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        check(in, bytes, round, 0);
    }
}

static void crossed(char *out, char *in) {
    for (int round = 0; round < rounds; round++) {
        fill(out, 100, round, 0);
        MPI_Send(out, 100, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        // The memory is the program's again.
        memset(host, 0xee, 100);
        gpu_copy(out, host, 100);
        MPI_Recv(in, 100, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(in, 100, round, 0);
    }
}

static void late(char *out, char *in) {
    turns(out, in);
    for (int round = 0; round < rounds; round++) {
        struct timespec some = {0, 1000000 * (round % 4)};
        fill(out, 64, round, 1);
        MPI_Request request;
        MPI_Isend(out, 64, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
        if (round % 2 == rank % 2) nanosleep(&some, NULL);
        MPI_Recv(in, 64, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(in, 64, round, 1);
    }
}

static void devices(char *out, char *in) {
    gpu_start_on(rank + 1);
    char *other = gpu_allocate(EXPORTABLE, SLOT);
    for (int round = 0; round < rounds; round++) {
        size_t bytes = (size_t)(SLOT - round * 7);
        char *to = round % 4 < 2 ? in : other;
        fill(out, bytes, round, 0);
        if (rank % 2 == 0) MPI_Ssend(out, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(to, SLOT, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank % 2 == 1) MPI_Ssend(out, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        check(to, bytes, round, 0);
    }
    gpu_free(EXPORTABLE, other, SLOT);
    gpu_start_on(rank);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = rank ^ 1;
    scene = argc > 1 ? argv[1] : "";
    rounds = argc > 2 ? atoi(argv[2]) : 1;
    host = malloc(WINDOW * SLOT);
    gpu_start_on(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    static const struct {
        const char *name;
        void (*play)(char *, char *);
    } scenes[] = {
        {"windows", windows}, {"turns", turns}, {"crossed", crossed}, {"late", late}, {"devices", devices}};
    int played = 0;
    for (size_t at = 0; at < sizeof scenes / sizeof *scenes; at++) {
        if (strcmp(scene, scenes[at].name) != 0) continue;
        // Memory that can be exported, and memory that cannot.
        for (int kind = 0; kind < 2; kind++) {
            enum memory memory = kind == 0 ? DEVICE : EXPORTABLE;
            char *out = gpu_allocate(memory, WINDOW * SLOT), *in = gpu_allocate(memory, WINDOW * SLOT);
            scenes[at].play(out, in);
            MPI_Barrier(MPI_COMM_WORLD);
            gpu_free(memory, out, WINDOW * SLOT);
            gpu_free(memory, in, WINDOW * SLOT);
        }
        played = 1;
    }
    MPI_Finalize();
    printf("%s: %s\n", scene, played ? "ok" : "there is no such scene");
    return !played;
}
