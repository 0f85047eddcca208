// Tasks that a kernel does for the host: what its functions, and those on streams, ask for. Each source that
// nvcc compiles has the kernel, and says so to the process (host.h).
#pragma once

#include "collectives.cuh"
#include "host.h"
#include "waits.cuh"

namespace causeway::shmem {

// Whether all PEs say the same as this one: each writes its word into everybody's row.
__device__ inline void compare_words(u64 value, u64 row) {
    u64 *cells = reinterpret_cast<u64 *>(heap().base + CELLS_AT) + row * MAX_RANKS;
    if (Block::rank() == 0)
        for (u32 pe = 0; pe < team().ranks; pe++)
            put_value<u64>(cells + team().rank, value, static_cast<int>(pe));
    barrier<Block>(HOSTS_BARRIER);
    u64 are_same = 1;
    for (u32 pe = 0; pe < team().ranks; pe++) are_same &= load_object(cells + pe) == value;
    if (Block::rank() == 0) *reinterpret_cast<u64 *>(heap().base + RESULT_AT) = are_same;
}

__global__ static void do_task(Task task) {
    switch (task.kind) {
    case Task::barrier: barrier<Block>(static_cast<u32>(task.value)); break;
    case Task::agree: compare_words(task.value, task.bytes); break;
    case Task::put: put<Block, true>(task.to, task.from, task.bytes, task.pe); break;
    case Task::get: get<Block, true>(task.to, task.from, task.bytes, task.pe); break;
    case Task::put_value:
        if (Block::rank() == 0) {
            u64 value = task.value;
            put<Thread, true>(task.to, &value, task.bytes, task.pe);
        }
        complete_posted<Block>();
        break;
    case Task::put_signal:
        put_signal<Block, true>(task.to, task.from, task.bytes, task.word, task.value, task.operation,
                                task.pe);
        break;
    case Task::signal: signal<Block>(task.word, task.value, task.operation, task.pe); break;
    case Task::wait:
        if (Block::rank() == 0) wait_until(task.word, task.operation, task.value);
        break;
    case Task::broadcast:
        broadcast<Block>(NVSHMEM_TEAM_WORLD, task.to, task.from, task.bytes, task.pe);
        break;
    case Task::collect: collect<Block>(NVSHMEM_TEAM_WORLD, task.to, task.from, task.bytes); break;
    case Task::exchange: exchange<Block>(NVSHMEM_TEAM_WORLD, task.to, task.from, task.bytes); break;
    default: must(causeway::quiet<Block>(team())); break;
    }
}

static cudaError_t write_state_of_source(const State &state) {
    return cudaMemcpyToSymbol(state_of_source, &state, sizeof state);
}

static cudaError_t run_in_source(const Task &task, cudaStream_t stream) {
    bool is_short = task.from == nullptr;
    do_task<<<1, is_short ? 32 : 256, 0, stream>>>(task);
    return cudaGetLastError();
}

namespace {

struct Registration {
    Registration() {
        // A kernel that is loaded when it is first launched waits for one that runs, and holds up the copies
        // for which that one waits. Before the driver reads it, and unless the program's user has said
        // otherwise.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        job().sources.push_back({write_state_of_source, run_in_source, false});
    }
};

[[maybe_unused]] const Registration registration;

} // namespace

} // namespace causeway::shmem
