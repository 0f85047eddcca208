// A process that ends, in each of many ways, at each of many moments. Arguments: the moment, the end.
//
// What is to happen natively happens through Causeway: the end comes, by the status that it stands for.
#include "check.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

// Works for a while: some end while it does.
__global__ void work(int *values, int rounds) {
    for (int i = 0; i < rounds; i++) values[threadIdx.x] += i;
}

static const char *the_end;
static int *device;

static void wait_for(pid_t child) {
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "the child ended with %#x", status);
}

// Ends the process as the argument says; comes back where that leaves it going on.
static void end(void) {
    const char *name = the_end;
    if (!strcmp(name, "exit")) exit(3);
    if (!strcmp(name, "_exit")) _exit(3);
    if (!strcmp(name, "quick_exit")) quick_exit(3);
    if (!strcmp(name, "abort")) abort();
    if (!strcmp(name, "signal")) {
        // To the process: threads of the library take no signals.
        kill(getpid(), SIGTERM);
        for (;;) pause();
    }
    if (!strcmp(name, "exec")) execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
    if (!strcmp(name, "fork")) {
        pid_t child = fork();
        if (child == 0) exit(0);
        wait_for(child);
    } else if (!strcmp(name, "streams")) {
        for (int stream = 0; stream < 3; stream++) close(stream);
    } else if (!strcmp(name, "limits")) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        setrlimit(RLIMIT_NOFILE, &none);
    }
}

static void in_callback(void *) { end(); }

static void *wait_for_device(void *) {
    cudaDeviceSynchronize();
    return NULL;
}

int main(int argc, char **argv) {
    REQUIRE(argc == 3, "a moment and an end are wanted");
    const char *moment = argv[1];
    the_end = argv[2];
    if (!strcmp(moment, "at_exit")) atexit(end);
    CHECK_CUDA(cudaMalloc(&device, 1 << 20));
    if (!strcmp(moment, "start")) end();
    work<<<1, 32>>>(device, 20000);
    if (!strcmp(moment, "working")) end();
    if (!strcmp(moment, "waiting")) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, wait_for_device, NULL) == 0, "no thread can be started");
        end();
        pthread_join(thread, NULL);
    }
    if (!strcmp(moment, "callback")) CHECK_CUDA(cudaLaunchHostFunc(0, in_callback, NULL));
    cudaDeviceSynchronize();
    cudaFree(device);
    return 3;
}
