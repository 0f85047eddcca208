// Scenes of messages between GPUs, one a run: scenes NAME. Every rank prints "NAME: ok" or what is wrong.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenes.h"

int rank, ranks;
const char *scene;

void must(int is_right, const char *what, ...) {
    if (is_right) return;
    va_list arguments;
    va_start(arguments, what);
    printf("%s: rank %d: ", scene, rank);
    vprintf(what, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

char *filled(enum memory memory, size_t bytes, int number) {
    char *host = malloc(bytes), *gpu = gpu_allocate(memory, bytes);
    for (size_t at = 0; at < bytes; at++) host[at] = (char)(at * 31 + at / 251 + (size_t)number);
    gpu_copy(gpu, host, bytes);
    free(host);
    return gpu;
}

void must_hold(const char *address, size_t bytes, int number) {
    char *host = malloc(bytes);
    gpu_copy(host, address, bytes);
    for (size_t at = 0; at < bytes; at++) {
        if (host[at] == (char)(at * 31 + at / 251 + (size_t)number)) continue;
        must(0, "byte %zu of %zu is wrong for message %d", at, bytes, number);
    }
    free(host);
}

static void barrier(void) {
    while_in_barrier(0);
}

static void synchronous(void) {
    while_in_barrier(1);
}

static const struct {
    const char *name;
    void (*play)(void);
} SCENES[] = {
    {"while_blocked", while_blocked},
    {"barrier", barrier},
    {"synchronous", synchronous},
    {"mixed_requests", mixed_requests},
    {"traffic", traffic},
    {"any_source", any_source},
    {"any_probe", any_probe},
    {"errors", errors},
    {"arguments", arguments},
    {"refused", refused},
    {"partitioned", partitioned},
    {"external", external},
    {"persistent_collectives", persistent_collectives},
    {"buffered", buffered},
    {"files", files},
    {"connection", connection},
    {"spawned", spawned},
    {"child", child},
    {"descriptors", descriptors},
    {"gaps", gaps},
    {"structures", structures},
    {"pieces", pieces},
    {"both_kinds", both_kinds},
    {"exchange", exchange},
    {"large", large},
    {"default_stream", default_stream},
    {"persistent", persistent},
    {"many_persistent", many_persistent},
    {"matched", matched},
    {"handles", handles},
    {"death", death},
    {"death_in_transfer", death_in_transfer},
    {"checked", checked},
    {"lengths", lengths},
    {"death_in_call", death_in_call},
    {"recovery", recovery},
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    scene = argc > 1 ? argv[1] : "";
    gpu_start_on(rank);
    // So that all have joined the job.
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t at = 0; at < sizeof SCENES / sizeof *SCENES; at++) {
        if (strcmp(SCENES[at].name, scene) != 0) continue;
        SCENES[at].play();
        MPI_Finalize();
        printf("%s: ok\n", scene);
        return 0;
    }
    must(0, "there is no such scene");
}
