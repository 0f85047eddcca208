// Assertions that fail in kernels: what stands on standard error, and when. With `play` the program is the one that fails, and what
// it itself writes between its calls shows where the text of the assertion comes; without, it starts such ones and reads both
// their streams.
#include "check.h"

#include <assert.h>
#include <cuda_runtime.h>
#include <string>
#include <sys/wait.h>

__global__ void demand(const int *values, int least) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    printf("thread %d has %d\n", i, values[i]);
    assert(values[i] >= least && "values are large enough");
}

template <typename T> __global__ void never(T limit) { assert(limit == 0); }

static void mark(const char *what, cudaError_t error) {
    (void)cudaGetLastError();
    fflush(stdout);
    fprintf(stderr, "-- %s: %s\n", what, cudaGetErrorName(error));
}

static int play(const char *how) {
    int *values;
    cudaEvent_t event;
    cudaStream_t stream;
    CHECK_CUDA(cudaMalloc(&values, 64 * sizeof(int)));
    CHECK_CUDA(cudaMemset(values, 0, 64 * sizeof(int)));
    CHECK_CUDA(cudaMemset(values, 1, 4));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaStreamCreate(&stream));
    if (!strcmp(how, "holds")) {
        demand<<<1, 4, 0, stream>>>(values, 0);
        mark("synchronize", cudaStreamSynchronize(stream));
        return 0;
    }
    if (!strcmp(how, "exits")) {
        demand<<<1, 2, 0, stream>>>(values, 1);
        return 0;
    }
    if (!strcmp(how, "template")) never<double><<<2, dim3(2, 1, 2), 0, stream>>>(1.5);
    else demand<<<1, 3, 0, stream>>>(values, 1);
    mark("launch", cudaPeekAtLastError());
    if (!strcmp(how, "query")) {
        cudaError_t error;
        while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady) (void)cudaGetLastError();
        mark("query", error);
        mark("query again", cudaStreamQuery(stream));
    } else if (!strcmp(how, "event")) {
        mark("record", cudaEventRecord(event, stream));
        mark("event", cudaEventSynchronize(event));
    } else if (!strcmp(how, "copy")) {
        int value;
        mark("copy", cudaMemcpy(&value, values, 4, cudaMemcpyDeviceToHost));
    } else if (!strcmp(how, "device")) {
        mark("device", cudaDeviceSynchronize());
        mark("device again", cudaDeviceSynchronize());
    } else {
        mark("stream", cudaStreamSynchronize(stream));
    }
    mark("free", cudaFree(values));
    return 3;
}

static void read_all(FILE *file, const char *name) {
    rewind(file);
    char line[4096];
    while (fgets(line, sizeof(line), file)) printf("%s| %s%s", name, line, strchr(line, '\n') ? "" : "\n");
    fclose(file);
}

int main(int count, char **arguments) {
    if (count == 3 && !strcmp(arguments[1], "play")) return play(arguments[2]);
    for (const char *how : {"holds", "stream", "template", "device", "event", "query", "copy", "exits"}) {
        FILE *output = tmpfile(), *error = tmpfile();
        printf("== %s\n", how);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            dup2(fileno(output), STDOUT_FILENO);
            dup2(fileno(error), STDERR_FILENO);
            execl("/proc/self/exe", arguments[0], "play", how, (char *)nullptr);
            _exit(127);
        }
        int status = 0;
        waitpid(child, &status, 0);
        read_all(output, "out");
        read_all(error, "err");
        if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
        else printf("exit %d\n", WEXITSTATUS(status));
        fflush(stdout);
    }
    return pass();
}
