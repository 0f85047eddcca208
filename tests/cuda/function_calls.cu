// CUDA calls in functions that streams call: refused where they allocate, free, wait, copy or record, and never a deadlock. What
// a driver answered (580, H100) is what is expected.
#include "check.h"

#include <cuda.h>
#include <cuda_runtime.h>

static int *pinned, *device_data;
static cudaStream_t other;
static cudaEvent_t event;
static CUcontext context;

static int calls;
static bool done;

static void *ignored;
static int number;
static size_t size;

#define REFUSED(call) \
    do { \
        int status = (int)(call); \
        REQUIRE(status == 800, "%s in a function of a stream returned %d", #call, status); \
        calls++; \
    } while (0)

static void CUDART_CB call_all(void *) {
    REFUSED(cudaFreeHost(pinned));
    REFUSED(cudaMalloc(&ignored, 64));
    REFUSED(cudaMallocHost(&ignored, 64));
    REFUSED(cudaFree(device_data));
    REFUSED(cudaFreeAsync(device_data, other));
    REFUSED(cudaStreamSynchronize(other));
    REFUSED(cudaStreamQuery(other));
    REFUSED(cudaMemcpy(&number, device_data, 4, cudaMemcpyDeviceToHost));
    REFUSED(cudaDeviceSynchronize());
    REFUSED(cudaEventRecord(event, other));
    REFUSED(cuCtxGetCurrent((CUcontext *)&ignored));
    REFUSED(cuCtxSetCurrent(context));
    REFUSED(cuCtxDestroy(context));
    REFUSED(cuMemAlloc((CUdeviceptr *)&ignored, 64));
    REFUSED(cuMemGetInfo(&size, &size));
    REFUSED(cuStreamQuery(nullptr));
    REFUSED(cuEventRecord(event, nullptr));
    REFUSED(cuLaunchHostFunc(nullptr, call_all, nullptr));
    REFUSED(cuEventCreate((CUevent *)&ignored, 0));
    REFUSED(cuGraphCreate((CUgraph *)&ignored, 0));
    CHECK_CUDA(cudaEventQuery(event));
    CHECK_CUDA((cudaError_t)cuStreamQuery(other));
    CHECK_CUDA((cudaError_t)cuEventRecord(event, other));
    CHECK_CUDA((cudaError_t)cuStreamWaitEvent(other, event, 0));
    done = true;
}

static void CUDART_CB call_all_back(cudaStream_t, cudaError_t status, void *data) {
    REQUIRE(status == cudaSuccess, "a callback of a good stream is told %d", status);
    call_all(data);
}

static void check(const char *what, int wanted) {
    REQUIRE(done && calls == wanted, "%s: %d calls were refused", what, calls);
    done = false;
    calls = 0;
}

int main() {
    cudaStream_t stream;
    CHECK_CUDA(cudaMallocHost(&pinned, 1 << 20));
    CHECK_CUDA(cudaMalloc(&device_data, 64));
    CHECK_CUDA(cudaStreamCreate(&other));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA((cudaError_t)cuCtxGetCurrent(&context));
    CHECK_CUDA(cudaLaunchHostFunc(stream, call_all, nullptr));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    check("a host function", 20);
    CHECK_CUDA(cudaStreamAddCallback(stream, call_all_back, nullptr, 0));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    check("a callback", 20);

    cudaUserObject_t object;
    CHECK_CUDA(cudaUserObjectCreate(&object, nullptr, call_all, 1, cudaUserObjectNoDestructorSync));
    CHECK_CUDA(cudaUserObjectRelease(object, 1));
    // Comes behind the destructor, on the same thread.
    for (int waited = 0; waited < 3000 && !*(volatile bool *)&done; waited++) usleep(10000);
    check("a destructor", 20);

    // The pinned and the device memory are there as before.
    pinned[0] = 7;
    CHECK_CUDA(cudaMemcpy(device_data, pinned, 4, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(&number, device_data, 4, cudaMemcpyDeviceToHost));
    REQUIRE(number == 7, "the value is %d", number);
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_CUDA(cudaFree(device_data));
    return pass();
}
