// Many messages in one direction: how long each takes with others in flight, and how fast bytes go.
#include <algorithm>

#include <causeway/device.cuh>

#include "ways.h"

using namespace causeway;

namespace bench {

// So many messages are asked for, then all are waited for; the next message lies behind the one before, in
// the first `room` bytes here and in those behind at the peer.
template <class Scope> __device__ static void put_often(Team team, Window data, u64 room, u64 bytes,
                                                        u32 in_flight, u32 times, Initiator by) {
    for (u32 time = 0; time < times; time++) {
        for (u64 message = 0; message < in_flight; message++) {
            u64 at = message * bytes % room;
            if (put<Scope>(team, 1, data, room + at, data, at, bytes, by) != Status::ok) return;
        }
        quiet<Scope>(team);
    }
}

FULL_BLOCKS void put_in_flight(Team team, Window data, u64 room, u64 bytes, u32 in_flight, u32 times,
                               Initiator by) {
    if (blockDim.x == 1) put_often<Thread>(team, data, room, bytes, in_flight, times, by);
    else put_often<Block>(team, data, room, bytes, in_flight, times, by);
}

// Every block moves its part, the last one what is left.
FULL_BLOCKS void put_by_blocks(Team team, Window data, u64 bytes, Initiator by) {
    u64 part = ((bytes + gridDim.x - 1) / gridDim.x + 15) / 16 * 16, first = part * blockIdx.x;
    if (first < bytes) {
        u64 length = bytes - first < part ? bytes - first : part;
        put<Block>(team, 1, data, bytes + first, data, first, length, by);
    }
    quiet<Block>(team);
}

void measure_flight(const Settings &settings) {
    u64 most = settings.is_quick ? 4096 : 1 << 20, room = settings.is_quick ? 1 << 16 : 64 << 20;
    Ranks ranks(2, ONE_QUEUE, settings);
    auto data = ranks.window(CAUSEWAY_ON_DEVICE, 2 * room);
    Cases cases(settings);
    u32 seed = 0;
    auto seconds_of = [&](const Way &way, u64 bytes, u32 in_flight, u32 times) {
        u64 moved = std::min<u64>(room, bytes * in_flight);
        seed++;
        fill(data[0], moved, seed);
        double seconds = ranks.time(1, [&](u32) {
            put_in_flight<<<1, threads_for(bytes), 0, ranks.streams[0]>>>(ranks.teams[0], data[0], room,
                                                                          bytes, in_flight, times, way.by);
        });
        must_be(data[1], room, moved, seed, way.name);
        return seconds;
    };
    for (u64 bytes = 8; bytes <= most; bytes *= bytes == 8 ? 32 : 16) {
        for (u32 in_flight : {1u, 8u, 64u}) {
            u64 budget = settings.is_quick ? 4 : std::min<u64>(2000, (256 << 20) / bytes);
            u32 times = static_cast<u32>(std::max<u64>(1, budget / in_flight));
            for (const Way &way : {DIRECT, PROXY, CHOSEN})
                cases.add("flight", way.name, bytes, in_flight, "us",
                          [=] { return seconds_of(way, bytes, in_flight, times) / in_flight / times * 1e6; });
        }
        // More than a queue holds.
        u32 full = settings.is_quick ? 8 : bytes > 65536 ? 256 : 2048;
        for (const Way &way : {DIRECT, PROXY, CHOSEN})
            cases.add("queue", way.name, bytes, full, "GB/s", [=] {
                return static_cast<double>(bytes) * full / seconds_of(way, bytes, full, 1) / 1e9;
            });
    }
    cases.measure();
}

void measure_bandwidth(const Settings &settings) {
    u64 bytes = settings.is_quick ? 1 << 16 : 256 << 20;
    Ranks ranks(2, ONE_QUEUE, settings);
    auto data = ranks.window(CAUSEWAY_ON_DEVICE, 2 * bytes);
    Cases cases(settings);
    u32 seed = 0;
    auto add = [&](const Way &way, u32 blocks) {
        cases.add("bandwidth", way.name, bytes, blocks, "GB/s", [=, &seed, &ranks] {
            seed++;
            fill(data[0], bytes, seed);
            double seconds = ranks.time(1, [&](u32) {
                put_by_blocks<<<blocks, 1024, 0, ranks.streams[0]>>>(ranks.teams[0], data[0], bytes, way.by);
            });
            must_be(data[1], bytes, bytes, seed, way.name);
            return static_cast<double>(bytes) / seconds / 1e9;
        });
    };
    for (u32 blocks = 1; blocks < settings.processors; blocks *= 4)
        add(DIRECT, blocks);
    add(DIRECT, settings.processors);
    add(DIRECT, 2 * settings.processors);
    add(PROXY, 1);
    add(CHOSEN, 1);
    cases.add("bandwidth", "device copy", bytes, 1, "GB/s", [&] {
        seed++;
        fill(data[0], bytes, seed);
        double seconds = ranks.time(1, [&](u32) {
            CHECK(cudaMemcpyAsync(address(data[1], bytes), address(data[0]), bytes, cudaMemcpyDeviceToDevice,
                                  ranks.streams[0]));
        });
        must_be(data[1], bytes, bytes, seed, "device copy");
        return static_cast<double>(bytes) / seconds / 1e9;
    });
    cases.measure();
}

} // namespace bench
