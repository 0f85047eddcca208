#include <algorithm>
#include <memory>

#include "stencil.h"

namespace bench {

constexpr u32 COUNTERS = 3;

// What the host calculates, too: in a second or so.
constexpr u64 MAX_HOST_SHARE = 4 << 20;

// Planes at the cut of both ranks are the same: what a plane holds depends on its place in both boxes
// together.
__host__ __device__ static float first_number(Box box, u32 rank, u64 at) {
    return static_cast<float>((at + rank * box.nz * box.plane()) * 13 % 101);
}

__global__ void first_numbers(float *to, Box box, u32 rank) {
    u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 at = blockIdx.x * blockDim.x + threadIdx.x; at < box.numbers(); at += step)
        to[at] = first_number(box, rank, at);
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
        CHECK(cudaMalloc(&counters[rank], COUNTERS * sizeof *counters[rank]));
        CHECK(cudaStreamCreateWithFlags(&beside[rank], cudaStreamNonBlocking));
    }
    ranks.use(0);
    int fit = causeway_team_fits(ranks.team, relaxing_kernel(), blocks, threads, 0);
    REQUIRE(fit == 0, "%s", causeway_comm_error());
    if (box.numbers() <= MAX_HOST_SHARE) calculate_on_host();
}

void Grid::calculate_on_host() {
    u64 count = box.nz * box.plane();
    std::vector<float> numbers[2][2];
    for (u32 rank = 0; rank < 2; rank++) {
        for (std::vector<float> &those : numbers[rank]) {
            those.resize(box.numbers());
            for (u64 at = 0; at < box.numbers(); at++)
                those[at] = first_number(box, rank, at);
        }
    }
    for (u32 step = 0; step < steps; step++) {
        for (u32 rank = 0; rank < 2; rank++)
            relax_on_host(numbers[rank][step % 2].data(), numbers[rank][(step + 1) % 2].data(), box);
        for (u32 rank = 0; rank < 2; rank++) {
            const float *from = numbers[rank][(step + 1) % 2].data() + box.cut(rank) * box.plane();
            float *to = numbers[1 - rank][(step + 1) % 2].data() + box.copied_to(rank) * box.plane();
            std::copy(from, from + box.plane(), to);
        }
    }
    for (u32 rank = 0; rank < 2; rank++) {
        const float *found = numbers[rank][steps % 2].data() + box.plane();
        CHECK(cudaMemcpy(right + rank * count, found, count * sizeof(float), cudaMemcpyHostToDevice));
    }
    is_right_known = true;
}

float *Grid::numbers(u32 rank, u32 step) const {
    return static_cast<float *>(address(data[rank], step % 2 * buffer));
}

void Grid::start() {
    clear(cells);
    for (u32 rank = 0; rank < 2; rank++) {
        ranks.use(rank);
        CHECK(cudaMemset(counters[rank], 0, COUNTERS * sizeof *counters[rank]));
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
    if (differ != 0) tell_first_difference(what);
    REQUIRE(differ == 0, "the stencil %s: %u numbers are wrong", what, differ);
}

void Grid::tell_first_difference(const char *what) {
    u64 count = box.nz * box.plane();
    std::vector<float> found(count), wanted(count);
    for (u32 rank = 0; rank < 2; rank++) {
        const float *from = numbers(rank, steps) + box.plane();
        CHECK(cudaMemcpy(found.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(wanted.data(), right + rank * count, count * sizeof(float), cudaMemcpyDeviceToHost));
        for (u64 at = 0; at < count; at++) {
            if (found[at] == wanted[at]) continue;
            fprintf(stderr, "the stencil %s: rank %u, plane %llu, number %llu is %.9g and not %.9g\n", what, rank,
                    at / box.plane() + 1, at % box.plane(), found[at], wanted[at]);
            break;
        }
    }
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
    for (u32 rank = 0; rank < 2; rank++) {
        u32 all[COUNTERS];
        CHECK(cudaMemcpy(all, counters[rank], sizeof all, cudaMemcpyDeviceToHost));
        REQUIRE(all[2] == 0, "the stencil by the kernel: blocks of rank %u did not meet in step %u", rank, all[2]);
    }
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
