// Host memory that kernels and copies read, and that is written past the mapping which is registered: by another mapping, by another
// process, by the file, and by the system through pages that it has looked up before (io_uring's registered buffers).
#include "check.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <vector>

constexpr int COUNT = 1 << 15;
constexpr size_t BYTES = COUNT * sizeof(int);

__global__ void add_all(const int *data, long long *sum) {
    long long part = 0;
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) part += data[i];
    atomicAdd(reinterpret_cast<unsigned long long *>(sum), static_cast<unsigned long long>(part));
}

__global__ void put_all(int *data, int value) {
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) data[i] = value;
}

static long long *sum_;
static int *copied_;

// What a kernel finds at `device`, and after a copy of what lies at `host`.
static void require_found(int *host, int *device, int value, const char *what) {
    long long sum;
    CHECK_CUDA(cudaMemset(sum_, 0, sizeof(sum)));
    add_all<<<1, 128>>>(device, sum_);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(&sum, sum_, sizeof(sum), cudaMemcpyDeviceToHost));
    REQUIRE(sum == 1LL * value * COUNT, "%s: a kernel finds the sum %lld, not %lld", what, sum, 1LL * value * COUNT);
    std::vector<int> back(COUNT);
    CHECK_CUDA(cudaMemcpyAsync(copied_, host, BYTES, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(back.data(), copied_, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(back[i] == value, "%s: a copy has %d at %d, not %d", what, back[i], i, value);
}

static void fill(int *data, int value) {
    for (int i = 0; i < COUNT; i++) data[i] = value;
}

static void two_mappings() {
    int file = memfd_create("segment", MFD_CLOEXEC);
    REQUIRE(file >= 0 && ftruncate(file, BYTES) == 0, "no file in memory");
    auto map = [&] { return static_cast<int *>(mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)); };
    int *registered = map(), *other = map(), *device;
    REQUIRE(registered != MAP_FAILED && other != MAP_FAILED, "mmap failed");
    fill(registered, 1);
    CHECK_CUDA(cudaHostRegister(registered, BYTES, cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, registered, 0));
    require_found(registered, device, 1, "written before");
    for (int value = 2; value < 5; value++) {
        fill(other, value);
        require_found(registered, device, value, "written by another mapping");
    }
    pid_t child = fork();
    if (child == 0) {
        fill(other, 7);
        _exit(0);
    }
    REQUIRE(child > 0 && waitpid(child, nullptr, 0) == child, "no child");
    require_found(registered, device, 7, "written by another process");
    std::vector<int> values(COUNT, 8);
    REQUIRE(pwrite(file, values.data(), BYTES, 0) == static_cast<ssize_t>(BYTES), "pwrite failed");
    require_found(registered, device, 8, "written to the file");
    put_all<<<1, 128>>>(device, 9);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++) REQUIRE(other[i] == 9, "the other mapping has %d at %d after a kernel", other[i], i);
    // What the kernel wrote is overwritten, and a copy puts the same there again.
    fill(other, 10);
    CHECK_CUDA(cudaMemset(copied_, 0, BYTES));
    put_all<<<1, 128>>>(copied_, 9);
    CHECK_CUDA(cudaMemcpy(registered, copied_, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) REQUIRE(other[i] == 9, "the other mapping has %d at %d after a copy", other[i], i);
    CHECK_CUDA(cudaHostUnregister(registered));
    munmap(registered, BYTES);
    munmap(other, BYTES);
    close(file);
}

// A ring for one request at a time.
struct Ring {
    int descriptor = -1;
    io_uring_params parameters{};
    char *submissions = nullptr, *completions = nullptr;
    io_uring_sqe *entries = nullptr;

    bool open() {
        descriptor = static_cast<int>(syscall(SYS_io_uring_setup, 4, &parameters));
        if (descriptor < 0) return false;
        auto map = [&](size_t bytes, off_t what) {
            return static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, what));
        };
        submissions = map(parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
        completions = map(parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
        entries = reinterpret_cast<io_uring_sqe *>(map(parameters.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES));
        return true;
    }

    bool add_buffer(void *memory) {
        iovec buffer{memory, BYTES};
        return syscall(SYS_io_uring_register, descriptor, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
    }

    // Reads a file into the registered buffer, and returns what a read would.
    int read_fixed(int file, void *memory) {
        auto *tail = reinterpret_cast<unsigned *>(submissions + parameters.sq_off.tail);
        unsigned place = *tail & *reinterpret_cast<unsigned *>(submissions + parameters.sq_off.ring_mask);
        io_uring_sqe entry{};
        entry.opcode = IORING_OP_READ_FIXED;
        entry.fd = file;
        entry.addr = reinterpret_cast<unsigned long>(memory);
        entry.len = BYTES;
        entries[place] = entry;
        reinterpret_cast<unsigned *>(submissions + parameters.sq_off.array)[place] = place;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, descriptor, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) return -errno;
        auto *head = reinterpret_cast<unsigned *>(completions + parameters.cq_off.head);
        unsigned mask = *reinterpret_cast<unsigned *>(completions + parameters.cq_off.ring_mask);
        int result = reinterpret_cast<io_uring_cqe *>(completions + parameters.cq_off.cqes)[*head & mask].res;
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        return result;
    }
};

// Reads files into memory by pages that the system has looked up before. Systems without io_uring, and memory that it does not take (as
// it does not NVIDIA's managed memory), are passed over.
static void looked_up_before(int *host, int *device, const char *what) {
    fill(host, 1);
    require_found(host, device, 1, what);
    Ring ring;
    if (ring.open() && ring.add_buffer(host)) {
        for (int value = 2; value < 6; value++) {
            int file = memfd_create("data", MFD_CLOEXEC);
            std::vector<int> values(COUNT, value);
            REQUIRE(write(file, values.data(), BYTES) == static_cast<ssize_t>(BYTES), "a file of %zu bytes", BYTES);
            int got = ring.read_fixed(file, host);
            REQUIRE(got == static_cast<int>(BYTES) && host[COUNT - 1] == value, "%s: a read gave %d", what, got);
            require_found(host, device, value, what);
            close(file);
        }
    }
    close(ring.descriptor);
}

int main() {
    CHECK_CUDA(cudaMalloc(&sum_, sizeof(long long)));
    CHECK_CUDA(cudaMalloc(&copied_, BYTES));
    two_mappings();

    int *host, *device;
    CHECK_CUDA(cudaHostAlloc(&host, BYTES, cudaHostAllocMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, host, 0));
    looked_up_before(host, device, "pinned memory");
    CHECK_CUDA(cudaFreeHost(host));
    host = static_cast<int *>(aligned_alloc(4096, BYTES));
    CHECK_CUDA(cudaHostRegister(host, BYTES, cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&device, host, 0));
    looked_up_before(host, device, "registered memory");
    CHECK_CUDA(cudaHostUnregister(host));
    free(host);
    CHECK_CUDA(cudaMallocManaged(&host, BYTES));
    looked_up_before(host, host, "managed memory");
    CHECK_CUDA(cudaFree(host));
    CHECK_CUDA(cudaFree(copied_));
    CHECK_CUDA(cudaFree(sum_));
    return pass();
}
