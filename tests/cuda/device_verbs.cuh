// Kernels that post work requests to a network card themselves, for crates/comm/tests/device/verbs.
#pragma once

#include <causeway/verbs.cuh>

namespace device_verbs {

using causeway::u32;
using causeway::u64;
using namespace causeway::verbs;

enum { TRY = 0, WAIT = 1, ONE_AT_A_TIME = 2 };

__device__ inline Status post(QueuePair *qp, const SendRequest &request, u32 how) {
    switch (how) {
    case TRY: return try_post_send(qp, request);
    case WAIT: return post_send(qp, request);
    default: return post_send<OneAtATime>(qp, request);
    }
}

// One thread posts requests in their order.
extern "C" __global__ void verbs_post(QueuePair *qp, const SendRequest *requests, u32 count, u32 how,
                                      Status *statuses) {
    for (u32 at = 0; at < count; at++) statuses[at] = post(qp, requests[at], how);
}

extern "C" __global__ void verbs_receive(QueuePair *qp, const ReceiveRequest *requests, u32 count, u32 how,
                                         Status *statuses) {
    for (u32 at = 0; at < count; at++)
        statuses[at] = how == TRY ? try_post_recv(qp, requests[at]) : post_recv(qp, requests[at]);
}

// One thread waits for so many completions, one at a time.
extern "C" __global__ void verbs_wait(CompletionQueue *cq, WorkCompletion *completions, u32 count,
                                      Status *statuses) {
    for (u32 at = 0; at < count; at++) statuses[at] = wait_cq(cq, &completions[at]);
}

struct Crowd {
    QueuePair *qp;
    CompletionQueue *cq;
    u64 source, remote; // 8 bytes for each request
    u32 lkey, rkey;
    u32 each; // requests of a thread
    u32 how;
    u32 posters; // threads that post, in all
    u32 reserved;
};

// What a crowd has come to: completions, the sum of their wr_ids, how many threads have found something wrong,
// and requests of threads that have posted all of theirs.
struct CrowdAnswer {
    u64 completions, sum, wrong, posted;
};

__device__ inline void take(const Crowd &crowd, CrowdAnswer *answer) {
    WorkCompletion completions[4];
    u32 found = poll_cq(crowd.cq, 4, completions);
    for (u32 at = 0; at < found; at++) {
        if (completions[at].syndrome != 0 || completions[at].operation != Operation::rdma_write)
            atomicAdd(&answer->wrong, 1ull);
        atomicAdd(&answer->sum, completions[at].wr_id);
        atomicAdd(&answer->completions, 1ull);
    }
}

// Every thread posts, and polls when the queue is full; then until as much is done as has been posted. Blocks that
// have not begun are not waited for: the last thread sees the end of all.
extern "C" __global__ void verbs_crowd(Crowd crowd, CrowdAnswer *answer) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    bool posts = crowd.how != ONE_AT_A_TIME || threadIdx.x == 0;
    u32 poster = crowd.how == ONE_AT_A_TIME ? blockIdx.x : thread;
    if (!posts || poster >= crowd.posters) return;
    for (u32 at = 0; at < crowd.each; at++) {
        u64 index = static_cast<u64>(poster) * crowd.each + at;
        SendRequest request = {};
        request.wr_id = index + 1;
        request.operation = Operation::rdma_write;
        request.flags = SEND_SIGNALED;
        request.address = crowd.source + 8 * index;
        request.bytes = 8;
        request.lkey = crowd.lkey;
        request.remote_address = crowd.remote + 8 * index;
        request.rkey = crowd.rkey;
        // What the card is to find: written just before.
        *reinterpret_cast<u64 *>(request.address) = ~index;
        for (;;) {
            Status status = crowd.how == ONE_AT_A_TIME ? try_post_send<OneAtATime>(crowd.qp, request)
                                                       : try_post_send(crowd.qp, request);
            if (status == Status::ok) break;
            if (status != Status::again) {
                atomicAdd(&answer->wrong, 1ull);
                return;
            }
            take(crowd, answer);
        }
    }
    u64 posted = atomicAdd(&answer->posted, static_cast<u64>(crowd.each)) + crowd.each;
    while (causeway::order::load_relaxed(&answer->completions) < posted &&
           causeway::order::load_relaxed(&crowd.qp->failure) == 0)
        take(crowd, answer);
}

} // namespace device_verbs
