// `proxy`: a kernel writes requests of 16 bytes into a queue in host memory, and a thread of the host carries
// them out.
//
// Any number of threads post to a queue. Each takes a number, which is its slot; the proxy takes slots in the
// order of the numbers. Only a queue that is full makes a thread wait: until the proxy has read a request,
// not until it has done it.
#pragma once

#include "failure.cuh"

namespace causeway::detail {

__device__ inline u64 head_of(Verb verb, u32 peer, u32 window, u64 offset) {
    return static_cast<u64>(verb) << 59 | static_cast<u64>(peer) << 53 | static_cast<u64>(window) << 47 |
           offset << 11;
}

__device__ inline Request transfer(Verb verb, u32 peer, u32 window, u64 offset, u32 local, u64 local_offset,
                                   u64 bytes) {
    u64 second = static_cast<u64>(local) << 57 | local_offset << 21 | bytes >> 11;
    return {{head_of(verb, peer, window, offset) | (bytes & 0x7ff), second}};
}

__device__ inline Request word(Verb verb, u32 peer, u32 window, u64 offset, u64 value) {
    return {{head_of(verb, peer, window, offset) | value >> 63, value & ~0ull >> 1}};
}

// The queue of the calling thread's block. Blocks share queues evenly.
__device__ inline Queue *queue_of(const Team &team) {
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    u32 queues = team.shape & QUEUES_OF_SHAPE;
    return &team.state->queues_of[queues == 1 ? 0 : block % queues];
}

// Waits until the proxy has come to a number; what is seen is kept, since every look at the host's memory
// goes over the bus.
__device__ inline Status wait_for(const Team &team, u64 *seen, const u64 *counter, u64 number) {
    if (order::load_relaxed(seen) >= number) {
        // Another thread has acquired it: this one does so by the fence, before it reads what a get has brought.
        order::fence();
        return Status::ok;
    }
    Timeout timeout(team);
    while (true) {
        // Acquired: after `quiet` the caller may read what a get has brought.
        u64 value = order::load_acquire(counter);
        if (value >= number) {
            atomicMax(seen, value);
            return Status::ok;
        }
        Status status = timeout.poll();
        if (status != Status::ok) return status;
    }
}

// Posts one request, or two that belong together. Gives the number of the last one.
__device__ inline Status post(const Team &team, const Request *requests, u32 count, u64 *number) {
    Queue *queue = queue_of(team);
    // All that is needed of the queue at once, and before the fence, behind which each would cost a way to the
    // L2 of its own.
    u64 accepted = order::load_relaxed(&queue->accepted), capacity = queue->capacity;
    Request *slots = queue->slots;
    const QueueCounters *counters = queue->counters;
    u64 first = atomicAdd(&queue->head, static_cast<u64>(count));
    u64 end = first + count;
    if (end > accepted + capacity) {
        Status status = wait_for(team, &queue->accepted, &counters->accepted, end - capacity);
        // The slot stays empty, at which the proxy stops: the team is at its end anyway.
        if (status != Status::ok) return status == Status::timed_out ? Status::queue_full : status;
    }
    // The proxy is to find what this thread has written before.
    order::fence();
    for (u32 at = 0; at < count; at++) {
        u64 index = first + at;
        // 1 in even rounds. The capacity is a power of two, and division would take long.
        u64 phase = (index & capacity) == 0 ? 1ull << 63 : 0;
        Request *slot = &slots[index & (capacity - 1)];
        order::store_pair(slot->words, requests[at].words[0] | phase, requests[at].words[1] | phase);
    }
    *number = end - 1;
    return Status::ok;
}

// Waits for the answer to a request.
__device__ inline Status wait_for_response(const Team &team, u64 number, u64 *value) {
    Queue *queue = queue_of(team);
    Response *responses = reinterpret_cast<Response *>(queue->counters + 1);
    Response *response = &responses[number & (queue->capacity - 1)];
    Timeout timeout(team);
    // Acquired, for the value was written before.
    while (order::load_acquire(&response->number) != number + 1) {
        Status status = timeout.poll();
        if (status != Status::ok) return status;
    }
    *value = order::load_relaxed(&response->value);
    // Released, or the next answer could be written before the value has been read.
    order::store_release(&response->taken, number + 1);
    return Status::ok;
}

// Waits until all that the calling block's queue holds now is done.
__device__ inline Status drain(const Team &team) {
    Queue *queue = queue_of(team);
    u64 head = order::load_relaxed(&queue->head);
    if (head == 0) return Status::ok;
    return wait_for(team, &queue->completed, &queue->counters->completed, head);
}

} // namespace causeway::detail
