// A program whose session is moved, and what its code has besides kernels: variables that kernels change, tables of the addresses of
// other variables and of device functions, constants.  It works until the file of the first argument is there, and checks every value.
// `asked` as the second argument has the program know the address of a variable, `stored` has a kernel keep one in device memory,
// `pinned` has kernels change memory of the program.
#include "check.h"

#include <cstdlib>
#include <thread>

// Code with one variable, which has another value in the code than in the program: it lies with no other.
static const char *const CLEARED = R"(
.version 6.4
.target sm_70
.address_size 64
.global .align 4 .u32 only = 5;
.visible .entry clear() {
    .reg .u32 %r<2>;
    mov.u32 %r1, 0;
    st.global.u32 [only], %r1;
    ret;
}
.visible .entry take(.param .u64 to) {
    .reg .u64 %rd<3>;
    .reg .u32 %r<2>;
    ld.param.u64 %rd1, [to];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [only];
    st.global.u32 [%rd2], %r1;
    ret;
}
)";

constexpr int COUNT = 4096;

__device__ unsigned table[COUNT];
__device__ unsigned steps_done;
static __device__ unsigned hidden = 3;
__device__ const char *names[] = {"alpha", "beta"};
__device__ unsigned *inner = &table[5];
__constant__ unsigned factors[4] = {1, 2, 3, 4};
__device__ unsigned one(unsigned value) { return value + 1; }
__device__ unsigned two(unsigned value) { return value + 2; }
__device__ unsigned (*functions[2])(unsigned) = {one, two};
__device__ unsigned *kept;

__global__ void step(unsigned *sums, unsigned number) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    static __device__ unsigned calls;
    table[i] += functions[number % 2](factors[number % 4]);
    sums[i] = table[i] + names[number % 2][0];
    if (i == 0) {
        steps_done++;
        hidden += 2;
        atomicAdd(&calls, 1u);
        sums[COUNT] = steps_done;
        sums[COUNT + 1] = hidden;
        sums[COUNT + 2] = calls;
        sums[COUNT + 3] = *inner;
    }
}

__global__ void keep(unsigned **where) { *where = kept = &table[7]; }
__global__ void add(unsigned *value) { atomicAdd(value, 1u); }

int main(int count, char **arguments) {
    REQUIRE(count >= 2, "give a file whose being there ends the program");
    const char *how = count > 2 ? arguments[2] : "";
    unsigned *sums, **where;
    CHECK_CUDA(cudaMalloc(&sums, (COUNT + 5) * sizeof *sums));
    CHECK_CUDA(cudaMalloc(&where, sizeof *where));
    if (strcmp(how, "asked") == 0) {
        void *address;
        CHECK_CUDA(cudaGetSymbolAddress(&address, table));
        printf("the table lies at %p\n", address);
    }
    if (strcmp(how, "stored") == 0) keep<<<1, 1>>>(where);
    unsigned *pinned = nullptr;
    if (strcmp(how, "pinned") == 0) {
        CHECK_CUDA(cudaHostAlloc(&pinned, 1 << 20, cudaHostAllocDefault));
        memset(pinned, 0, 1 << 20);
    }
    cudaLibrary_t library;
    cudaKernel_t clear, take;
    CHECK_CUDA(cudaLibraryLoadData(&library, CLEARED, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_CUDA(cudaLibraryGetKernel(&clear, library, "clear"));
    CHECK_CUDA(cudaLibraryGetKernel(&take, library, "take"));
    CHECK_CUDA(cudaLaunchKernel((const void *)clear, 1, 1, nullptr, 0, nullptr));
    unsigned *last = sums + COUNT + 4;
    void *arguments_of_take[] = {&last};
    static unsigned found[COUNT + 5];
    unsigned expected = 0;
    for (unsigned round = 0;; round++) {
        const bool is_last = access(arguments[1], F_OK) == 0;
        const unsigned factors_here[] = {1, 2, 3, 4};
        step<<<COUNT / 256, 256>>>(sums, round);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaLaunchKernel((const void *)take, 1, 1, arguments_of_take, 0, nullptr));
        expected += factors_here[round % 4] + (round % 2 ? 2 : 1);
        if (pinned) {
            pinned[1000] += 10;
            add<<<1, 1>>>(pinned + 1000);
            add<<<1, 1>>>(pinned);
        }
        CHECK_CUDA(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
        const unsigned letter = round % 2 ? 'b' : 'a';
        for (int i = 0; i < COUNT; i++)
            REQUIRE(found[i] == expected + letter, "round %u: entry %d is %u instead of %u", round, i, found[i], expected + letter);
        REQUIRE(found[COUNT] == round + 1, "%u steps were counted instead of %u", found[COUNT], round + 1);
        REQUIRE(found[COUNT + 1] == 3 + 2 * (round + 1), "the hidden variable is %u after %u rounds", found[COUNT + 1], round + 1);
        REQUIRE(found[COUNT + 2] == round + 1, "%u calls were counted instead of %u", found[COUNT + 2], round + 1);
        REQUIRE(found[COUNT + 3] <= expected + 8, "what the table's address leads to is %u", found[COUNT + 3]);
        REQUIRE(found[COUNT + 4] == 0, "a variable that was cleared is %u", found[COUNT + 4]);
        if (pinned) {
            REQUIRE(pinned[0] == round + 1, "kernels have counted %u in pinned memory instead of %u", pinned[0], round + 1);
            REQUIRE(pinned[1000] == 11 * (round + 1), "program and kernels have counted %u instead of %u", pinned[1000], 11 * (round + 1));
        }
        if (is_last) break;
        if (round == 0) {
            puts("running");
            fflush(stdout);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (pinned) CHECK_CUDA(cudaFreeHost(pinned));
    return pass();
}
