#include <memory>

#include "stencil.h"

namespace bench {

// Planes at the cut of both ranks are the same: what a plane holds depends on its place in both boxes
// together.
__global__ void first_numbers(float *to, Box box, u32 rank) {
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x, before = rank * box.nz * box.plane();
    for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < box.numbers(); at += step)
        to[at] = static_cast<float>((at + before) * 13 % 101);
}

__global__ void count_differences(const float *found, const float *right, u64 numbers, u32 *differences) {
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < numbers; at += step)
        if (found[at] != right[at]) atomicAdd(differences, 1);
}

Grid::Grid(const Ranks &ranks, Box box, u32 blocks, u32 steps)
    : ranks(ranks), box(box), blocks(blocks), threads(box.nx < 256 ? box.nx : 256), steps(steps),
      buffer(box.numbers() * sizeof(float)), plane(box.plane() * sizeof(float)),
      data(ranks.window(CAUSEWAY_ON_DEVICE, 2 * buffer)), cells(ranks.window(CAUSEWAY_ON_DEVICE, 64)),
      beside(2) {
    CHECK(cudaMalloc(&differences, sizeof *differences));
    CHECK(cudaMalloc(&right, 2 * box.nz * plane));
    for (u32 rank = 0; rank < 2; rank++) {
        ranks.use(rank);
        CHECK(cudaMalloc(&counters[rank], 2 * sizeof *counters[rank]));
        CHECK(cudaStreamCreateWithFlags(&beside[rank], cudaStreamNonBlocking));
    }
    ranks.use(0);
    int fit = causeway_team_fits(ranks.team, relaxing_kernel(), blocks, threads, 0);
    REQUIRE(fit == 0, "%s", causeway_comm_error());
}

float *Grid::numbers(u32 rank, u32 step) const {
    return static_cast<float *>(address(data[rank], step % 2 * buffer));
}

void Grid::start() {
    clear(cells);
    for (u32 rank = 0; rank < 2; rank++) {
        ranks.use(rank);
        CHECK(cudaMemset(counters[rank], 0, 2 * sizeof *counters[rank]));
        for (u32 step = 0; step < 2; step++)
            first_numbers<<<256, 256>>>(numbers(rank, step), box, rank);
        CHECK(cudaDeviceSynchronize());
    }
    ranks.use(0);
}

void Grid::compare(const char *what) {
    u64 count = box.nz * box.plane();
    CHECK(cudaMemset(differences, 0, sizeof *differences));
    // By the first rank's GPU, which reads the other one's memory, too.
    for (u32 rank = 0; rank < 2; rank++) {
        const float *found = numbers(rank, steps) + box.plane();
        if (!is_right_known)
            CHECK(cudaMemcpy(right + rank * count, found, count * sizeof(float), cudaMemcpyDeviceToDevice));
        count_differences<<<256, 256>>>(found, right + rank * count, count, differences);
    }
    is_right_known = true;
    u32 differ;
    CHECK(cudaMemcpy(&differ, differences, sizeof differ, cudaMemcpyDeviceToHost));
    REQUIRE(differ == 0, "the stencil %s: %u numbers are wrong", what, differ);
}

// The planes at the cut to the other rank.
void Grid::exchange(u32 step, cudaStream_t of_first, cudaStream_t of_second) const {
    cudaStream_t streams[2] = {of_first, of_second};
    for (u32 rank = 0; rank < 2; rank++) {
        ranks.use(rank);
        const float *from = numbers(rank, step + 1) + box.cut(rank) * box.plane();
        float *to = numbers(1 - rank, step + 1) + box.copied_to(rank) * box.plane();
        CHECK(cudaMemcpyAsync(to, from, plane, cudaMemcpyDeviceToDevice, streams[rank]));
    }
}

double Grid::by_host() {
    start();
    double seconds = ranks.time(1, [&](u32) {
        for (u32 step = 0; step < steps; step++) {
            for (u32 rank = 0; rank < 2; rank++) {
                ranks.use(rank);
                relax(ranks.streams[rank], blocks, threads, numbers(rank, step), numbers(rank, step + 1), box,
                      1, box.nz);
            }
            for (cudaStream_t stream : ranks.streams)
                CHECK(cudaStreamSynchronize(stream));
            exchange(step, ranks.streams[0], ranks.streams[1]);
            for (cudaStream_t stream : ranks.streams)
                CHECK(cudaStreamSynchronize(stream));
        }
    });
    compare("kernel, synchronise, send");
    return seconds;
}

double Grid::by_two_kernels() {
    start();
    double seconds = ranks.time(1, [&](u32) {
        for (u32 step = 0; step < steps; step++) {
            for (u32 rank = 0; rank < 2; rank++) {
                u32 cut = box.cut(rank), first = rank == 0 ? 1 : 2;
                const float *in = numbers(rank, step);
                float *out = numbers(rank, step + 1);
                ranks.use(rank);
                relax(beside[rank], blocks, threads, in, out, box, cut, cut);
                relax(ranks.streams[rank], blocks, threads, in, out, box, first, first + box.nz - 2);
            }
            for (cudaStream_t stream : beside)
                CHECK(cudaStreamSynchronize(stream));
            exchange(step, beside[0], beside[1]);
            for (cudaStream_t stream : beside)
                CHECK(cudaStreamSynchronize(stream));
            for (cudaStream_t stream : ranks.streams)
                CHECK(cudaStreamSynchronize(stream));
        }
    });
    compare("two kernels by turns");
    return seconds;
}

double Grid::by_kernel(bool sends) {
    start();
    double seconds = ranks.time(2, [&](u32 rank) {
        relax_and_send(ranks.streams[rank], blocks, threads, ranks.teams[rank], data[rank], cells[rank], box,
                       steps, counters[rank], sends);
    });
    if (sends) compare("by the kernel");
    return seconds;
}

void measure_stencils(const Settings &settings) {
    Ranks ranks(2, ONE_QUEUE, settings);
    std::vector<Box> boxes = {{128, 128, 64}, {512, 512, 128}};
    if (settings.is_quick) boxes = {{16, 8, 4}};
    u32 steps = settings.is_quick ? 3 : 50;
    std::vector<std::unique_ptr<Grid>> grids;
    Cases cases(settings);
    for (Box box : boxes) {
        grids.push_back(std::make_unique<Grid>(ranks, box, settings.processors, steps));
        Grid *grid = grids.back().get();
        auto add = [&](const char *way, double (*run)(Grid *)) {
            cases.add("stencil", way, box.plane() * sizeof(float), box.plane() * box.nz, "us",
                      [=] { return run(grid) / steps * 1e6; });
        };
        add("kernel, synchronise, send", [](Grid *grid) { return grid->by_host(); });
        add("two kernels by turns", [](Grid *grid) { return grid->by_two_kernels(); });
        add("by the kernel", [](Grid *grid) { return grid->by_kernel(true); });
        add("compute alone", [](Grid *grid) { return grid->by_kernel(false); });
    }
    cases.measure();
}

} // namespace bench
