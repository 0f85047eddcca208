// Groups of threads within a block and in grids: tiles, coalesced, labelled and binary partitions, their
// collectives, the masks and elections that they are made of, copies of a group, and the grid's own barrier.  What each
// thread finds is computed on the CPU as well, for data that differ each time.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>
#include <climits>
#include <random>
#include <vector>

namespace cg = cooperative_groups;

constexpr int THREADS = 256, WARPS = THREADS / 32;

// What a thread found; each field is explained where it is set.
struct Found {
    unsigned masks[5];
    unsigned tile_rank, tile_number, tile_count, tile_ballot, neighbour, scanned;
    int tile_sum, tile_least;
    unsigned group_size, group_rank, bits;
    long long group_sum;
    unsigned label_size, label_rank, half_size;
    int label_sum, half_sum;
    unsigned same, all_same, is_same, active, sum, least, most;
    int signed_least;
    unsigned leader, elected;
    int wide_sum;
    unsigned wide_rank;
};

template <int SIZE>
__device__ void tiles(const int *values, Found *found) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<SIZE>(block);
    int value = values[block.thread_rank()];
    Found &mine = found[block.thread_rank()];
    mine.tile_rank = tile.thread_rank();
    mine.tile_number = tile.meta_group_rank();
    mine.tile_count = tile.meta_group_size();
    mine.tile_ballot = tile.ballot(value % 3 == 0);
    mine.neighbour = tile.shfl_xor(value, SIZE / 2);
    mine.scanned = cg::exclusive_scan(tile, unsigned(value));
    mine.tile_sum = cg::reduce(tile, value, cg::plus<int>());
    mine.tile_least = cg::reduce(tile, value, cg::less<int>());
    tile.sync();
}

__global__ void tiles_of(int size, const int *values, Found *found) {
    switch (size) {
    case 4: return tiles<4>(values, found);
    case 8: return tiles<8>(values, found);
    case 16: return tiles<16>(values, found);
    default: return tiles<32>(values, found);
    }
}

__global__ void masks(Found *found) {
    Found &mine = found[threadIdx.x];
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(mine.masks[0]));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mine.masks[1]));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(mine.masks[2]));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(mine.masks[3]));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(mine.masks[4]));
}

// Threads whose value has its lowest bit set form a group of their own, and the others another one.
__global__ void coalesced(const int *values, Found *found) {
    Found &mine = found[threadIdx.x];
    int value = values[threadIdx.x];
    if (value & 1) {
        cg::coalesced_group group = cg::coalesced_threads();
        mine.group_size = group.size();
        mine.group_rank = group.thread_rank();
        mine.bits = group.ballot(value & 2);
        mine.group_sum = cg::reduce(group, (long long)value, cg::plus<long long>());
        mine.active = __popc(__activemask());
    } else {
        auto group = cg::coalesced_threads();
        mine.group_size = group.num_threads();
        mine.group_rank = group.thread_rank();
        mine.bits = group.ballot(value & 2);
        mine.group_sum = cg::inclusive_scan(group, (long long)value);
        mine.active = __popc(__activemask());
    }
}

__global__ void partitions(const int *values, Found *found) {
    Found &mine = found[threadIdx.x];
    int value = values[threadIdx.x];
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto labelled = cg::labeled_partition(warp, (value >> 3) & 3);
    mine.label_size = labelled.size();
    mine.label_rank = labelled.thread_rank();
    mine.label_sum = cg::reduce(labelled, value, cg::plus<int>());
    auto half = cg::binary_partition(warp, (value & 4) != 0);
    mine.half_size = half.size();
    mine.half_sum = cg::reduce(half, value, cg::bit_xor<int>());
}

__global__ void warps(const int *values, Found *found) {
    Found &mine = found[threadIdx.x];
    int value = values[threadIdx.x];
    mine.same = __match_any_sync(~0u, value & 7);
    int all = 0;
    mine.all_same = __match_all_sync(~0u, threadIdx.x / 32 % 2 ? value : 5, &all);
    mine.is_same = all;
#if __CUDA_ARCH__ >= 800
    mine.sum = __reduce_add_sync(~0u, unsigned(value));
    mine.least = __reduce_min_sync(~0u, unsigned(value));
    mine.most = __reduce_max_sync(~0u, unsigned(value));
    mine.signed_least = __reduce_min_sync(~0u, value);
#else
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    mine.sum = cg::reduce(warp, unsigned(value), cg::plus<unsigned>());
    mine.least = cg::reduce(warp, unsigned(value), cg::less<unsigned>());
    mine.most = cg::reduce(warp, unsigned(value), cg::greater<unsigned>());
    mine.signed_least = cg::reduce(warp, value, cg::less<int>());
#endif
    auto warp_ = cg::tiled_partition<32>(cg::this_thread_block());
    cg::invoke_one(warp_, [&] { mine.elected = 1; });
    mine.leader = cg::invoke_one_broadcast(warp_, [&] { return unsigned(value) + 1; });
}

// Tiles of more than a warp: from compute capability 8.0 on their scratch lies in the reserved part of shared memory, before
// that in memory that the kernel gives.
__global__ void wide_tiles(const int *values, Found *found, int *shared_kept) {
    __shared__ cg::block_tile_memory<THREADS> memory;
    __shared__ int own[THREADS];
    extern __shared__ int dynamic[];
    auto block = cg::this_thread_block(memory);
    own[threadIdx.x] = values[threadIdx.x] * 3;
    dynamic[threadIdx.x] = values[threadIdx.x] * 7;
    block.sync();
    auto tile = cg::tiled_partition<128>(block);
    Found &mine = found[threadIdx.x];
    mine.wide_rank = tile.thread_rank();
    mine.wide_sum = cg::reduce(tile, values[threadIdx.x], cg::plus<int>());
    tile.sync();
    mine.wide_sum += tile.shfl(values[threadIdx.x], 77);
    if (own[threadIdx.x] != values[threadIdx.x] * 3 || dynamic[threadIdx.x] != values[threadIdx.x] * 7) atomicAdd(shared_kept, 1);
}

// The rows of a matrix, summed by one block that copies each into shared memory first.
__global__ void copied_rows(const int *matrix, int rows, int columns, long long *sums) {
    extern __shared__ int row[];
    auto block = cg::this_thread_block();
    for (int i = 0; i < rows; i++) {
        cg::memcpy_async(block, row, matrix + size_t(i) * columns, sizeof(int) * columns);
        cg::wait(block);
        long long sum = 0;
        for (int j = block.thread_rank(); j < columns; j += block.size()) sum += row[j];
        auto warp = cg::tiled_partition<32>(block);
        sum = cg::reduce(warp, sum, cg::plus<long long>());
        if (warp.thread_rank() == 0) atomicAdd((unsigned long long *)&sums[i], (unsigned long long)sum);
        block.sync();
    }
}

// A grid of one block, launched as a cooperative one: steps of a prefix sum with the grid's barrier between them.
__global__ void grid_of_one(int *values, int n, int *valid) {
    auto grid = cg::this_grid();
    if (grid.thread_rank() == 0) *valid = grid.is_valid() * 1000 + int(grid.num_blocks());
    for (int step = 1; step < n; step *= 2) {
        int i = int(grid.thread_rank());
        int sum = i < n ? values[i] + (i >= step ? values[i - step] : 0) : 0;
        grid.sync();
        if (i < n) values[i] = sum;
        auto token = grid.barrier_arrive();
        grid.barrier_wait(std::move(token));
    }
}

// A grid of several blocks: each thread passes its number on to the next one of the grid, in every round to the one after
// that; the last block needs what the first writes, and the first what the last.
__global__ void grid_of_many(int *numbers, int *next, int rounds) {
    auto grid = cg::this_grid();
    int i = int(grid.thread_rank()), n = int(grid.size());
    numbers[i] = i;
    grid.sync();
    for (int round = 0; round < rounds; round++) {
        next[(i + 1) % n] = numbers[i];
        grid.sync();
        numbers[i] = next[i];
        grid.sync();
    }
}

struct Data {
    std::vector<int> values;
    int *device;
    Found *found;
};

template <typename Work>
static std::vector<Found> after(const Data &data, Work work) {
    CHECK_CUDA(cudaMemset(data.found, 0, sizeof(Found) * THREADS));
    work();
    CHECK_CUDA(cudaGetLastError());
    std::vector<Found> found(THREADS);
    CHECK_CUDA(cudaMemcpy(found.data(), data.found, sizeof(Found) * THREADS, cudaMemcpyDeviceToHost));
    return found;
}

#define SAME(what, i, found, wanted) \
    REQUIRE((found) == (wanted), "%s of thread %d is %lld instead of %lld", what, int(i), (long long)(found), (long long)(wanted))

static void check_masks(const Data &data) {
    auto found = after(data, [&] { masks<<<1, THREADS>>>(data.found); });
    for (int i = 0; i < THREADS; i++) {
        unsigned eq = 1u << i % 32, lt = eq - 1;
        unsigned wanted[5] = {eq, lt, lt | eq, ~(lt | eq), ~lt};
        for (int k = 0; k < 5; k++) SAME("a lane mask", i, found[i].masks[k], wanted[k]);
    }
}

static void check_tiles(const Data &data, int size) {
    auto found = after(data, [&] { tiles_of<<<1, THREADS>>>(size, data.device, data.found); });
    for (int i = 0; i < THREADS; i++) {
        int begin = i / size * size, sum = 0, least = INT_MAX;
        unsigned ballot = 0, before = 0;
        for (int j = begin; j < begin + size; j++) {
            sum = int(unsigned(sum) + unsigned(data.values[j]));
            least = std::min(least, data.values[j]);
            if (data.values[j] % 3 == 0) ballot |= 1u << (j - begin);
            if (j < i) before += unsigned(data.values[j]);
        }
        SAME("the rank in a tile", i, found[i].tile_rank, unsigned(i - begin));
        SAME("the tile", i, found[i].tile_number, unsigned(i / size));
        SAME("the number of tiles", i, found[i].tile_count, unsigned(THREADS / size));
        SAME("a tile's ballot", i, found[i].tile_ballot, ballot);
        SAME("the neighbour", i, found[i].neighbour, unsigned(data.values[i ^ (size / 2)]));
        SAME("a tile's scan", i, found[i].scanned, before);
        SAME("a tile's sum", i, found[i].tile_sum, sum);
        SAME("a tile's least", i, found[i].tile_least, least);
    }
}

static void check_coalesced(const Data &data) {
    auto found = after(data, [&] { coalesced<<<1, THREADS>>>(data.device, data.found); });
    for (int i = 0; i < THREADS; i++) {
        bool odd = data.values[i] & 1;
        unsigned size = 0, rank = 0, bits = 0;
        long long sum = 0, up_to = 0;
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            if ((data.values[j] & 1) != odd) continue;
            if (data.values[j] & 2) bits |= 1u << size;
            if (j < i) rank++;
            size++;
            sum += data.values[j];
            if (j <= i) up_to += data.values[j];
        }
        SAME("the size of a coalesced group", i, found[i].group_size, size);
        SAME("the rank in a coalesced group", i, found[i].group_rank, rank);
        SAME("a coalesced group's ballot", i, found[i].bits, bits);
        SAME("a coalesced group's sum", i, found[i].group_sum, odd ? sum : up_to);
        REQUIRE(found[i].active >= 1 && found[i].active <= size, "%u threads are active in a group of %u", found[i].active, size);
    }
}

static void check_partitions(const Data &data) {
    auto found = after(data, [&] { partitions<<<1, THREADS>>>(data.device, data.found); });
    for (int i = 0; i < THREADS; i++) {
        unsigned size = 0, rank = 0, half = 0;
        int sum = 0, bits = 0;
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            if (((data.values[j] >> 3) & 3) == ((data.values[i] >> 3) & 3)) {
                if (j < i) rank++;
                size++;
                sum = int(unsigned(sum) + unsigned(data.values[j]));
            }
            if ((data.values[j] & 4) == (data.values[i] & 4)) half++, bits ^= data.values[j];
        }
        SAME("the size of a labelled group", i, found[i].label_size, size);
        SAME("the rank in a labelled group", i, found[i].label_rank, rank);
        SAME("a labelled group's sum", i, found[i].label_sum, sum);
        SAME("the size of a binary partition", i, found[i].half_size, half);
        SAME("a binary partition's xor", i, found[i].half_sum, bits);
    }
}

static void check_warps(const Data &data) {
    auto found = after(data, [&] { warps<<<1, THREADS>>>(data.device, data.found); });
    for (int w = 0; w < WARPS; w++) {
        const int *values = data.values.data() + 32 * w;
        unsigned sum = 0, least = UINT_MAX, most = 0, elected = 0;
        int signed_least = INT_MAX;
        for (int j = 0; j < 32; j++) {
            sum += unsigned(values[j]);
            least = std::min(least, unsigned(values[j]));
            most = std::max(most, unsigned(values[j]));
            signed_least = std::min(signed_least, values[j]);
            elected += found[32 * w + j].elected;
        }
        bool equal = w % 2 == 0 || std::all_of(values, values + 32, [&](int v) { return v == values[0]; });
        REQUIRE(elected == 1, "warp %d elected %u threads", w, elected);
        for (int j = 0; j < 32; j++) {
            const Found &mine = found[32 * w + j];
            unsigned same = 0;
            for (int k = 0; k < 32; k++)
                if ((values[k] & 7) == (values[j] & 7)) same |= 1u << k;
            SAME("match.any", 32 * w + j, mine.same, same);
            SAME("match.all", 32 * w + j, mine.all_same, equal ? ~0u : 0u);
            SAME("the predicate of match.all", 32 * w + j, mine.is_same, unsigned(equal));
            SAME("a warp's sum", 32 * w + j, mine.sum, sum);
            SAME("a warp's least", 32 * w + j, mine.least, least);
            SAME("a warp's most", 32 * w + j, mine.most, most);
            SAME("a warp's least with sign", 32 * w + j, mine.signed_least, signed_least);
            bool of_some_thread = std::any_of(values, values + 32, [&](int v) { return unsigned(v) + 1 == mine.leader; });
            REQUIRE(of_some_thread && mine.leader == found[32 * w].leader, "the elected thread of warp %d told %u", w, mine.leader);
        }
    }
}

static void check_wide_tiles(const Data &data) {
    int *wrong;
    CHECK_CUDA(cudaMalloc(&wrong, sizeof(int)));
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof(int)));
    auto found = after(data, [&] { wide_tiles<<<1, THREADS, sizeof(int) * THREADS>>>(data.device, data.found, wrong); });
    for (int i = 0; i < THREADS; i++) {
        unsigned sum = 0;
        for (int j = i / 128 * 128; j < i / 128 * 128 + 128; j++) sum += unsigned(data.values[j]);
        sum += unsigned(data.values[i / 128 * 128 + 77]);
        SAME("the rank in a wide tile", i, found[i].wide_rank, unsigned(i % 128));
        SAME("a wide tile's sum", i, found[i].wide_sum, int(sum));
    }
    int count;
    CHECK_CUDA(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    REQUIRE(count == 0, "%d words of shared memory were written by the groups", count);
    CHECK_CUDA(cudaFree(wrong));
}

static void check_copies(std::mt19937 &random) {
    int rows = 3 + int(random() % 5), columns = 1 + int(random() % 3000);
    std::vector<int> matrix(size_t(rows) * columns);
    for (int &value : matrix) value = int(random());
    int *device;
    long long *sums;
    CHECK_CUDA(cudaMalloc(&device, matrix.size() * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&sums, rows * sizeof(long long)));
    CHECK_CUDA(cudaMemcpy(device, matrix.data(), matrix.size() * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemset(sums, 0, rows * sizeof(long long)));
    copied_rows<<<1, THREADS, columns * sizeof(int)>>>(device, rows, columns, sums);
    CHECK_CUDA(cudaGetLastError());
    std::vector<long long> found(rows);
    CHECK_CUDA(cudaMemcpy(found.data(), sums, rows * sizeof(long long), cudaMemcpyDeviceToHost));
    for (int i = 0; i < rows; i++) {
        long long sum = 0;
        for (int j = 0; j < columns; j++) sum += matrix[size_t(i) * columns + j];
        SAME("the sum of a row", i, found[i], sum);
    }
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(sums));
}

static void check_grid(std::mt19937 &random) {
    int n = 1 + int(random() % 512);
    std::vector<int> values(n);
    for (int &value : values) value = int(random() % 1000);
    int *device, *valid;
    CHECK_CUDA(cudaMalloc(&device, n * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&valid, sizeof(int)));
    CHECK_CUDA(cudaMemcpy(device, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    void *arguments[] = {&device, &n, &valid};
    CHECK_CUDA(cudaLaunchCooperativeKernel((const void *)grid_of_one, dim3(1), dim3(512), arguments, 0, 0));
    std::vector<int> found(n);
    int validity;
    CHECK_CUDA(cudaMemcpy(found.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(&validity, valid, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(validity == 1001, "the grid says %d of itself", validity);
    int sum = 0;
    for (int i = 0; i < n; i++) SAME("a prefix sum of the grid", i, found[i], (sum += values[i]));
    CHECK_CUDA(cudaFree(device));
    CHECK_CUDA(cudaFree(valid));
}

static void check_grid_of_many(const Data &) {
    int device, cores, each, cooperative;
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
    REQUIRE(cooperative == 1, "the device has %d for cooperative launches", cooperative);
    CHECK_CUDA(cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, device));
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, grid_of_many, 64, 0));
    int blocks = std::min(cores * each, 24), rounds = 5, n = blocks * 64;
    int *numbers, *next;
    CHECK_CUDA(cudaMalloc(&numbers, n * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&next, n * sizeof(int)));
    void *arguments[] = {&numbers, &next, &rounds};
    CHECK_CUDA(cudaLaunchCooperativeKernel((const void *)grid_of_many, dim3(blocks), dim3(64), arguments, 0, 0));
    std::vector<int> found(n);
    CHECK_CUDA(cudaMemcpy(found.data(), numbers, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) SAME("the number that came", i, found[i], (i + n - rounds) % n);
    CHECK_CUDA(cudaFree(numbers));
    CHECK_CUDA(cudaFree(next));
}

int main() {
    std::mt19937 random(std::random_device{}());
    Data data;
    data.values.resize(THREADS);
    for (int &value : data.values) value = int(random() % 20001) - 10000;
    CHECK_CUDA(cudaMalloc(&data.device, sizeof(int) * THREADS));
    CHECK_CUDA(cudaMalloc(&data.found, sizeof(Found) * THREADS));
    CHECK_CUDA(cudaMemcpy(data.device, data.values.data(), sizeof(int) * THREADS, cudaMemcpyHostToDevice));
    check_grid_of_many(data);
    check_masks(data);
    for (int size : {4, 8, 16, 32}) check_tiles(data, size);
    check_coalesced(data);
    check_partitions(data);
    check_warps(data);
    check_wide_tiles(data);
    check_copies(random);
    check_grid(random);
    return pass();
}
