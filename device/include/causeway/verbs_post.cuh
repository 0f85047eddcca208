// How does a kernel hand work requests to a network card? `post_send` and `post_recv`.
//
// A thread reserves slots, writes its request into them, and marks it as written. Whichever thread finds that
// nobody publishes then publishes all that is written in one piece: the doorbell record, and the doorbell. Threads of
// a warp that come at the same time do it as one. No thread waits for another one else, so threads of a warp may post
// in different branches. `OneAtATime` is the published form instead, of one thread in each block: a mutex of atomic
// operations around all of it.
//
// Counts, marks and locks are in memory of the GPU, and of its own scope: nobody else reads them. What a post does
// across the bus are stores alone, and the two fences of `ring_doorbell`, which wait for these.
#pragma once

#include "mlx5.h"
#include "order.cuh"
#include "verbs_layout.h"

namespace causeway::verbs {

namespace detail {

// Whether a wait goes on. The clock is read every 64 polls, and the host's word, which lies across the bus,
// every 512.
class Deadline {
  public:
    __device__ Deadline(const u32 *abort, u64 limit) : abort_(abort), limit_(limit) {}

    __device__ Status poll() {
        if (++polls_ % 64 != 0) return Status::ok;
        u64 time = order::now();
        if (start_ == 0) start_ = time;
        if (polls_ % 512 == 64 && order::load_relaxed(abort_) != 0) return Status::aborted;
        return time - start_ > limit_ ? Status::timed_out : Status::ok;
    }

  private:
    const u32 *abort_;
    u64 limit_;
    u64 start_ = 0;
    u32 polls_ = 0;
};

// Takes a lock, if it is free. Only threads of the GPU do.
__device__ inline bool try_lock(u32 *lock) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], 1;" : "=r"(before) : "l"(lock) : "memory");
    return before == 0;
}

__device__ inline void unlock(u32 *lock) {
    asm volatile("st.release.gpu.global.u32 [%0], 0;" ::"l"(lock) : "memory");
}

// Slots of its own for requests, or `again` where the ring has not so many left: a slot is free once the card has
// completed its request, which poll_cq finds out.
__device__ inline Status try_reserve(Ring *ring, u32 slots, u64 *first) {
    u64 reserved = order::load_relaxed_local(&ring->reserved);
    for (;;) {
        // Acquired: what poll_cq has read of a slot it has read before the slot is written again.
        u64 completed = order::load_acquire_local(&ring->completed);
        if (reserved + slots > completed + ring->count) {
            // `completed` is newer than `reserved`: only where that is still so the ring is full.
            u64 now = order::load_relaxed_local(&ring->reserved);
            if (now == reserved) return Status::again;
            reserved = now;
            continue;
        }
        u64 before = order::compare_and_swap_local(&ring->reserved, reserved, reserved + slots);
        if (before == reserved) {
            *first = before;
            return Status::ok;
        }
        reserved = before;
    }
}

// Writes a segment of a request. Requests go on at the ring's beginning where they reach its end.
__device__ inline void write_segment(const Ring &ring, u64 first, u32 at, causeway_mlx5_segment segment) {
    u64 of_ring = static_cast<u64>(ring.count) * (ring.slot_bytes / CAUSEWAY_MLX5_SEGMENT_BYTES);
    u64 index = (first * (ring.slot_bytes / CAUSEWAY_MLX5_SEGMENT_BYTES) + at) & (of_ring - 1);
    u64 *to = reinterpret_cast<u64 *>(ring.buffer + index * CAUSEWAY_MLX5_SEGMENT_BYTES);
    const u64(&halves)[2] = segment.words;
    order::store_pair(to, halves[0], halves[1]);
}

// Tells the card of all requests before `published`, the last of which has this control word.
__device__ inline void ring_doorbell(Ring *ring, u32 record, u64 published, u64 control) {
    // The card reads requests when it has read the record: without this fence it could find the new count
    // and, behind it, the old bytes of a slot. Of the system's scope it is for all threads whose marks this one has
    // acquired: for their requests, and for what these name.
    order::fence();
    order::store_relaxed(ring->doorbell_record + record,
                         causeway_mlx5_be32(static_cast<u32>(published & 0xffff)));
    if (ring->doorbell == nullptr) return;
    // The doorbell makes the card read the record: without this fence it could read the old one, and the
    // requests would wait for the next doorbell, which may never come.
    order::fence();
    // One store of 8 bytes: the card takes a doorbell as a whole or not at all.
    order::store_relaxed(ring->doorbell, control);
}

// Marks requests from `first` to `end` as written, and sees that they are published: by this thread, with all others
// whose marks it finds, or by one that publishes at this moment.
__device__ inline void commit(Ring *ring, u32 record, u64 first, u64 end, u64 control) {
    u64 mask = ring->count - 1;
    Slot *slot = &ring->slots[first & mask];
    order::store_relaxed_local(&slot->control, control);
    // Released: who publishes finds the requests whole, and all that their threads wrote for them to send.
    order::store_release_local(&slot->mark, end);
    u32 seen;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(seen) : "l"(&ring->unpublished) : "memory");
    // Who publishes finds the number changed, and looks for marks once more.
    if (seen != 0) return;
    for (seen = 1;;) {
        u64 before = order::load_relaxed_local(&ring->published), published = before, last = 0;
        for (;;) {
            // A mark of an earlier round is never beyond what is published.
            const Slot *next = &ring->slots[published & mask];
            u64 until = order::load_acquire_local(&next->mark);
            if (until <= published) break;
            last = order::load_relaxed_local(&next->control);
            published = until;
        }
        if (published != before) {
            ring_doorbell(ring, record, published, last);
            order::store_relaxed_local(&ring->published, published);
        }
        u32 now;
        // Released: the next one finds what is published. Its doorbell is behind this one's, as its fences are.
        asm volatile("atom.acq_rel.gpu.global.cas.b32 %0, [%1], %2, 0;"
                     : "=r"(now)
                     : "l"(&ring->unpublished), "r"(seen)
                     : "memory");
        if (now == seen) return;
        seen = now;
    }
}

// Threads of a warp that post to one queue pair at the same time: their requests lie side by side in the ring, and one
// of them reserves and publishes for all.
struct WarpPost {
    u32 lanes;
    u32 leader, last; // the first of the lanes, and the last
    u32 index, count; // of this one, and of all
};

// Whose requests take several slots posts alone.
__device__ inline WarpPost converged_posts(const QueuePair *qp, u32 slots) {
    u32 lane, before;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
    // Queue pairs lie at multiples of 64.
    u64 which = reinterpret_cast<u64>(qp) | (slots == 1 ? 0 : lane + 1);
    u32 lanes = __match_any_sync(__activemask(), which);
    return {lanes, static_cast<u32>(__ffs(static_cast<int>(lanes)) - 1),
            static_cast<u32>(31 - __clz(static_cast<int>(lanes))), static_cast<u32>(__popc(lanes & before)),
            static_cast<u32>(__popc(lanes))};
}

__device__ inline bool is_atomic(Operation operation) {
    return operation == Operation::compare_and_swap || operation == Operation::fetch_and_add;
}

__device__ inline bool has_remote(Operation operation) {
    return operation != Operation::send && operation != Operation::send_with_imm;
}

__device__ inline bool is_known(Operation operation) {
    u32 number = static_cast<u32>(operation);
    return (number >= CAUSEWAY_MLX5_RDMA_WRITE && number <= CAUSEWAY_MLX5_SEND_IMM) ||
           (number >= CAUSEWAY_MLX5_RDMA_READ && number <= CAUSEWAY_MLX5_ATOMIC_FA);
}

// Segments of a request, 0 where it cannot be written.
__device__ inline u32 segments_of(const QueuePair &qp, const SendRequest &request) {
    if (!is_known(request.operation) || request.bytes > MAX_MESSAGE_BYTES) return 0;
    u32 segments = has_remote(request.operation) ? 2 : 1;
    bool is_inline = (request.flags & SEND_INLINE) != 0;
    if (is_atomic(request.operation)) {
        bool is_whole = request.bytes == 8 && (request.remote_address & 7) == 0;
        return is_whole && !is_inline ? segments + 2 : 0;
    }
    if (request.bytes == 0) return segments;
    if (!is_inline) return segments + 1;
    if (request.bytes > qp.max_inline || request.operation == Operation::rdma_read) return 0;
    return segments + (4 + request.bytes + 15) / 16;
}

// 8 bytes of an inline request from `at` on, where 4 are its length and the others its bytes; 0 behind them.
__device__ inline u64 inline_word(const u8 *bytes, u32 count, u32 at) {
    u64 word = at == 0 ? causeway_mlx5_be32(count | CAUSEWAY_MLX5_INLINE) : 0;
    for (u32 byte = at == 0 ? 4 : 0; byte < 8; byte++) {
        u32 index = at + byte - 4;
        if (index < count) word |= static_cast<u64>(bytes[index]) << 8 * byte;
    }
    return word;
}

// Writes a request, and returns what the doorbell needs of it.
__device__ inline u64 write_request(const QueuePair &qp, u64 first, u32 segments, const SendRequest &request) {
    const Ring &ring = qp.send;
    bool has_immediate = request.operation == Operation::rdma_write_with_imm ||
                         request.operation == Operation::send_with_imm;
    u32 flags = ((request.flags & SEND_SIGNALED) != 0 ? CAUSEWAY_MLX5_CQ_UPDATE : 0) |
                ((request.flags & SEND_SOLICITED) != 0 ? CAUSEWAY_MLX5_SOLICITED : 0) |
                ((request.flags & SEND_FENCE) != 0 ? CAUSEWAY_MLX5_FENCE : 0);
    causeway_mlx5_segment control =
        causeway_mlx5_control_segment(qp.number, static_cast<u32>(first), static_cast<u32>(request.operation),
                                      segments, flags, has_immediate ? request.immediate : 0);
    write_segment(ring, first, 0, control);
    u32 at = 1;
    if (has_remote(request.operation))
        write_segment(ring, first, at++,
                      causeway_mlx5_remote_segment(request.remote_address, request.rkey));
    if (is_atomic(request.operation)) {
        bool is_swap = request.operation == Operation::compare_and_swap;
        write_segment(ring, first, at++,
                      causeway_mlx5_atomic_segment(is_swap ? request.swap : request.compare_add,
                                                   is_swap ? request.compare_add : 0));
    }
    if ((request.flags & SEND_INLINE) != 0) {
        const u8 *bytes = reinterpret_cast<const u8 *>(request.address);
        for (u32 of_data = 0; at < segments; at++, of_data += 16)
            write_segment(ring, first, at,
                          {{inline_word(bytes, request.bytes, of_data),
                            inline_word(bytes, request.bytes, of_data + 8)}});
    } else if (request.bytes > 0) {
        write_segment(ring, first, at,
                      causeway_mlx5_data_segment(request.address, request.bytes, request.lkey));
    }
    return control.words[0];
}

// Whether a request in these slots is the last of its quarter of the ring, so that each quarter has a completion.
__device__ inline bool ends_quarter(const Ring &ring, u64 first, u32 slots) {
    u64 quarter = ring.count < 4 ? 1 : ring.count / 4;
    return ((first ^ (first + slots)) & ~(quarter - 1)) != 0;
}

// Writes a request into slots that were reserved for it, and what poll_cq is to know of it.
__device__ inline u64 write_at(QueuePair *qp, const SendRequest &request, u32 segments, u64 first, u32 slots) {
    Slot *slot = &qp->send.slots[first & (qp->send.count - 1)];
    slot->wr_id = request.wr_id;
    slot->end = first + slots;
    if ((request.flags & SEND_SPARSE) == 0 || !ends_quarter(qp->send, first, slots))
        return write_request(*qp, first, segments, request);
    SendRequest signaled = request;
    signaled.flags |= SEND_SIGNALED;
    return write_request(*qp, first, segments, signaled);
}

// Posts requests of one thread that belong together: no other one comes in between, and one doorbell tells of all.
// Gives the slot behind the last.
__device__ inline Status try_post_batch(QueuePair *qp, const SendRequest *requests, u32 count, u64 *end) {
    if (order::load_relaxed_local(&qp->failure) != 0) return Status::failed;
    u32 slots = 0;
    for (u32 at = 0; at < count; at++) {
        u32 segments = segments_of(*qp, requests[at]);
        if (segments == 0 || segments > CAUSEWAY_MLX5_MAX_SEGMENTS) return Status::invalid;
        slots += (segments + 3) / 4;
    }
    u64 first = 0, control = 0;
    Status status = try_reserve(&qp->send, slots, &first);
    if (status != Status::ok) return status;
    u64 next = first;
    for (u32 at = 0; at < count; at++) {
        u32 segments = segments_of(*qp, requests[at]), of_request = (segments + 3) / 4;
        control = write_at(qp, requests[at], segments, next, of_request);
        next += of_request;
    }
    commit(&qp->send, CAUSEWAY_MLX5_SEND_RECORD, first, next, control);
    *end = next;
    return Status::ok;
}

__device__ inline Status try_post(QueuePair *qp, const SendRequest &request, u32 segments) {
    if (order::load_relaxed_local(&qp->failure) != 0) return Status::failed;
    u32 slots = (segments + 3) / 4, record = CAUSEWAY_MLX5_SEND_RECORD;
    Ring *ring = &qp->send;
    u64 first = 0;
    WarpPost all = converged_posts(qp, slots);
    if (all.count > 1) {
        u32 lane;
        asm("mov.u32 %0, %%laneid;" : "=r"(lane));
        Status status = Status::again;
        if (lane == all.leader) status = try_reserve(ring, all.count, &first);
        status = static_cast<Status>(__shfl_sync(all.lanes, static_cast<u32>(status), all.leader));
        first = __shfl_sync(all.lanes, first, all.leader);
        if (status == Status::ok) {
            u64 control = write_at(qp, request, segments, first + all.index, 1);
            control = __shfl_sync(all.lanes, control, all.last);
            // What the others have written is in front of the leader's mark.
            __syncwarp(all.lanes);
            if (lane == all.leader) commit(ring, record, first, first + all.count, control);
            return Status::ok;
        }
        // There may be room for some of them.
    }
    Status status = try_reserve(ring, slots, &first);
    if (status != Status::ok) return status;
    u64 control = write_at(qp, request, segments, first, slots);
    commit(ring, record, first, first + slots, control);
    return Status::ok;
}

__device__ inline Status try_post(QueuePair *qp, const ReceiveRequest &request) {
    if (order::load_relaxed_local(&qp->failure) != 0) return Status::failed;
    u64 first;
    Status status = try_reserve(&qp->receive, 1, &first);
    if (status != Status::ok) return status;
    Slot *slot = &qp->receive.slots[first & (qp->receive.count - 1)];
    slot->wr_id = request.wr_id;
    slot->end = first + 1;
    u32 at = 0;
    if (request.bytes > 0)
        write_segment(qp->receive, first, at++,
                      causeway_mlx5_data_segment(request.address, request.bytes, request.lkey));
    // A slot may have room for more segments than are used: then one of this key ends them.
    if (at < qp->receive.slot_bytes / CAUSEWAY_MLX5_SEGMENT_BYTES)
        write_segment(qp->receive, first, at, causeway_mlx5_data_segment(0, 0, CAUSEWAY_MLX5_INVALID_KEY));
    commit(&qp->receive, CAUSEWAY_MLX5_RECEIVE_RECORD, first, first + 1, 0);
    return Status::ok;
}

} // namespace detail

// Any number of threads post at the same time.
struct ManyThreads {
    static constexpr bool HAS_MUTEX = false;
};
// The published form: one thread of each block posts, under a mutex. Two threads of a warp must not call it.
struct OneAtATime {
    static constexpr bool HAS_MUTEX = true;
};

// Posts a request, if the queue has room: `again` where it is full, which polling its completions changes.
// Nothing is ever overwritten. `ok` says that the card has been told, not that the bytes have gone.
template <class Form = ManyThreads>
__device__ inline Status try_post_send(QueuePair *qp, const SendRequest &request) {
    u32 segments = detail::segments_of(*qp, request);
    if (segments == 0 || segments > CAUSEWAY_MLX5_MAX_SEGMENTS) return Status::invalid;
    if constexpr (Form::HAS_MUTEX) {
        detail::Deadline deadline(qp->abort, qp->limit);
        while (!detail::try_lock(&qp->send.mutex)) {
            Status status = deadline.poll();
            if (status != Status::ok) return status;
        }
    }
    Status status = detail::try_post(qp, request, segments);
    if constexpr (Form::HAS_MUTEX) detail::unlock(&qp->send.mutex);
    return status;
}

// The same, but waits while the queue is full, until a thread has polled completions: within the limit, and
// until the host ends all waits.
template <class Form = ManyThreads>
__device__ inline Status post_send(QueuePair *qp, const SendRequest &request) {
    detail::Deadline deadline(qp->abort, qp->limit);
    for (;;) {
        Status status = try_post_send<Form>(qp, request);
        if (status != Status::again) return status;
        status = deadline.poll();
        if (status != Status::ok) return status;
    }
}

// Posts a receive: `again` where the queue is full.
__device__ inline Status try_post_recv(QueuePair *qp, const ReceiveRequest &request) {
    if (request.bytes > MAX_MESSAGE_BYTES) return Status::invalid;
    return detail::try_post(qp, request);
}

// The same, and waits where the queue is full.
__device__ inline Status post_recv(QueuePair *qp, const ReceiveRequest &request) {
    detail::Deadline deadline(qp->abort, qp->limit);
    for (;;) {
        Status status = try_post_recv(qp, request);
        if (status != Status::again) return status;
        status = deadline.poll();
        if (status != Status::ok) return status;
    }
}

} // namespace causeway::verbs
