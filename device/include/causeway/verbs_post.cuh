// How does a kernel hand work requests to a network card? `post_send` and `post_recv`.
//
// A thread reserves slots, writes its request into them, and marks it as written. Whichever thread finds that
// nobody publishes then publishes all that is written in one piece: the doorbell record, and the doorbell. No
// thread waits for another one, so threads of a warp may post in different branches. `OneAtATime` is the
// published form instead, of one thread in each block: a mutex of atomic operations around all of it.
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

// Takes a lock, if nobody has it.
__device__ inline bool try_lock(u32 *lock) {
    u32 before;
    asm volatile("atom.acq_rel.sys.global.exch.b32 %0, [%1], 1;" : "=r"(before) : "l"(lock) : "memory");
    return before == 0;
}

__device__ inline void unlock(u32 *lock) { order::store_release(lock, 0u); }

// Slots of its own for a request, or `again` where the ring has none left: a slot is free once the card has
// completed its request, which poll_cq finds out.
__device__ inline Status try_reserve(Ring *ring, u32 slots, u64 *first) {
    u64 reserved = order::load_relaxed(&ring->reserved);
    for (;;) {
        // Acquired: what poll_cq has read of a slot it has read before the slot is written again.
        u64 completed = order::load_acquire(&ring->completed);
        if (reserved + slots > completed + ring->count) {
            // `completed` is newer than `reserved`: only where that is still so the ring is full.
            u64 now = order::load_relaxed(&ring->reserved);
            if (now == reserved) return Status::again;
            reserved = now;
            continue;
        }
        u64 before = order::compare_and_swap(&ring->reserved, reserved, reserved + slots);
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
    order::store_pair(to, segment.words[0], segment.words[1]);
}

// Tells the card of all requests before `published`, the last of which begins at `last`.
__device__ inline void ring_doorbell(Ring *ring, u32 record, u64 published, u64 last) {
    // Read before the record is written: a doorbell of before may make the card read the new record and do the
    // request, and then another one may be in the slot.
    u64 control = order::load_relaxed(
        reinterpret_cast<const u64 *>(ring->buffer + (last & (ring->count - 1)) * ring->slot_bytes));
    // The card reads requests when it has read the record: without this fence it could find the new count
    // and, behind it, the old bytes of a slot. What the requests name, and other threads wrote, is ordered
    // with them, since this thread has acquired their marks.
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

// Publishes all requests that are written, in the order of their slots.
__device__ inline void publish(Ring *ring, u32 record) {
    u64 mask = ring->count - 1;
    for (;;) {
        // The mark of this thread's request, and then whether somebody publishes; who does ends that, and
        // then looks for marks. With a weaker fence both could miss the other, and a request would stay
        // unpublished.
        order::fence_sequential();
        if (!try_lock(&ring->publisher)) return;
        u64 before = order::load_relaxed(&ring->published), published = before;
        u64 last = 0;
        for (;;) {
            // A mark of an earlier round is never beyond what is published.
            u64 end = order::load_acquire(&ring->slots[published & mask].end);
            if (end <= published) break;
            last = published;
            published = end;
        }
        if (published != before) {
            ring_doorbell(ring, record, published, last);
            order::store_relaxed(&ring->last, last);
            order::store_relaxed(&ring->published, published);
        }
        // Released at the scope of the system: a doorbell of the next thread is behind this one's.
        unlock(&ring->publisher);
        order::fence_sequential();
        if (order::load_acquire(&ring->slots[published & mask].end) <= published) return;
    }
}

// Marks a request as written, and sees that it is published.
__device__ inline void commit(Ring *ring, u32 record, u64 first, u32 slots, u64 wr_id) {
    Slot *slot = &ring->slots[first & (ring->count - 1)];
    slot->wr_id = wr_id;
    // Released: who publishes finds the request whole, and all that this thread wrote for it to send.
    order::store_release(&slot->end, first + slots);
    publish(ring, record);
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

__device__ inline void write_request(const QueuePair &qp, u64 first, u32 segments, const SendRequest &request) {
    const Ring &ring = qp.send;
    bool has_immediate = request.operation == Operation::rdma_write_with_imm ||
                         request.operation == Operation::send_with_imm;
    u32 flags = ((request.flags & SEND_SIGNALED) != 0 ? CAUSEWAY_MLX5_CQ_UPDATE : 0) |
                ((request.flags & SEND_SOLICITED) != 0 ? CAUSEWAY_MLX5_SOLICITED : 0) |
                ((request.flags & SEND_FENCE) != 0 ? CAUSEWAY_MLX5_FENCE : 0);
    write_segment(ring, first, 0,
                  causeway_mlx5_control_segment(qp.number, static_cast<u32>(first),
                                                static_cast<u32>(request.operation), segments, flags,
                                                has_immediate ? request.immediate : 0));
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
}

__device__ inline Status try_post(QueuePair *qp, const SendRequest &request, u32 segments) {
    if (order::load_relaxed(&qp->failure) != 0) return Status::failed;
    u32 slots = (segments + 3) / 4;
    u64 first;
    Status status = try_reserve(&qp->send, slots, &first);
    if (status != Status::ok) return status;
    write_request(*qp, first, segments, request);
    commit(&qp->send, CAUSEWAY_MLX5_SEND_RECORD, first, slots, request.wr_id);
    return Status::ok;
}

__device__ inline Status try_post(QueuePair *qp, const ReceiveRequest &request) {
    if (order::load_relaxed(&qp->failure) != 0) return Status::failed;
    u64 first;
    Status status = try_reserve(&qp->receive, 1, &first);
    if (status != Status::ok) return status;
    u32 at = 0;
    if (request.bytes > 0)
        write_segment(qp->receive, first, at++,
                      causeway_mlx5_data_segment(request.address, request.bytes, request.lkey));
    // A slot may have room for more segments than are used: then one of this key ends them.
    if (at < qp->receive.slot_bytes / CAUSEWAY_MLX5_SEGMENT_BYTES)
        write_segment(qp->receive, first, at, causeway_mlx5_data_segment(0, 0, CAUSEWAY_MLX5_INVALID_KEY));
    commit(&qp->receive, CAUSEWAY_MLX5_RECEIVE_RECORD, first, 1, request.wr_id);
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

// The same, and waits where the queue is full, until somebody has polled completions: within the limit, and
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
