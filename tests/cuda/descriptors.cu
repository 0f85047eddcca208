// Programs that were started without standard streams, or close descriptors that they have not opened: no descriptor of
// the library stands in the place of a standard stream, and the library writes nothing into the program's files that
// have got its numbers. Argument: `streams` or `others`.
#include "check.h"

#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { COUNT = 1 << 20, FILES = 64 };

__global__ void add(int *values, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += 1;
}

// None of the three is open.
static void require_closed(const char *when) {
    for (int stream = 0; stream < 3; stream++)
        REQUIRE(fcntl(stream, F_GETFD) < 0 && errno == EBADF, "descriptor %d is open after %s", stream, when);
}

static void without_streams(void) {
    // The result goes where the standard output went.
    int kept = fcntl(1, F_DUPFD_CLOEXEC, 200);
    for (int stream = 0; stream < 3; stream++) close(stream);
    int *device, *pinned;
    cudaError_t error = cudaMalloc(&device, COUNT * sizeof(int));
    int is_closed = fcntl(1, F_GETFD) < 0;
    if (error == cudaSuccess) error = cudaMallocHost(&pinned, COUNT * sizeof(int));
    if (error == cudaSuccess) error = cudaMemset(device, 0, COUNT * sizeof(int));
    if (error == cudaSuccess) {
        add<<<COUNT / 256, 256>>>(device, COUNT);
        // Goes nowhere.
        printf("%s", "lost\n");
        fflush(stdout);
        error = cudaMemcpy(pinned, device, COUNT * sizeof(int), cudaMemcpyDeviceToHost);
    }
    int is_right = error == cudaSuccess && pinned[0] == 1 && pinned[COUNT - 1] == 1;
    require_closed("copies");
    dup2(kept, 1);
    clearerr(stdout);
    REQUIRE(is_closed, "a descriptor of the library is the program's standard output");
    REQUIRE(is_right, "without standard streams: %s", cudaGetErrorString(error));
}

static void closing_others(void) {
    int *device, *pinned;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK_CUDA(cudaMallocHost(&pinned, COUNT * sizeof(int)));
    add<<<COUNT / 256, 256>>>(device, COUNT);
    CHECK_CUDA(cudaDeviceSynchronize());
    // The library may say that its connection is lost.
    int nowhere = open("/dev/null", O_WRONLY);
    REQUIRE(nowhere >= 0 && dup2(nowhere, 2) == 2, "no /dev/null: %s", strerror(errno));
    syscall(SYS_close_range, 3, ~0u, 0);
    int files[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i] = (int)syscall(SYS_memfd_create, "mine", 0);
        REQUIRE(files[i] >= 0, "no file: %s", strerror(errno));
    }
    // These may fail.
    add<<<COUNT / 256, 256>>>(device, COUNT);
    cudaMemcpy(pinned, device, COUNT * sizeof(int), cudaMemcpyDeviceToHost);
    void *more;
    cudaMalloc(&more, 64 << 20);
    for (int i = 0; i < FILES; i++) {
        struct stat found;
        REQUIRE(fstat(files[i], &found) == 0, "a file of the program is closed");
        REQUIRE(found.st_size == 0, "%ld bytes of the library are in the program's file", (long)found.st_size);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "others") == 0) {
        closing_others();
        pass();
        // What the program has closed the library's end would miss.
        _exit(0);
    }
    without_streams();
    return pass();
}
