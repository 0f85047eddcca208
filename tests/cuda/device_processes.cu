// One rank of a team whose ranks are in processes of their own, with the devices in turn:
// device_processes NONCE RANK RANKS [MISTAKE | stencil].
//
// Every round each rank puts numbers that differ each time to the next one with a signal, adds to a counter
// of every rank, meets all others at a barrier, and compares. MISTAKE `end`: the last rank ends in the
// middle, and the others' kernels must end with an error; `size`: it makes a window of another size; `cut`:
// kernels wait until the network is cut. `stencil`: instead of the rounds the ranks compute a stencil together, and
// each compares its planes with those that a kernel of its own computes alone, bit by bit.
#include <cstdlib>
#include <string>
#include <vector>

#include <causeway/device.cuh>
#include <causeway/team.h>
#include <cuda_runtime.h>

#include "check.h"
#include "device_stencil.cuh"

using namespace causeway;

enum { ROUNDS = 20, NUMBERS = 4096 };

__global__ void exchange(Team team, Window data, Window words, unsigned long long *wrong) {
    u64 *own = reinterpret_cast<u64 *>(data.base), *received = own + NUMBERS;
    u32 next = (team.rank + 1) % team.ranks, before = (team.rank + team.ranks - 1) % team.ranks;
    for (u32 round = 1; round <= ROUNDS; round++) {
        for (u32 at = threadIdx.x; at < NUMBERS; at += blockDim.x)
            own[at] = round * 1000003ull + team.rank * 7919ull + at;
        u64 bytes = 8ull * NUMBERS;
        Status status =
            put_signal<Block>(team, next, data, bytes, data, 0, bytes, words, 8 * team.rank, round);
        if (status != Status::ok) return;
        if (signal_wait<Block>(team, words, 8ull * before, Compare::at_least, round) != Status::ok) return;
        for (u32 at = threadIdx.x; at < NUMBERS; at += blockDim.x)
            if (received[at] != round * 1000003ull + before * 7919ull + at) atomicAdd(wrong, 1ull);
        if (threadIdx.x < team.ranks)
            if (atomic_add(team, threadIdx.x, words, 8ull * team.ranks, round) != Status::ok) return;
        if (barrier<Block>(team) != Status::ok) return;
        u64 sum = order::load_relaxed(reinterpret_cast<u64 *>(words.base + 8ull * team.ranks));
        if (threadIdx.x == 0 && sum != static_cast<u64>(team.ranks) * round * (round + 1) / 2)
            atomicAdd(wrong, 1ull);
        // Nobody adds again before all have looked.
        if (barrier<Block>(team, 1) != Status::ok) return;
    }
}

__global__ void meet(Team team) {
    barrier<Block>(team, 1);
}

__global__ void wait_for_ever(Team team, Window words) {
    if (barrier<Block>(team, 1) != Status::ok) return;
    signal_wait<Block>(team, words, 0, Compare::equal, ~0ull);
}

__global__ void stencil_steps(Team team, Window data, Window words, stencil::Box box, u32 steps) {
    stencil::all_steps(team, data, words, box, steps);
}

// The planes of this rank from so many steps, within the buffer that has the result.
static std::vector<float> planes_of(u64 base, stencil::Box box, u32 steps, u32 first, u32 planes) {
    std::vector<float> found(planes * box.plane());
    const float *buffer = reinterpret_cast<const float *>(base) + steps % 2 * box.numbers() + (1 + first) * box.plane();
    CHECK_CUDA(cudaMemcpy(found.data(), buffer, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return found;
}

static int compute_stencil(causeway_team *team, u32 rank, u32 ranks) {
    const stencil::Box box = {20, 12, 7}, whole = {20, 12, 7 * ranks};
    const u32 steps = 25;
    int data = causeway_window_create(team, CAUSEWAY_ON_DEVICE, 2 * box.numbers() * sizeof(float));
    REQUIRE(data >= 0, "%s", causeway_comm_error());
    int words = causeway_window_create(team, CAUSEWAY_ON_DEVICE, stencil::WORDS_BYTES);
    REQUIRE(words >= 0, "%s", causeway_comm_error());
    Team ours, alone = {nullptr, 0, 1, 0, {}, 0};
    Window numbers, cells, of_one = {};
    REQUIRE(causeway_team_handle(team, rank, &ours) == 0, "%s", causeway_comm_error());
    REQUIRE(causeway_window_handle(team, static_cast<u32>(data), rank, &numbers) == 0, "%s", causeway_comm_error());
    REQUIRE(causeway_window_handle(team, static_cast<u32>(words), rank, &cells) == 0, "%s", causeway_comm_error());
    void *memory;
    CHECK_CUDA(cudaMalloc(&memory, 2 * whole.numbers() * sizeof(float)));
    of_one.base = reinterpret_cast<u64>(memory);
    stencil_steps<<<1, 128>>>(alone, of_one, {}, whole, steps);
    CHECK_CUDA(cudaDeviceSynchronize());
    stencil_steps<<<1, 128>>>(ours, numbers, cells, box, steps);
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(causeway_team_check(team) == 0, "%s", causeway_comm_error());
    std::vector<float> found = planes_of(numbers.base, box, steps, 0, box.planes);
    std::vector<float> right = planes_of(of_one.base, whole, steps, rank * box.planes, box.planes);
    for (u64 at = 0; at < found.size(); at++)
        REQUIRE(memcmp(&found[at], &right[at], sizeof(float)) == 0, "number %llu of rank %u is %a, alone it is %a", at,
                rank, found[at], right[at]);
    printf("%zu numbers are those of one rank alone\n", found.size());
    causeway_team_destroy(team);
    return pass();
}

int main(int count, char **arguments) {
    REQUIRE(count >= 4, "device_processes NONCE RANK RANKS [MISTAKE | stencil]");
    u32 rank = static_cast<u32>(atoi(arguments[2])), ranks = static_cast<u32>(atoi(arguments[3]));
    std::string mistake = count > 4 ? arguments[4] : "";
    bool errs = rank == ranks - 1;
    int devices;
    CHECK_CUDA(cudaGetDeviceCount(&devices));
    CHECK_CUDA(cudaSetDevice(static_cast<int>(rank) % devices));
    CHECK_CUDA(cudaFree(nullptr));
    // A machine that is busy is no peer that has ended.
    causeway_team_options options = {0, 0, 0, 100000};
    causeway_team *team = causeway_team_join(arguments[1], rank, ranks, &options);
    REQUIRE(team != nullptr, "%s", causeway_comm_error());
    if (mistake == "stencil") return compute_stencil(team, rank, ranks);
    u64 bytes = 16ull * NUMBERS + (mistake == "size" && errs ? 16 : 0);
    int data = causeway_window_create(team, CAUSEWAY_ON_DEVICE, bytes);
    if (mistake == "size") {
        REQUIRE(data < 0 && strstr(causeway_comm_error(), "creates a different window"),
                "a window of another size was made");
        printf("%s\n", causeway_comm_error());
        causeway_team_destroy(team);
        return pass();
    }
    REQUIRE(data >= 0, "%s", causeway_comm_error());
    int words = causeway_window_create(team, CAUSEWAY_ON_DEVICE, 8 * (ranks + 1));
    REQUIRE(words >= 0, "%s", causeway_comm_error());
    // Through Causeway the GPU has another address for memory of the host that processes share.
    int in_host = causeway_window_create(team, CAUSEWAY_IN_HOST, 8 * (ranks + 1));
    REQUIRE(in_host >= 0 || strstr(causeway_comm_error(), "another address"), "%s", causeway_comm_error());
    Team ours;
    Window numbers, cells;
    REQUIRE(causeway_team_handle(team, rank, &ours) == 0, "%s", causeway_comm_error());
    REQUIRE(causeway_team_handle(team, (rank + 1) % ranks, &numbers) < 0,
            "another process's rank has a handle");
    REQUIRE(causeway_window_handle(team, data, rank, &numbers) == 0, "%s", causeway_comm_error());
    REQUIRE(causeway_window_handle(team, words, rank, &cells) == 0, "%s", causeway_comm_error());
    unsigned long long *wrong, found = 0;
    CHECK_CUDA(cudaMalloc(&wrong, sizeof found));
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof found));
    CHECK_CUDA(cudaDeviceSynchronize());
    exchange<<<1, 128>>>(ours, numbers, cells, wrong);
    CHECK_CUDA(cudaDeviceSynchronize());
    REQUIRE(causeway_team_check(team) == 0, "%s", causeway_comm_error());
    CHECK_CUDA(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == 0, "%llu numbers are wrong", found);
    if (in_host >= 0) {
        // Signals and additions are the proxies' there.
        REQUIRE(causeway_window_handle(team, static_cast<u32>(in_host), rank, &cells) == 0, "%s",
                causeway_comm_error());
        exchange<<<1, 128>>>(ours, numbers, cells, wrong);
        CHECK_CUDA(cudaDeviceSynchronize());
        REQUIRE(causeway_team_check(team) == 0, "%s", causeway_comm_error());
        CHECK_CUDA(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == 0, "%llu numbers are wrong with a window in the host", found);
        printf("a window in the host was used\n");
    }
    if (mistake == "end" || mistake == "cut") {
        // Ends without a word, when all others have looked for the last time whether all is well.
        if (errs && mistake == "end") {
            meet<<<1, 32>>>(ours);
            CHECK_CUDA(cudaDeviceSynchronize());
            _exit(0);
        }
        printf("waits\n");
        fflush(stdout);
        wait_for_ever<<<1, 32>>>(ours, cells);
        CHECK_CUDA(cudaDeviceSynchronize());
        REQUIRE(causeway_team_check(team) != 0, "the end of a rank was not noticed");
        printf("%s\n", causeway_comm_error());
    }
    causeway_team_destroy(team);
    return pass();
}
