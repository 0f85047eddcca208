// Short messages of memory on a GPU, back and forth: short_messages ROUNDS. Each round has a message of 1 to
// 64 bytes each way, by blocking calls. Prints "short_messages: ok", or what is wrong. It needs of the driver
// what any has.
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 1 << 20, LONGEST = 64 };

static int (*to_gpu)(uint64_t, const void *, size_t), (*to_host)(void *, uint64_t, size_t);

static unsigned char byte_of(int from, int round, int at) {
    return (unsigned char)(at * 31 + from * 101 + round * 7 + 1);
}

static void fail(const char *what, int round) {
    printf("short_messages: %s in round %d\n", what, round);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void transmit(int rank, int round, uint64_t memory, int bytes) {
    unsigned char content[LONGEST];
    for (int at = 0; at < bytes; at++) content[at] = byte_of(rank, round, at);
    if (to_gpu(memory, content, (size_t)bytes)) fail("no memory is written", round);
    MPI_Send((void *)memory, bytes, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD);
}

static void receive(int rank, int round, uint64_t memory, int bytes) {
    unsigned char content[LONGEST] = {0};
    int came;
    MPI_Status status;
    if (to_gpu(memory, content, LONGEST)) fail("no memory is written", round);
    MPI_Recv((void *)memory, LONGEST, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &came);
    if (came != bytes || to_host(content, memory, LONGEST)) fail("the length is wrong", round);
    for (int at = 0; at < LONGEST; at++)
        if (content[at] != (at < bytes ? byte_of(1 - rank, round, at) : 0)) fail("a byte is wrong", round);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) fail("there is no driver", 0);
    int (*initialise)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*allocate)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
    to_gpu = (int (*)(uint64_t, const void *, size_t))dlsym(driver, "cuMemcpyHtoD_v2");
    to_host = (int (*)(void *, uint64_t, size_t))dlsym(driver, "cuMemcpyDtoH_v2");
    uint64_t out, in;
    if (initialise(0) || allocate(&out, MEMORY) || allocate(&in, MEMORY)) fail("there is no memory", 0);
    for (int round = 0; round < rounds; round++) {
        int bytes = 1 + round * 37 % LONGEST;
        // Anywhere in memory, also across the ends of cache lines.
        uint64_t place = (uint64_t)(round * 4099 % (MEMORY - LONGEST));
        if (rank == 0) transmit(rank, round, out + place, bytes);
        receive(rank, round, in + place, bytes);
        if (rank == 1) transmit(rank, round, out + place, bytes);
    }
    printf("short_messages: ok\n");
    MPI_Finalize();
    return 0;
}
