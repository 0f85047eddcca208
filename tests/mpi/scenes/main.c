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
    char *host = malloc(bytes), *gpu = gpu_take(memory, bytes);
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

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    scene = argc > 1 ? argv[1] : "";
    gpu_start_on(rank);
    // So that all have joined the job.
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(scene, "while_blocked") == 0)
        while_blocked();
    else if (strcmp(scene, "barrier") == 0)
        while_in_barrier(0);
    else if (strcmp(scene, "synchronous") == 0)
        while_in_barrier(1);
    else if (strcmp(scene, "mixed_requests") == 0)
        mixed_requests();
    else if (strcmp(scene, "any_source") == 0)
        any_source();
    else if (strcmp(scene, "errors") == 0)
        errors();
    else if (strcmp(scene, "refused") == 0)
        refused();
    else if (strcmp(scene, "gaps") == 0)
        gaps();
    else if (strcmp(scene, "exchange") == 0)
        exchange();
    else if (strcmp(scene, "persistent") == 0)
        persistent();
    else if (strcmp(scene, "matched") == 0)
        matched();
    else if (strcmp(scene, "death") == 0)
        death();
    else if (strcmp(scene, "death_in_transfer") == 0)
        death_in_transfer();
    else if (strcmp(scene, "checked") == 0)
        checked();
    else if (strcmp(scene, "lengths") == 0)
        lengths();
    else if (strcmp(scene, "death_in_call") == 0)
        death_in_call();
    else if (strcmp(scene, "recovery") == 0)
        recovery();
    else
        must(0, "there is no such scene");
    MPI_Finalize();
    printf("%s: ok\n", scene);
    return 0;
}
