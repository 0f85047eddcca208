// Dispatch and combine of a mixture of experts, by kernels alone. Each rank has tokens and one expert. A
// token goes to the expert of its choice with one put, is worked on there, and comes back to where it was.
#include <causeway/device.cuh>
#include <causeway/team.h>
#include <cstdio>
#include <vector>

using namespace causeway;

constexpr u32 RANKS = 4, TOKENS = 24, WIDTH = 64;
constexpr u64 TOKEN_BYTES = WIDTH * sizeof(float);

// A window of each rank: its tokens, room for every token of every rank at its expert, and the results.
constexpr u64 ARRIVED = TOKENS * TOKEN_BYTES, WORKED = ARRIVED + RANKS * TOKENS * TOKEN_BYTES;
constexpr u64 RESULTS = WORKED + RANKS * TOKENS * TOKEN_BYTES, BYTES = RESULTS + TOKENS * TOKEN_BYTES;

__host__ __device__ inline u32 expert_of(u32 rank, u32 token) { return (rank * 7 + token * 5) % RANKS; }

// A warp a token. Signals: of the first RANKS words each counts the tokens from one rank, the next one the
// results.
__global__ void layer(Team team, Window data, Window signals) {
    u32 warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    for (u32 token = warp; token < TOKENS; token += warps) {
        u32 expert = expert_of(team.rank, token);
        u64 place = ARRIVED + (team.rank * TOKENS + token) * TOKEN_BYTES;
        put_signal<Warp>(team, expert, data, place, data, token * TOKEN_BYTES, TOKEN_BYTES, signals,
                         8 * team.rank, 1, SignalKind::add);
    }
    // The expert's part: all tokens of each rank that chose it. Everybody knows how many those are.
    for (u32 from = 0; from < team.ranks; from++) {
        u64 expected = 0;
        for (u32 token = 0; token < TOKENS; token++) expected += expert_of(from, token) == team.rank;
        if (signal_wait<Block>(team, signals, 8 * from, Compare::at_least, expected) != Status::ok) return;
        for (u32 token = warp; token < TOKENS; token += warps) {
            if (expert_of(from, token) != team.rank) continue;
            u64 place = (from * TOKENS + token) * TOKEN_BYTES;
            const float *in = reinterpret_cast<const float *>(data.base + ARRIVED + place);
            float *out = reinterpret_cast<float *>(data.base + WORKED + place);
            for (u32 at = lane; at < WIDTH; at += 32) out[at] = in[at] * (team.rank + 2);
            put_signal<Warp>(team, from, data, RESULTS + token * TOKEN_BYTES, data, WORKED + place,
                             TOKEN_BYTES, signals, 8 * RANKS, 1, SignalKind::add);
        }
    }
    signal_wait<Block>(team, signals, 8 * RANKS, Compare::at_least, TOKENS);
}

int main() {
    cudaFree(nullptr);
    causeway_team *team = causeway_team_create(RANKS, nullptr, nullptr);
    if (team == nullptr) return printf("%s\n", causeway_comm_error()), 1;
    int data = causeway_window_create(team, CAUSEWAY_ON_DEVICE, BYTES);
    int signals = causeway_window_create(team, CAUSEWAY_ON_DEVICE, 8 * (RANKS + 1));
    Team teams[RANKS];
    Window windows[RANKS], cells[RANKS];
    cudaStream_t streams[RANKS];
    std::vector<float> tokens(TOKENS * WIDTH);
    for (u32 rank = 0; rank < RANKS; rank++) {
        causeway_team_handle(team, rank, &teams[rank]);
        causeway_window_handle(team, data, rank, &windows[rank]);
        if (causeway_window_handle(team, signals, rank, &cells[rank]) != 0)
            return printf("%s\n", causeway_comm_error()), 1;
        cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking);
        for (u32 at = 0; at < tokens.size(); at++) tokens[at] = static_cast<float>(rank * 1000 + at % 977);
        cudaMemcpy(reinterpret_cast<void *>(windows[rank].base), tokens.data(), tokens.size() * sizeof(float),
                   cudaMemcpyHostToDevice);
    }
    for (u32 rank = 0; rank < RANKS; rank++)
        layer<<<1, 256, 0, streams[rank]>>>(teams[rank], windows[rank], cells[rank]);
    cudaDeviceSynchronize();
    if (causeway_team_check(team) != 0) return printf("%s\n", causeway_comm_error()), 1;
    u32 wrong = 0;
    for (u32 rank = 0; rank < RANKS; rank++) {
        cudaMemcpy(tokens.data(), reinterpret_cast<void *>(windows[rank].base + RESULTS),
                   tokens.size() * sizeof(float), cudaMemcpyDeviceToHost);
        for (u32 at = 0; at < tokens.size(); at++) {
            float token = static_cast<float>(rank * 1000 + at % 977);
            wrong += tokens[at] != token * (expert_of(rank, at / WIDTH) + 2);
        }
    }
    printf("%u tokens of %u ranks came back, %u numbers are wrong\n", TOKENS * RANKS, RANKS, wrong);
    causeway_team_destroy(team);
    return wrong != 0;
}
