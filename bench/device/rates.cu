// Many tiny messages: how many a second, by threads and by blocks; how long one call takes; barriers.
#include <causeway/device.cuh>

#include "ways.h"

using namespace causeway;

namespace bench {

// Every thread signals a word of its own, so many times.
__global__ void post_many(Team team, Window cells, u32 times, Initiator by) {
    u64 cell = 8ull * (threadIdx.x + blockDim.x * blockIdx.x);
    for (u32 time = 1; time <= times; time++)
        if (signal(team, 1, cells, cell, time, SignalKind::set, by) != Status::ok) return;
    quiet(team);
}

__global__ void time_of_a_post(Team team, Window cells, u32 times, Initiator by, u64 *nanoseconds) {
    u64 start = order::now();
    for (u32 time = 1; time <= times; time++)
        signal(team, 1, cells, 0, time, SignalKind::set, by);
    *nanoseconds = order::now() - start;
    quiet(team);
}

enum class Call { add, compare_and_swap, fetch };

__global__ void call_often(Team team, Window cells, u32 times, Call call) {
    u64 before = 0;
    for (u32 time = 0; time < times; time++) {
        Status status = call == Call::add ? atomic_add(team, 1, cells, 0, 1, &before)
                        : call == Call::compare_and_swap
                            ? atomic_cas(team, 1, cells, 0, time, time + 1, &before)
                            : fetch(team, 1, cells, 0, &before);
        // What was there before says that the operation is the one that was asked for.
        if (status != Status::ok || (call != Call::fetch && before != time)) return;
    }
}

__global__ void meet_often(Team team, u32 times) {
    for (u32 time = 0; time < times; time++)
        if (barrier<Block>(team) != Status::ok) return;
}

void measure_rates(const Settings &settings) {
    const u32 most_blocks = settings.is_quick ? 8 : settings.processors;
    Ranks one_queue(2, ONE_QUEUE, settings), ranks(2, {8, 1024, settings.is_quick ? 1u : 4u, 0}, settings);
    auto single = one_queue.window(CAUSEWAY_IN_HOST, 8ull * 256 * most_blocks);
    auto in_host = ranks.window(CAUSEWAY_IN_HOST, 8ull * 256 * most_blocks);
    auto on_device = ranks.window(CAUSEWAY_ON_DEVICE, 8ull * 256 * most_blocks);
    Cases cases(settings);
    auto add = [&](const char *what, const char *way, const Ranks &ranks, const std::vector<Window> &cells,
                   Initiator by, u32 blocks, u32 threads, u32 count) {
        u32 times = settings.is_quick ? 4 : by == Initiator::direct ? 2000 : 4000 / blocks / threads + 100;
        cases.add(what, way, 8, count, "M/s", [=, &ranks, &cells] {
            clear(cells);
            double seconds = ranks.time(1, [&](u32) {
                post_many<<<blocks, threads, 0, ranks.streams[0]>>>(ranks.teams[0], cells[0], times, by);
            });
            std::vector<u64> found(blocks * threads);
            CHECK(cudaMemcpy(found.data(), address(cells[1]), 8 * found.size(), cudaMemcpyDefault));
            for (u64 value : found)
                REQUIRE(value == times, "a signal is %llu, and must be %u", value, times);
            return static_cast<double>(blocks) * threads * times / seconds / 1e6;
        });
    };
    auto add_all = [&](const char *what, u32 blocks, u32 threads, u32 count) {
        add(what, "proxy, one queue", one_queue, single, Initiator::proxy, blocks, threads, count);
        add(what, "proxy, eight queues", ranks, in_host, Initiator::proxy, blocks, threads, count);
        add(what, "direct", ranks, on_device, Initiator::direct, blocks, threads, count);
    };
    for (u32 threads : {1u, 32u, 256u})
        add_all("rate_by_threads", 8, threads, threads);
    for (u32 blocks = 1; blocks < most_blocks; blocks *= 4)
        add_all("rate_by_blocks", blocks, 256, blocks);
    add_all("rate_by_blocks", most_blocks, 256, most_blocks);
    cases.measure();
}

void measure_calls(const Settings &settings) {
    Ranks ranks(2, ONE_QUEUE, settings);
    auto in_host = ranks.window(CAUSEWAY_IN_HOST, 64), on_device = ranks.window(CAUSEWAY_ON_DEVICE, 64);
    u64 *nanoseconds;
    CHECK(cudaMalloc(&nanoseconds, sizeof *nanoseconds));
    Cases cases(settings);
    // Fewer than a queue holds: a post does not wait.
    u32 times = settings.is_quick ? 4 : 500;
    for (const Way &way : {DIRECT, PROXY_IN_HOST}) {
        const auto &cells = way.is_in_host ? in_host : on_device;
        cases.add("post", way.name, 8, 1, "ns", [=, &ranks, &cells] {
            ranks.time(1, [&](u32) {
                time_of_a_post<<<1, 1, 0, ranks.streams[0]>>>(ranks.teams[0], cells[0], times, way.by,
                                                              nanoseconds);
            });
            u64 taken;
            CHECK(cudaMemcpy(&taken, nanoseconds, sizeof taken, cudaMemcpyDeviceToHost));
            return static_cast<double>(taken) / times;
        });
        for (Call call : {Call::add, Call::compare_and_swap, Call::fetch}) {
            const char *what = call == Call::add                ? "atomic_add"
                               : call == Call::compare_and_swap ? "atomic_cas"
                                                                : "fetch";
            cases.add(what, way.name, 8, 1, "us", [=, &ranks, &cells] {
                clear(cells);
                double seconds = ranks.time(1, [&](u32) {
                    call_often<<<1, 1, 0, ranks.streams[0]>>>(ranks.teams[0], cells[0], times, call);
                });
                u64 found, expected = call == Call::fetch ? 0 : times;
                CHECK(cudaMemcpy(&found, address(cells[1]), sizeof found, cudaMemcpyDefault));
                REQUIRE(found == expected, "%s: %llu was counted, and not %llu", what, found, expected);
                return seconds / times * 1e6;
            });
        }
    }
    cases.measure();
    CHECK(cudaFree(nanoseconds));
}

void measure_barriers(const Settings &settings) {
    Ranks two(2, ONE_QUEUE, settings), four(4, ONE_QUEUE, settings), eight(8, ONE_QUEUE, settings);
    Cases cases(settings);
    u32 times = settings.is_quick ? 3 : 1000;
    for (const Ranks *ranks : {&two, &four, &eight}) {
        u32 count = static_cast<u32>(ranks->teams.size());
        cases.add("barrier", "direct", 8, count, "us", [=] {
            double seconds = ranks->time(count, [&](u32 rank) {
                meet_often<<<1, 64, 0, ranks->streams[rank]>>>(ranks->teams[rank], times);
            });
            return seconds / times * 1e6;
        });
    }
    cases.measure();
}

} // namespace bench
