// What kernels and the host know of the same bytes where kernels post work requests to a network card
// themselves: queue pairs, completion queues, requests, completions.
//
// The host's side is crates/comm/src/device/verbs/layout.rs. A test compares the numbers of the static_asserts
// here with the offsets there. Without includes but its own, so that NVRTC takes it as it is. What the card
// itself reads and writes is in mlx5.h.
#pragma once

#include "layout.h"

namespace causeway::verbs {

// Queue pairs whose completions come to one completion queue.
constexpr u32 MAX_QUEUE_PAIRS = 32;
// Bytes of one request.
constexpr u32 MAX_MESSAGE_BYTES = 1u << 30;

// What came of a call.
enum class Status : u32 {
    ok = 0,
    again = 1,     // the queue is full, or no completion is there (EAGAIN)
    invalid = 2,   // the request cannot be written: too long, misaligned, or of no such operation
    failed = 3,    // the queue pair has failed: poll the rest of its completions, then causeway_qp_reset
    aborted = 4,   // the host has ended all waits
    timed_out = 5, // what was waited for has not come within the limit
};

// Operations, by their numbers in requests.
enum class Operation : u32 {
    rdma_write = 0x08,
    rdma_write_with_imm = 0x09,
    send = 0x0a,
    send_with_imm = 0x0b,
    rdma_read = 0x10,
    compare_and_swap = 0x11,
    fetch_and_add = 0x12,
    receive = 0x80, // of completions alone
    receive_rdma_with_imm = 0x81,
};

// The numbers of ibverbs' IBV_SEND_*.
constexpr u32 SEND_FENCE = 1, SEND_SIGNALED = 2, SEND_SOLICITED = 4, SEND_INLINE = 8;
// A number of this library: of the requests that have it, as many have a completion as the ring needs to become free,
// one in each quarter.
constexpr u32 SEND_SPARSE = 1u << 16;

// A request, like `ibv_send_wr`. 64 bytes.
struct SendRequest {
    u64 wr_id;
    Operation operation;
    u32 flags;
    u64 address; // of this side's bytes; of an atomic operation where the old value goes
    u32 bytes;
    u32 lkey; // not used with SEND_INLINE
    u64 remote_address;
    u32 rkey;
    u32 immediate;
    u64 compare_add; // what is added, or compared with
    u64 swap;
};

// A receive, like `ibv_recv_wr`. 24 bytes.
struct ReceiveRequest {
    u64 wr_id;
    u64 address;
    u32 bytes;
    u32 lkey;
};

// A completion, like `ibv_wc`. 40 bytes.
struct WorkCompletion {
    u64 wr_id;
    u32 syndrome; // 0, or why the request has failed: CAUSEWAY_MLX5_REMOTE_ACCESS and so on
    u32 vendor_syndrome;
    Operation operation;
    u32 queue_pair;
    u32 bytes;
    u32 immediate;
    u32 has_immediate;
    u32 reserved;
};

// What a ring remembers of the request that begins in a slot. `end` counts slots from the queue's beginning. `mark` is
// of the first of the requests that the threads of a warp have written together: where the last of them ends. It is
// written last, so who finds it beyond what is published knows that all of them are written. `control` is then what
// the doorbell is told of the last one.
struct alignas(32) Slot {
    u64 wr_id;
    u64 end;
    u64 mark;
    u64 control;
};

// A ring of requests. Three counts of slots from the queue's beginning: reserved by threads that write
// requests, published to the card, completed by it. Each changes in a line of its own.
struct Ring {
    u64 buffer;           // where the card reads requests
    u32 count;            // slots, a power of two
    u32 slot_bytes;       // 64 for sends
    u32 *doorbell_record; // where the card reads how many are published
    u64 *doorbell;        // of a send queue: the card's register, or the word that a CPU thread forwards
    Slot *slots;
    u64 reserved_[3];
    alignas(64) u64 reserved;
    alignas(64) u64 published;
    u64 unused;
    u32 unpublished; // marks that were written and not yet looked at: not 0 while a thread publishes
    u32 mutex;     // 1 while a thread of the one-at-a-time form posts
    alignas(64) u64 completed;
};

struct CompletionQueue;

// What a kernel is given, by its address.
struct QueuePair {
    u32 number;
    u32 failure; // the first syndrome that came of it
    u32 max_inline;
    u32 reserved;
    const u32 *abort; // the host's: not 0 ends all waits
    u64 limit;        // how long a wait takes at most, in nanoseconds
    alignas(64) Ring send;
    Ring receive;
};

// What a kernel is given, by its address.
struct CompletionQueue {
    u64 buffer;
    u32 count;
    u32 entry_bytes;
    u32 *doorbell_record;
    const u32 *abort;
    u64 limit;
    u32 number;
    u32 queue_pair_count;
    alignas(64) u64 consumed;
    u32 poller; // 1 while a thread polls
    alignas(64) QueuePair *queue_pairs[MAX_QUEUE_PAIRS];
};

static_assert(sizeof(SendRequest) == 64);
static_assert(sizeof(ReceiveRequest) == 24);
static_assert(sizeof(WorkCompletion) == 40);
static_assert(sizeof(Slot) == 32);
static_assert(sizeof(Ring) == 256);
static_assert(sizeof(QueuePair) == 576);
static_assert(sizeof(CompletionQueue) == 384);
#ifndef __CUDACC_RTC__ // which has no offsetof
static_assert(__builtin_offsetof(Ring, reserved) == 64);
static_assert(__builtin_offsetof(Ring, published) == 128);
static_assert(__builtin_offsetof(Ring, completed) == 192);
static_assert(__builtin_offsetof(QueuePair, send) == 64);
static_assert(__builtin_offsetof(QueuePair, receive) == 320);
static_assert(__builtin_offsetof(CompletionQueue, consumed) == 64);
static_assert(__builtin_offsetof(CompletionQueue, queue_pairs) == 128);
#endif

} // namespace causeway::verbs
