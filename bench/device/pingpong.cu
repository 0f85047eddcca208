#include "pingpong.h"

#include <causeway/device.cuh>

using namespace causeway;

namespace bench {

template <class Scope>
__device__ static void rounds_of(Team team, Window data, Window cells, u64 bytes, u32 rounds, Initiator by) {
    u32 peer = 1 - team.rank;
    for (u32 round = 1; round <= rounds; round++) {
        if (team.rank == 0)
            put_signal<Scope>(team, peer, data, bytes, data, 0, bytes, cells, 0, round, SignalKind::set, by);
        if (signal_wait<Scope>(team, cells, 0, Compare::at_least, round) != Status::ok) return;
        if (team.rank == 1)
            put_signal<Scope>(team, peer, data, bytes, data, 0, bytes, cells, 0, round, SignalKind::set, by);
    }
    quiet<Scope>(team);
}

FULL_BLOCKS void ping_pong(Team team, Window data, Window cells, u64 bytes, u32 rounds, Initiator by) {
    if (blockDim.x == 1) rounds_of<Thread>(team, data, cells, bytes, rounds, by);
    else rounds_of<Block>(team, data, cells, bytes, rounds, by);
}

__global__ void wait_for(Team team, Window cells, u64 value) {
    signal_wait(team, cells, 0, Compare::at_least, value);
}

PingPong::PingPong(u64 most, const Settings &settings) : ranks(2, ONE_QUEUE, settings), most(most) {
    on_device = ranks.window(CAUSEWAY_ON_DEVICE, 2 * most);
    in_host = ranks.window(CAUSEWAY_IN_HOST, 2 * most);
    device_cells = ranks.window(CAUSEWAY_ON_DEVICE, 64);
    host_cells = ranks.window(CAUSEWAY_IN_HOST, 64);
    CHECK(cudaStreamCreateWithFlags(&sending, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&signals, sizeof *signals));
}

double PingPong::rounds(const Way &way, u64 bytes, u32 count) {
    const auto &data = way.is_in_host ? in_host : on_device;
    const auto &cells = way.is_in_host ? host_cells : device_cells;
    clear(cells);
    seed++;
    fill(data[0], bytes, seed);
    fill(data[1], bytes, seed + 7);
    double seconds = ranks.time(2, [&](u32 rank) {
        ping_pong<<<1, threads_for(bytes), 0, ranks.streams[rank]>>>(ranks.teams[rank], data[rank],
                                                                     cells[rank], bytes, count, way.by);
    });
    must_be(data[1], bytes, bytes, seed, way.name);
    must_be(data[0], bytes, bytes, seed + 7, way.name);
    return seconds;
}

double PingPong::rounds_by_host(u64 bytes, u32 count) {
    clear(device_cells);
    seed++;
    fill(on_device[0], bytes, seed);
    fill(on_device[1], bytes, seed + 7);
    double start = now();
    for (u32 round = 1; round <= count; round++) {
        for (u32 from = 0; from < 2; from++) {
            u32 to = 1 - from;
            ranks.use(to);
            wait_for<<<1, 1, 0, ranks.streams[to]>>>(ranks.teams[to], device_cells[to], round);
            ranks.use(0);
            CHECK(cudaMemcpyAsync(address(on_device[to], bytes), address(on_device[from]), bytes,
                                  cudaMemcpyDeviceToDevice, sending));
            // The one before has been seen, so that it may be written over.
            *signals = round;
            CHECK(cudaMemcpyAsync(address(device_cells[to]), signals, sizeof *signals, cudaMemcpyHostToDevice,
                                  sending));
            CHECK(cudaStreamSynchronize(ranks.streams[to]));
        }
    }
    double seconds = now() - start;
    REQUIRE(causeway_team_check(ranks.team) == 0, "%s", causeway_comm_error());
    must_be(on_device[1], bytes, bytes, seed, "the polling kernel ends, the host sends");
    must_be(on_device[0], bytes, bytes, seed + 7, "the polling kernel ends, the host sends");
    return seconds;
}

double PingPong::transfers(u64 bytes, u32 count) {
    seed++;
    fill(on_device[0], bytes, seed);
    fill(on_device[1], bytes, seed + 7);
    double start = now();
    for (u32 round = 0; round < count; round++) {
        for (u32 from = 0; from < 2; from++) {
            CHECK(cudaMemcpyAsync(address(on_device[1 - from], bytes), address(on_device[from]), bytes,
                                  cudaMemcpyDeviceToDevice, sending));
            CHECK(cudaStreamSynchronize(sending));
        }
    }
    double seconds = now() - start;
    must_be(on_device[1], bytes, bytes, seed, "the host's transfers");
    must_be(on_device[0], bytes, bytes, seed + 7, "the host's transfers");
    return seconds;
}

void measure_latency(const Settings &settings) {
    u64 most = settings.is_quick ? 4096 : 1 << 20;
    PingPong pair(most, settings);
    Cases cases(settings);
    for (u64 bytes = 8; bytes <= most; bytes *= bytes == 8 ? 32 : 16) {
        u32 rounds = settings.is_quick ? 5 : bytes > 65536 ? 200 : 1000, fewer = settings.is_quick ? 5 : 200;
        for (const Way &way : {DIRECT, PROXY, PROXY_IN_HOST, CHOSEN})
            cases.add("latency", way.name, bytes, 1, "us",
                      [=, &pair] { return pair.rounds(way, bytes, rounds) / rounds / 2 * 1e6; });
        cases.add("latency", "hybrid", bytes, 1, "us",
                  [=, &pair] { return pair.rounds_by_host(bytes, fewer) / fewer / 2 * 1e6; });
        cases.add("latency", "host transfer", bytes, 1, "us",
                  [=, &pair] { return pair.transfers(bytes, fewer) / fewer / 2 * 1e6; });
    }
    cases.measure();
}

} // namespace bench
