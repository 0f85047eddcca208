// Thread block clusters: numbers, barrier, distributed shared memory, arrivals from other blocks, and launches that are refused.
#include "check.h"

#include <cooperative_groups.h>

#include <cuda_runtime.h>
#include <vector>

namespace cg = cooperative_groups;

constexpr unsigned THREADS = 96, MAX_BLOCKS = 8, BINS = 64;

// Each thread says who it is.
__device__ void tell_numbers(unsigned *out) {
    cg::cluster_group cluster = cg::this_cluster();
    unsigned block = blockIdx.x + blockIdx.y * gridDim.x;
    unsigned *own = out + 8 * (block * blockDim.x + threadIdx.x);
    own[0] = cluster.block_rank();
    own[1] = cluster.block_index().x;
    own[2] = cluster.block_index().y;
    own[3] = cluster.num_blocks();
    own[4] = cluster.dim_blocks().x;
    own[5] = cluster.dim_blocks().y;
    own[6] = cluster.thread_rank();
    own[7] = cluster.num_threads();
}

__global__ void numbers(unsigned *out) { tell_numbers(out); }

__global__ void __cluster_dims__(2, 2, 1) compiled_numbers(unsigned *out) { tell_numbers(out); }

// Each block sends each other one a row, and adds up what it gets.
__global__ void all_to_all(const unsigned *in, unsigned *out) {
    extern __shared__ unsigned rows[];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned blocks = cluster.num_blocks(), rank = cluster.block_rank();
    unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
    cluster.sync();
    for (unsigned to = 0; to < blocks; to++)
        cluster.map_shared_rank(rows, to)[rank * blockDim.x + threadIdx.x] = in[number] * (to + 1);
    cluster.sync();
    unsigned sum = 0;
    for (unsigned from = 0; from < blocks; from++) sum = sum * 31 + rows[from * blockDim.x + threadIdx.x];
    out[number] = sum;
}

// The bins lie in the shared memory of all blocks of the cluster.
__global__ void histogram(const unsigned *in, unsigned count, unsigned *out) {
    __shared__ unsigned bins[BINS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned each = BINS / cluster.num_blocks();
    for (unsigned bin = threadIdx.x; bin < each; bin += blockDim.x) bins[bin] = 0;
    cluster.sync();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned bin = in[i] % BINS;
        atomicAdd(cluster.map_shared_rank(bins, bin / each) + bin % each, 1);
    }
    cluster.sync();
    for (unsigned bin = threadIdx.x; bin < each; bin += blockDim.x)
        atomicAdd(out + cluster.block_rank() * each + bin, bins[bin]);
}

// The first block of a cluster adds up the sums of all; others work between arrival and wait.
__global__ void reduction(const unsigned *in, unsigned *out) {
    __shared__ unsigned sum, greatest;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) sum = greatest = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    auto token = cluster.barrier_arrive();
    unsigned own = in[blockIdx.x * blockDim.x + threadIdx.x] % 1000;
    cluster.barrier_wait(std::move(token));
    atomicMax(cluster.map_shared_rank(&greatest, 0), own);
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        unsigned total = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) total += *cluster.map_shared_rank(&sum, rank);
        out[2 * (blockIdx.x / cluster.num_blocks())] = total;
        out[2 * (blockIdx.x / cluster.num_blocks()) + 1] = greatest;
    }
    cluster.sync();
}

// Every second block ends at once, and so do some threads of the others: nobody waits for those.
__global__ void leavers(unsigned *out) {
    __shared__ unsigned arrived;
    cg::cluster_group cluster = cg::this_cluster();
    if (cluster.block_rank() % 2 == 1 || threadIdx.x % 3 == 2) return;
    if (threadIdx.x == 0) arrived = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&arrived, 0), 1);
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) out[blockIdx.x / cluster.num_blocks()] = arrived;
}

// A token goes around the cluster; each block polls its own shared memory for it.
__global__ void token(unsigned *out) {
    __shared__ unsigned seen;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned blocks = cluster.num_blocks(), rank = cluster.block_rank();
    if (threadIdx.x == 0) seen = 0;
    cluster.sync();
    if (threadIdx.x == 0) {
        unsigned *next = cluster.map_shared_rank(&seen, (rank + 1) % blocks);
        for (unsigned round = 0; round < 3; round++) {
            unsigned expected = round * blocks + rank;
            while (*(volatile unsigned *)&seen < expected) {}
            out[blockIdx.x * 3 + round] = expected;
            atomicExch(next, expected + 1);
        }
    }
    cluster.sync();
}

// Each block sends words to the next one, whose barrier object counts their bytes and one arrival from the sender.
__global__ void messages(const unsigned *in, unsigned *out) {
    __shared__ alignas(8) unsigned long long object;
    __shared__ alignas(16) unsigned words[4];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned own = (unsigned)__cvta_generic_to_shared(&object), buffer = (unsigned)__cvta_generic_to_shared(words);
    unsigned peer = (cluster.block_rank() + 1) % cluster.num_blocks(), remote, target;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(own), "r"(peer));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(target) : "r"(buffer), "r"(peer));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(own) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], 16; }" ::"r"(own) : "memory");
    }
    cluster.sync();
    if (threadIdx.x < 4)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(target + 4 * threadIdx.x),
                     "r"(in[blockIdx.x * 4 + threadIdx.x]), "r"(remote)
                     : "memory");
    if (threadIdx.x == 40)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(own)
                     : "memory");
    if (threadIdx.x < 4) out[blockIdx.x * 4 + threadIdx.x] = words[threadIdx.x];
    cluster.sync();
}

// Barriers of the cluster and of the grid take turns.
__global__ void both_barriers(unsigned *words, unsigned *out) {
    __shared__ unsigned own;
    cg::cluster_group cluster = cg::this_cluster();
    cg::grid_group grid = cg::this_grid();
    unsigned sum = 0;
    for (unsigned round = 0; round < 3; round++) {
        if (threadIdx.x == 0) {
            own = round + blockIdx.x;
            words[blockIdx.x] = round * blockIdx.x;
        }
        cluster.sync();
        sum += *cluster.map_shared_rank(&own, cluster.num_blocks() - 1);
        grid.sync();
        sum += words[(blockIdx.x + 1) % gridDim.x];
        grid.sync();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

struct Launch {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};

    Launch(dim3 grid, dim3 cluster, unsigned shared = 0, cudaStream_t stream = nullptr) {
        config.gridDim = grid;
        config.blockDim = THREADS;
        config.dynamicSmemBytes = shared;
        config.stream = stream;
        config.attrs = attributes;
        config.numAttrs = 1;
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim.x = cluster.x;
        attributes[0].val.clusterDim.y = cluster.y;
        attributes[0].val.clusterDim.z = cluster.z;
    }

    void make_cooperative() {
        attributes[1].id = cudaLaunchAttributeCooperative;
        attributes[1].val.cooperative = 1;
        config.numAttrs = 2;
    }
};

static unsigned *on_device(const std::vector<unsigned> &words) {
    unsigned *device;
    CHECK_CUDA(cudaMalloc(&device, words.size() * sizeof(unsigned)));
    CHECK_CUDA(cudaMemcpy(device, words.data(), words.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
    return device;
}

static void compare(const char *what, unsigned size, const unsigned *device, const std::vector<unsigned> &expected) {
    std::vector<unsigned> got(expected.size());
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaMemcpy(got.data(), device, got.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < got.size(); i++)
        REQUIRE(got[i] == expected[i], "%s, clusters of %u: word %zu is %u instead of %u", what, size, i, got[i], expected[i]);
}

static void check_numbers() {
    const unsigned blocks = 16;
    std::vector<unsigned> expected;
    for (unsigned block = 0; block < blocks; block++)
        for (unsigned thread = 0; thread < THREADS; thread++) {
            unsigned x = block % 4 % 2, y = block / 4 % 2, rank = x + 2 * y;
            for (unsigned word : {rank, x, y, 4u, 2u, 2u, rank * THREADS + thread, 4 * THREADS}) expected.push_back(word);
        }
    unsigned *out = on_device(std::vector<unsigned>(expected.size()));
    Launch launch(dim3(4, 4), dim3(2, 2));
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, numbers, out));
    compare("numbers", 4, out, expected);
    CHECK_CUDA(cudaMemset(out, 0, expected.size() * sizeof(unsigned)));
    compiled_numbers<<<dim3(4, 4), THREADS>>>(out);
    CHECK_LAUNCH();
    compare("numbers as compiled", 4, out, expected);
    CHECK_CUDA(cudaFree(out));
}

static std::vector<unsigned> expected_all_to_all(const std::vector<unsigned> &in, unsigned size) {
    std::vector<unsigned> expected(in.size());
    for (unsigned i = 0; i < in.size(); i++) {
        unsigned block = i / THREADS, first = block / size * size, sum = 0;
        for (unsigned from = 0; from < size; from++)
            sum = sum * 31 + in[(first + from) * THREADS + i % THREADS] * (block - first + 1);
        expected[i] = sum;
    }
    return expected;
}

static void check_size(unsigned size, uint32_t *random) {
    const unsigned blocks = 3 * MAX_BLOCKS, clusters = blocks / size;
    std::vector<unsigned> in(blocks * THREADS);
    for (unsigned &word : in) word = next_random(random);
    unsigned *device = on_device(in), *out = on_device(std::vector<unsigned>(in.size()));

    Launch rows(blocks, size, size * THREADS * sizeof(unsigned));
    CHECK_CUDA(cudaLaunchKernelEx(&rows.config, all_to_all, (const unsigned *)device, out));
    compare("all to all", size, out, expected_all_to_all(in, size));

    Launch launch(blocks, size);
    std::vector<unsigned> bins(BINS);
    for (unsigned word : in) bins[word % BINS]++;
    CHECK_CUDA(cudaMemset(out, 0, BINS * sizeof(unsigned)));
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, histogram, (const unsigned *)device, (unsigned)in.size(), out));
    compare("histogram", size, out, bins);

    std::vector<unsigned> sums(2 * clusters);
    for (unsigned i = 0; i < in.size(); i++) {
        unsigned *of_cluster = &sums[i / THREADS / size * 2];
        of_cluster[0] += in[i];
        if (in[i] % 1000 > of_cluster[1]) of_cluster[1] = in[i] % 1000;
    }
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, reduction, (const unsigned *)device, out));
    compare("reduction", size, out, sums);

    std::vector<unsigned> left(clusters, (size + 1) / 2 * (THREADS / 3 * 2));
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, leavers, out));
    compare("leavers", size, out, left);

    std::vector<unsigned> tokens, sent;
    for (unsigned block = 0; block < blocks; block++) {
        for (unsigned round = 0; round < 3; round++) tokens.push_back(round * size + block % size);
        unsigned from = block / size * size + (block + size - 1) % size;
        for (unsigned word = 0; word < 4; word++) sent.push_back(in[from * 4 + word]);
    }
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, token, out));
    compare("token", size, out, tokens);
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, messages, (const unsigned *)device, out));
    compare("messages", size, out, sent);
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(out));
}

static void check_cooperative() {
    unsigned *words = on_device(std::vector<unsigned>(4)), *out = on_device(std::vector<unsigned>(4));
    Launch launch(4, 2);
    launch.make_cooperative();
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, both_barriers, words, out));
    std::vector<unsigned> expected;
    for (unsigned block = 0; block < 4; block++) expected.push_back(3 * (block / 2 * 2 + 1) + 3 + 3 * ((block + 1) % 4));
    compare("barriers of cluster and grid", 2, out, expected);
    CHECK_CUDA(cudaFree(words));
    CHECK_CUDA(cudaFree(out));
}

// A launch that was captured, and a node that got its cluster by an attribute.
static void check_graphs(uint32_t *random) {
    const unsigned blocks = 8;
    std::vector<unsigned> in(blocks * THREADS);
    for (unsigned &word : in) word = next_random(random);
    unsigned *device = on_device(in), *out = on_device(std::vector<unsigned>(in.size()));
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    const unsigned shared = blocks * THREADS * sizeof(unsigned);
    Launch launch(blocks, 4, shared, stream);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_CUDA(cudaLaunchKernelEx(&launch.config, all_to_all, (const unsigned *)device, out));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    compare("captured launch", 4, out, expected_all_to_all(in, 4));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));

    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    void *arguments[] = {&device, &out};
    cudaKernelNodeParams node = {};
    node.func = (void *)all_to_all;
    node.gridDim = blocks;
    node.blockDim = THREADS;
    node.sharedMemBytes = shared;
    node.kernelParams = arguments;
    cudaGraphNode_t added;
    CHECK_CUDA(cudaGraphAddKernelNode(&added, graph, nullptr, 0, &node));
    cudaLaunchAttributeValue value = Launch(blocks, 2).attributes[0].val;
    CHECK_CUDA(cudaGraphKernelNodeSetAttribute(added, cudaLaunchAttributeClusterDimension, &value));
    value = {};
    CHECK_CUDA(cudaGraphKernelNodeGetAttribute(added, cudaLaunchAttributeClusterDimension, &value));
    REQUIRE(value.clusterDim.x == 2, "the node's clusters have %u blocks instead of 2", value.clusterDim.x);
    CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(executable, stream));
    compare("kernel node", 2, out, expected_all_to_all(in, 2));
    CHECK_CUDA(cudaGraphExecDestroy(executable));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(out));
}

static void check_limits() {
    unsigned *out = on_device(std::vector<unsigned>(16 * THREADS * 8));
    int most = 0, active = 0;
    Launch eight(16, 8), sixteen(16, 16), three(4, 3), none(4, 0), large(16, 2, 1 << 20);
    CHECK_CUDA(cudaOccupancyMaxPotentialClusterSize(&most, numbers, &eight.config));
    REQUIRE(most == 8, "clusters have at most %d blocks instead of 8", most);
    CHECK_CUDA(cudaOccupancyMaxActiveClusters(&active, numbers, &eight.config));
    REQUIRE(active > 0, "no cluster of 8 blocks fits");
    EXPECT_CUDA(cudaOccupancyMaxActiveClusters(&active, numbers, &three.config), cudaErrorInvalidClusterSize);
    EXPECT_CUDA(cudaLaunchKernelEx(&sixteen.config, numbers, out), cudaErrorInvalidClusterSize);
    EXPECT_CUDA(cudaLaunchKernelEx(&three.config, numbers, out), cudaErrorInvalidClusterSize);
    EXPECT_CUDA(cudaLaunchKernelEx(&none.config, numbers, out), cudaErrorInvalidClusterSize);
    EXPECT_CUDA(cudaLaunchKernelEx(&large.config, numbers, out), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaLaunchKernelEx(&eight.config, compiled_numbers, out), cudaErrorInvalidClusterSize);
    compiled_numbers<<<dim3(3, 2), THREADS>>>(out);
    EXPECT_CUDA(cudaGetLastError(), cudaErrorInvalidClusterSize);

    // What is not portable has to be allowed.
    CHECK_CUDA(cudaFuncSetAttribute((const void *)numbers, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    CHECK_CUDA(cudaOccupancyMaxPotentialClusterSize(&most, numbers, &eight.config));
    if (most >= 16) {
        CHECK_CUDA(cudaLaunchKernelEx(&sixteen.config, numbers, out));
        CHECK_CUDA(cudaDeviceSynchronize());
        unsigned last[8];
        CHECK_CUDA(cudaMemcpy(last, out + 8 * (16 * THREADS - 1), sizeof last, cudaMemcpyDeviceToHost));
        REQUIRE(last[0] == 15 && last[3] == 16, "the last of 16 blocks is number %u of %u", last[0], last[3]);
    }
    CHECK_CUDA(cudaFuncSetAttribute((const void *)numbers, cudaFuncAttributeNonPortableClusterSizeAllowed, 0));
    EXPECT_CUDA(cudaLaunchKernelEx(&sixteen.config, numbers, out), cudaErrorInvalidClusterSize);

    cudaFuncAttributes attributes;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, (const void *)compiled_numbers));
    REQUIRE(attributes.requiredClusterWidth == 2 && attributes.requiredClusterHeight == 2 && attributes.requiredClusterDepth == 1,
            "the kernel's clusters have %d x %d x %d blocks instead of 2 x 2 x 1", attributes.requiredClusterWidth,
            attributes.requiredClusterHeight, attributes.requiredClusterDepth);
    CHECK_CUDA(cudaFree(out));
}

int main() {
    int has_clusters = 0;
    CHECK_CUDA(cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, 0));
    REQUIRE(has_clusters == 1, "the device has no clusters");
    uint32_t random = 2026;
    check_numbers();
    for (unsigned size = 1; size <= MAX_BLOCKS; size *= 2) check_size(size, &random);
    check_cooperative();
    check_graphs(&random);
    check_limits();
    return pass();
}
