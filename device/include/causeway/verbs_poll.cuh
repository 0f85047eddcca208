// How does a kernel learn that a network card has done its work requests? `poll_cq`.
//
// The card writes completions into a ring and turns an owner bit with each round. Whoever reads them gives the
// entries back by the completion queue's doorbell record, and the slots of the requests by the ring's count.
#pragma once

#include "verbs_post.cuh"

namespace causeway::verbs {

namespace detail {

__device__ inline QueuePair *queue_pair_of(const CompletionQueue &cq, u32 number) {
    for (u32 at = 0; at < cq.queue_pair_count; at++)
        if (cq.queue_pairs[at]->number == number) return cq.queue_pairs[at];
    return nullptr;
}

// Bytes of a completion that the card has written, which do not change any more.
__device__ inline u32 read_word(u64 cqe, u32 offset) {
    return order::load_relaxed(reinterpret_cast<const u32 *>(cqe + offset));
}

// What a completion says, the last 4 bytes of which are `tail`.
__device__ inline void take_completion(const CompletionQueue &cq, u64 cqe, u32 tail, WorkCompletion *wc) {
    u32 code = tail >> 28;
    bool is_error = code == CAUSEWAY_MLX5_CQE_REQUESTER_ERROR || code == CAUSEWAY_MLX5_CQE_RESPONDER_ERROR;
    bool is_send = code == CAUSEWAY_MLX5_CQE_REQUESTER || code == CAUSEWAY_MLX5_CQE_REQUESTER_ERROR;
    // All are asked for before the first is used: each is a trip across the bus.
    u32 fields[4] = {read_word(cqe, 56), read_word(cqe, 52), read_word(cqe, 44), read_word(cqe, 36)};
    u32 operation_and_queue = causeway_mlx5_be32(fields[0]);
    u32 slot = (tail & 0xff) << 8 | (tail >> 8 & 0xff);
    wc->queue_pair = operation_and_queue & 0xffffff;
    wc->has_immediate = code == CAUSEWAY_MLX5_CQE_WRITE_IMM || code == CAUSEWAY_MLX5_CQE_RECEIVE_IMM;
    wc->operation = is_send ? static_cast<Operation>(operation_and_queue >> 24)
                    : code == CAUSEWAY_MLX5_CQE_WRITE_IMM ? Operation::receive_rdma_with_imm
                                                          : Operation::receive;
    u32 syndromes = fields[1];
    wc->syndrome = is_error ? syndromes >> 24 : 0;
    wc->vendor_syndrome = is_error ? syndromes >> 16 & 0xff : 0;
    wc->bytes = is_error ? 0 : causeway_mlx5_be32(fields[2]);
    wc->immediate = wc->has_immediate ? causeway_mlx5_be32(fields[3]) : 0;
    wc->wr_id = 0;
    wc->reserved = 0;
    // Bytes that the card left in the completion, which queue pairs are made without: nobody has them.
    if (!is_error && (tail >> 24 & CAUSEWAY_MLX5_CQE_SCATTERED) != 0)
        wc->syndrome = CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
    QueuePair *qp = queue_pair_of(cq, wc->queue_pair);
    if (qp == nullptr) return;
    if (wc->syndrome != 0) atomicCAS(&qp->failure, 0u, wc->syndrome);
    Ring *ring = is_send ? &qp->send : &qp->receive;
    // Relaxed: another thread has written it, and the card has done its request since.
    const Slot *begins = &ring->slots[slot & (ring->count - 1)];
    wc->wr_id = order::load_relaxed_local(&begins->wr_id);
    u64 end = order::load_relaxed_local(&begins->end);
    // A request without a completion of its own ends with a later one's. Released, for the slots are written
    // again once this is seen.
    if (end > order::load_relaxed_local(&ring->completed)) order::store_release_local(&ring->completed, end);
}

} // namespace detail

// Takes up to so many completions, as `ibv_poll_cq` does, and says how many. 0 also where another thread polls
// at this moment. A completion with a syndrome names its queue pair and operation; the queue pair takes no
// request any more.
//
// Bytes that the card wrote for a receive or a read, into memory of the same GPU as the completion queue or
// into memory of the host, are there when the completion is.
__device__ inline u32 poll_cq(CompletionQueue *cq, u32 entries, WorkCompletion *completions) {
    if (!detail::try_lock(&cq->poller)) return 0;
    u64 consumed = order::load_relaxed_local(&cq->consumed);
    u32 found = 0;
    for (; found < entries; found++) {
        u64 entry = cq->buffer + (consumed & (cq->count - 1)) * cq->entry_bytes;
        u64 cqe = entry + cq->entry_bytes - 64;
        // The owner bit is in the last byte, which the card writes last. Acquired: with a plain load the
        // other bytes could be those of the round before.
        u32 tail;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(tail) : "l"(cqe + 60) : "memory");
        if (!causeway_mlx5_is_new(tail >> 24, consumed, cq->count)) break;
        detail::take_completion(*cq, cqe, tail, &completions[found]);
        consumed++;
    }
    if (found != 0) {
        order::store_relaxed_local(&cq->consumed, consumed);
        // Released: the card writes entries again that it has been told are read.
        order::store_release(cq->doorbell_record, causeway_mlx5_be32(static_cast<u32>(consumed & 0xffffff)));
    }
    detail::unlock(&cq->poller);
    return found;
}

// Waits for a completion: within the limit, and until the host ends all waits.
__device__ inline Status wait_cq(CompletionQueue *cq, WorkCompletion *completion) {
    detail::Deadline deadline(cq->abort, cq->limit);
    while (poll_cq(cq, 1, completion) == 0) {
        Status status = deadline.poll();
        if (status != Status::ok) return status;
    }
    return Status::ok;
}

} // namespace causeway::verbs
