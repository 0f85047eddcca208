// Memory that the program did not get from cudaHostAlloc, and that kernel and host really have in common on one host: managed
// memory, registered mappings of shared memory, and registered memory of the process alone.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "check.h"

enum { ROUNDS = 50, COUNT = 100'000 };
static const size_t PAGE = 4096;

__global__ void answer(volatile int *question, volatile int *reply) {
    for (int round = 1; round <= ROUNDS; round++) {
        while (*question != round) {}
        *reply = 3 * round;
        __threadfence_system();
    }
}

__global__ void total(const int *numbers, int count, long long *sum) {
    long long all = 0;
    for (int i = 0; i < count; i++) all += numbers[i];
    *sum = all;
}

__global__ void fill(int *numbers, int count, int value) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) numbers[i] = value;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// The kernel answers at `device` what the host writes at `words`, which may be another mapping of the same pages.
static void talk(const char *kind, volatile int *words, int *device) {
    words[0] = words[1] = 0;
    answer<<<1, 1>>>(device, device + 1);
    (void)cudaStreamQuery(0);  // the launch may still be on its way
    for (int round = 1; round <= ROUNDS; round++) {
        words[0] = round;
        double limit = now() + 20;
        while (words[1] != 3 * round)
            REQUIRE(now() < limit, "%s: the kernel has not answered round %d: %d", kind, round, words[1]);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
}

static long long total_of(const int *device, int count) {
    long long *sum, all;
    CHECK_CUDA(cudaMalloc(&sum, sizeof(all)));
    total<<<1, 1>>>(device, count, sum);
    CHECK_CUDA(cudaMemcpy(&all, sum, sizeof(all), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(sum));
    return all;
}

static void managed(void) {
    int *words;
    CHECK_CUDA(cudaMallocManaged(&words, PAGE));
    talk("managed memory", words, words);
    CHECK_CUDA(cudaFree(words));
}

// A part of a file in memory, which another mapping and a child write to.
static void shared_mapping(void) {
    const size_t bytes = COUNT * sizeof(int) / PAGE * PAGE + PAGE, before = 3 * PAGE;
    int file = memfd_create("shared_pages", MFD_CLOEXEC);
    REQUIRE(file >= 0 && ftruncate(file, (off_t)(before + bytes)) == 0, "no file in memory: %s", strerror(errno));
    auto map = [&] {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)before);
        REQUIRE(memory != MAP_FAILED, "mmap failed: %s", strerror(errno));
        return (int *)memory;
    };
    int *registered = map(), *other = map(), *device, *copied;
    int *first = registered + 5;  // not the first of a page
    CHECK_CUDA(cudaHostRegister(first, COUNT * sizeof(int), cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, first, 0));
    CHECK_CUDA(cudaMalloc(&copied, COUNT * sizeof(int)));
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < COUNT; i++) other[5 + i] = round;
        long long sum = total_of(device, COUNT);
        REQUIRE(sum == (long long)round * COUNT, "another mapping wrote %d: the kernel found %lld", round, sum);
        CHECK_CUDA(cudaMemcpyAsync(copied, first, COUNT * sizeof(int), cudaMemcpyHostToDevice));
        sum = total_of(copied, COUNT);
        REQUIRE(sum == (long long)round * COUNT, "another mapping wrote %d: a copy has %lld", round, sum);
    }
    pid_t child = fork();
    REQUIRE(child >= 0, "fork failed: %s", strerror(errno));
    if (child == 0) {
        for (int i = 0; i < COUNT; i++) registered[5 + i] = 9;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    REQUIRE(total_of(device, COUNT) == 9LL * COUNT, "what a child wrote is not what the kernel finds");
    talk("a registered mapping", other + 5, device);
    fill<<<1, 256>>>(device, COUNT, 4);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaHostUnregister(first));
    for (int i = 0; i < COUNT; i++) REQUIRE(other[5 + i] == 4, "after the end %d is at %d", other[5 + i], i);
    first[0] = 6;
    REQUIRE(other[5] == 6, "the mapping is another one after the end");
    CHECK_CUDA(cudaFree(copied));
    munmap(registered, bytes);
    munmap(other, bytes);
    close(file);
}

// Whether a process may hold back system calls that write to its memory: without that private memory is mirrored.
static bool may_move(void) {
    long descriptor = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (descriptor >= 0) close((int)descriptor);
    return descriptor >= 0;
}

// Memory of malloc, at an address that begins no page, while another thread counts in it.
static void private_memory(void) {
    int *numbers = (int *)malloc((COUNT + 64) * sizeof(int)), *device;
    REQUIRE(numbers, "no memory");
    for (int i = 0; i < COUNT + 64; i++) numbers[i] = i;
    std::atomic<bool> over{false};
    int count = 0;
    volatile int *counted = numbers + COUNT;
    std::thread thread([&] {
        *counted = 0;
        while (!over) {
            count++;
            *counted = *counted + 1;
        }
    });
    for (int round = 0; round < 4; round++) {
        CHECK_CUDA(cudaHostRegister(numbers, (COUNT + 1) * sizeof(int), cudaHostRegisterMapped));
        CHECK_CUDA(cudaHostGetDevicePointer(&device, numbers, 0));
        long long sum = total_of(device + 2, COUNT - 2), wanted = (long long)COUNT * (COUNT - 1) / 2 - 1;
        REQUIRE(sum == wanted, "round %d: the kernel found %lld instead of %lld", round, sum, wanted);
        if (may_move()) talk("registered memory", numbers, device);
        numbers[0] = 0;
        numbers[1] = 1;
        // A child has its own copy, as of the fork.
        pid_t child = fork();
        REQUIRE(child >= 0, "fork failed: %s", strerror(errno));
        if (child == 0) {
            for (int i = 0; i < COUNT; i++)
                if (numbers[i] != i) _exit(1);
            memset(numbers, 0x55, COUNT * sizeof(int));
            _exit(0);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0, "a child found other numbers: %d", status);
        for (int i = 0; i < COUNT; i++) REQUIRE(numbers[i] == i, "a child wrote %d at %d", numbers[i], i);
        // It ends with its context, too.
        if (round % 2) {
            CHECK_CUDA(cudaHostUnregister(numbers));
        } else {
            CHECK_CUDA(cudaDeviceReset());
            (void)cudaHostUnregister(numbers);
            (void)cudaGetLastError();
        }
        for (int i = 0; i < COUNT; i++) REQUIRE(numbers[i] == i, "after the end %d is at %d", numbers[i], i);
    }
    over = true;
    thread.join();
    REQUIRE(*counted == count, "%d of %d writes are there", *counted, count);
    free(numbers);
}

// A stream waits for what the program writes; over a network it is told that it cannot.
static void value_of_host() {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000, cudaEnableDefault, &found));
    auto wait_value = reinterpret_cast<decltype(&cuStreamWaitValue32)>(function);
    unsigned *pinned, *in_managed;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMallocHost(&pinned, 4096));
    CHECK_CUDA(cudaMallocManaged(&in_managed, 4096));
    for (unsigned *word : {pinned, in_managed}) {
        *word = 0;
        const CUresult result = wait_value(stream, reinterpret_cast<CUdeviceptr>(word), 3, CU_STREAM_WAIT_VALUE_EQ);
        REQUIRE(result == CUDA_SUCCESS, "cuStreamWaitValue32 for memory of the host returned error %d", result);
        EXPECT_CUDA(cudaStreamQuery(stream), cudaErrorNotReady);
        reinterpret_cast<std::atomic<unsigned> *>(word)->store(3);
        CHECK_CUDA(cudaStreamSynchronize(stream));
    }
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(in_managed));
    CHECK_CUDA(cudaFreeHost(pinned));
}

int main(void) {
    managed();
    value_of_host();
    shared_mapping();
    private_memory();
    return pass();
}
