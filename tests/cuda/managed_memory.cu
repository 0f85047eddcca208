// Managed memory: both ways, as `__managed__` variables, linked through itself, written by system calls, used by a program that
// catches its own faults; prefetching, advice, streams, and what CUDA refuses.
//
// The program waits for the device before it touches the memory, as it must where concurrentManagedAccess is 0.
#include "check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>

constexpr int COUNT = 100000;

__managed__ int counter = 5;
__managed__ float table[1000] = {1, 2, 3};
__managed__ int *pointer;
__device__ int plain = 11;

__global__ void add(int *data, int n, int amount) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += amount;
}

__global__ void use_variables() {
    counter += plain;
    table[999] = table[0] + table[1] + table[2];
    if (pointer) *pointer = counter;
}

struct Node {
    int value;
    Node *next;
};

__global__ void walk(Node *node, int *sum) {
    for (; node; node = node->next) {
        *sum += node->value;
        node->value = -node->value;
    }
}

static void run_add(int *data, int amount, cudaStream_t stream = 0) {
    add<<<(COUNT + 255) / 256, 256, 0, stream>>>(data, COUNT, amount);
    CHECK_LAUNCH();
}

static void both_ways() {
    int *data;
    CHECK_CUDA(cudaMallocManaged(&data, COUNT * sizeof(int)));
    REQUIRE(data[0] == 0 && data[COUNT - 1] == 0, "fresh memory holds %d and %d", data[0], data[COUNT - 1]);
    for (int i = 0; i < COUNT; i++) data[i] = i;
    for (int round = 1; round <= 5; round++) {
        run_add(data, 1);
        CHECK_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < COUNT; i++)
            REQUIRE(data[i] == i + 2 * round - 1, "round %d: element %d is %d", round, i, data[i]);
        for (int i = 0; i < COUNT; i++) data[i] += 1;
    }
    // Much of it, of which host and device change little.
    const size_t many = 5 * 1000 * 1000 + 3;
    int *large;
    CHECK_CUDA(cudaMallocManaged(&large, many * sizeof(int)));
    for (size_t i = 0; i < many; i++) large[i] = int(i);
    for (int round = 0; round < 3; round++) {
        add<<<(COUNT + 255) / 256, 256>>>(large + many - COUNT, COUNT, 1);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        REQUIRE(large[many - 1] == int(many) - 1 + 2 * round + 1 && large[77 + round] == 77 + round, "large, round %d: %d, %d", round,
                large[many - 1], large[77 + round]);
        for (size_t i = many - COUNT; i < many; i++) large[i] += 1;
    }
    CHECK_CUDA(cudaFree(large));
    // Copies to, from and within it.
    int *device;
    CHECK_CUDA(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK_CUDA(cudaMemcpy(device, data, COUNT * sizeof(int), cudaMemcpyDefault));
    CHECK_CUDA(cudaMemset(data, 0, COUNT * sizeof(int)));
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(data[17] == 0, "after a memset: %d", data[17]);
    CHECK_CUDA(cudaMemcpy(data, device, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(data[17] == 27, "after a copy: %d", data[17]);
    CHECK_CUDA(cudaMemcpy(data + 1, data + 17, sizeof(int), cudaMemcpyDefault));
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(data[1] == 27, "after a copy inside: %d", data[1]);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(data));
    EXPECT_CUDA(cudaFree(data), cudaErrorInvalidValue);
}

static void linked() {
    const int nodes = 300;
    Node *first = nullptr;
    Node *all[nodes];
    for (int i = 0; i < nodes; i++) {
        CHECK_CUDA(cudaMallocManaged(&all[i], sizeof(Node)));
        *all[i] = Node{i, first};
        first = all[i];
    }
    int *sum;
    CHECK_CUDA(cudaMallocManaged(&sum, sizeof(int)));
    *sum = 0;
    walk<<<1, 1>>>(first, sum);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(*sum == nodes * (nodes - 1) / 2, "the sum of a list is %d", *sum);
    for (int i = 0; i < nodes; i++) REQUIRE(all[i]->value == -i, "node %d holds %d", i, all[i]->value);
    for (int i = 0; i < nodes; i++) CHECK_CUDA(cudaFree(all[i]));
    CHECK_CUDA(cudaFree(sum));
}

static void variables() {
    REQUIRE(counter == 5 && table[2] == 3 && table[999] == 0, "initial values are %d, %g, %g", counter, table[2], table[999]);
    table[0] = 10;
    counter = 100;
    use_variables<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(counter == 111 && table[999] == 15, "a kernel made them %d, %g", counter, table[999]);
    CHECK_CUDA(cudaMallocManaged(&pointer, sizeof(int)));
    use_variables<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(counter == 122 && *pointer == 122, "through a pointer came %d", *pointer);
    void *address;
    CHECK_CUDA(cudaGetSymbolAddress(&address, counter));
    REQUIRE(address == &counter, "the variable at %p has the address %p on the device", (void *)&counter, address);
    cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, &counter));
    REQUIRE(attributes.type == cudaMemoryTypeManaged, "a managed variable is memory of type %d", attributes.type);
    CHECK_CUDA(cudaFree(pointer));
}

// The kernel of the operating system writes to the memory and reads from it.
static void system_calls() {
    char name[] = "/tmp/causeway_managed_XXXXXX";
    int file = mkstemp(name);
    REQUIRE(file >= 0, "no temporary file");
    unlink(name);
    int *data;
    const size_t bytes = COUNT * sizeof(int);
    CHECK_CUDA(cudaMallocManaged(&data, bytes));
    for (int i = 0; i < COUNT; i++) data[i] = 3 * i;
    REQUIRE(write(file, data, bytes) == ssize_t(bytes), "write failed");
    CHECK_CUDA(cudaMemset(data, 0, bytes));
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(pread(file, data, bytes, 0) == ssize_t(bytes), "read failed");
    run_add(data, 1);
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(pwrite(file, data, bytes, 0) == ssize_t(bytes), "write failed");
    int value;
    REQUIRE(pread(file, &value, sizeof value, 1000 * sizeof(int)) == sizeof value && value == 3001, "the file holds %d", value);
    close(file);
    CHECK_CUDA(cudaFree(data));
}

static sigjmp_buf back;
static volatile uintptr_t fault_address;

static void on_fault(int, siginfo_t *info, void *) {
    fault_address = uintptr_t(info->si_addr);
    siglongjmp(back, 1);
}

// The program's own handler gets its own faults, and none of ours.
static void own_faults() {
    struct sigaction action = {}, before;
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    REQUIRE(sigaction(SIGSEGV, &action, &before) == 0, "no signal handler");
    volatile char *nothing = static_cast<char *>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    int *data;
    CHECK_CUDA(cudaMallocManaged(&data, COUNT * sizeof(int)));
    for (int round = 0; round < 3; round++) {
        data[round] = 1;
        run_add(data, 1);
        CHECK_CUDA(cudaDeviceSynchronize());
        REQUIRE(data[round] == 2 + 0 * round, "with a handler: %d", data[round]);
        data[round] = 0;
        fault_address = 0;
        if (sigsetjmp(back, 1) == 0) {
            nothing[5] = 1;
            fail("a store to memory without access was possible");
        }
        REQUIRE(fault_address == uintptr_t(nothing + 5), "the fault was at %p", (void *)fault_address);
        run_add(data, -1);
        CHECK_CUDA(cudaDeviceSynchronize());
        for (int i = 0; i <= round; i++) data[i] = 0;
    }
    sigaction(SIGSEGV, &before, nullptr);
    munmap(const_cast<char *>(nothing), 4096);
    CHECK_CUDA(cudaFree(data));
}

static int range_attribute(cudaMemRangeAttribute attribute, const void *data, size_t bytes) {
    int value = -77;
    CHECK_CUDA(cudaMemRangeGetAttribute(&value, sizeof value, attribute, data, bytes));
    return value;
}

static void hints() {
    int *data;
    const size_t bytes = 1 << 20, half = bytes / 2;
    CHECK_CUDA(cudaMallocManaged(&data, bytes));
    cudaMemLocation device = {}, host = {};
    device.type = cudaMemLocationTypeDevice;
    host.type = cudaMemLocationTypeHost;
    REQUIRE(range_attribute(cudaMemRangeAttributeReadMostly, data, bytes) == 0, "fresh memory is read mostly");
    REQUIRE(range_attribute(cudaMemRangeAttributePreferredLocation, data, bytes) == cudaInvalidDeviceId, "a preferred location");
    CHECK_CUDA(cudaMemAdvise(data, bytes, cudaMemAdviseSetReadMostly, device));
    REQUIRE(range_attribute(cudaMemRangeAttributeReadMostly, data, bytes) == 1, "not read mostly");
    CHECK_CUDA(cudaMemAdvise(data, half, cudaMemAdviseUnsetReadMostly, device));
    REQUIRE(range_attribute(cudaMemRangeAttributeReadMostly, data, bytes) == 0, "all of it is still read mostly");
    REQUIRE(range_attribute(cudaMemRangeAttributeReadMostly, data + half / sizeof(int), half) == 1, "the half is not read mostly");
    CHECK_CUDA(cudaMemAdvise(data, bytes, cudaMemAdviseUnsetReadMostly, device));
    CHECK_CUDA(cudaMemAdvise(data, bytes, cudaMemAdviseSetPreferredLocation, host));
    REQUIRE(range_attribute(cudaMemRangeAttributePreferredLocation, data, bytes) == cudaCpuDeviceId, "the host is not preferred");
    CHECK_CUDA(cudaMemAdvise(data, bytes, cudaMemAdviseUnsetPreferredLocation, host));
    CHECK_CUDA(cudaMemAdvise(data, bytes, cudaMemAdviseSetAccessedBy, device));
    int by[2] = {-77, -77};
    CHECK_CUDA(cudaMemRangeGetAttribute(by, sizeof by, cudaMemRangeAttributeAccessedBy, data, bytes));
    REQUIRE(by[0] == 0 && by[1] == cudaInvalidDeviceId, "accessed by %d and %d", by[0], by[1]);

    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    for (size_t i = 0; i < bytes / sizeof(int); i++) data[i] = 1;
    CHECK_CUDA(cudaMemPrefetchAsync(data, bytes, device, 0, stream));
    run_add(data, 1, stream);
    CHECK_CUDA(cudaMemPrefetchAsync(data, bytes, host, 0, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(data[COUNT - 1] == 2 && data[COUNT] == 1, "after prefetches: %d, %d", data[COUNT - 1], data[COUNT]);
    REQUIRE(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, data, bytes) == cudaCpuDeviceId, "the last prefetch");

    CHECK_CUDA(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachSingle));
    run_add(data, 1, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    REQUIRE(data[0] == 3, "attached to a stream: %d", data[0]);
    CHECK_CUDA(cudaStreamAttachMemAsync(stream, data, 0, cudaMemAttachGlobal));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamDestroy(stream));

    cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, data + 1));
    REQUIRE(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == data + 1 && attributes.hostPointer == data + 1,
            "managed memory is of type %d with the pointers %p and %p", attributes.type, attributes.devicePointer, attributes.hostPointer);
    CHECK_CUDA(cudaFree(data));
}

static void wrong_uses() {
    int *data;
    EXPECT_CUDA(cudaMallocManaged(&data, 4096, 77), cudaErrorInvalidValue);
    CHECK_CUDA(cudaMallocManaged(&data, 4096));
    cudaMemLocation nowhere = {};
    nowhere.type = cudaMemLocationTypeDevice;
    nowhere.id = 1000;
    EXPECT_CUDA(cudaMemPrefetchAsync(data, 4096, nowhere, 0, 0), cudaErrorInvalidDevice);
    nowhere.id = 0;
    int *device;
    CHECK_CUDA(cudaMalloc(&device, 4096));
    EXPECT_CUDA(cudaMemPrefetchAsync(device, 4096, nowhere, 0, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaStreamAttachMemAsync(0, data, 5, cudaMemAttachGlobal), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFreeHost(data), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(data));
}

// Several allocations that may lie side by side, each written whole by kernels and by the host in turns.
static void neighbours() {
    constexpr int MANY = 4, WORDS = 1 << 20;
    int *memory[MANY];
    for (int *&one : memory) {
        CHECK_CUDA(cudaMallocManaged(&one, WORDS * sizeof(int)));
        for (int i = 0; i < WORDS; i++) one[i] = i;
    }
    for (int round = 1; round <= 3; round++) {
        for (int which = 0; which < MANY; which++) add<<<WORDS / 256, 256>>>(memory[which], WORDS, round * (which + 1));
        CHECK_LAUNCH();
        CHECK_CUDA(cudaDeviceSynchronize());
        for (int which = 0; which < MANY; which++)
            for (int i = 0; i < WORDS; i++) {
                const int expected = i + round * (which + 1) + round - 1;
                REQUIRE(memory[which][i] == expected, "round %d: word %d of allocation %d is %d, not %d", round, i, which,
                        memory[which][i], expected);
                memory[which][i] = i + round;
            }
    }
    for (int *one : memory) CHECK_CUDA(cudaFree(one));
}

int main() {
    int managed = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
    REQUIRE(managed == 1, "the device has no managed memory");
    both_ways();
    linked();
    variables();
    neighbours();
    system_calls();
    own_faults();
    hints();
    wrong_uses();
    return pass();
}
