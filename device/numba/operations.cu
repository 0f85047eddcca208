// The operations of the headers as functions with C names, for languages whose compilers link NVIDIA's
// intermediate code (LTO-IR): Numba, by mpi/python/causeway_numba.py. The link inlines them.
//
// A team and a window are given by the addresses of their handles (causeway_team_handle,
// causeway_window_handle) in memory that the kernel reads. All return a causeway::Status as a number.
// `_thread`, `_warp` and `_block` say who calls together.
//
// Of verbs, a queue pair and a completion queue are given by the addresses that the host has of them
// (causeway_qp_handle, causeway_cq_handle), and a causeway::verbs::Status comes back. The first thread of a
// scope posts, or polls, for all: one request, behind what all of them have written.
#include <causeway/device.cuh>
#include <causeway/verbs.cuh>

using namespace causeway;

#define EXPORTED extern "C" __device__

static __device__ const Team &team_at(u64 address) { return *reinterpret_cast<const Team *>(address); }
static __device__ const Window &window_at(u64 address) { return *reinterpret_cast<const Window *>(address); }

// `kind` of a signal: 0 sets, 1 adds. `compare`: 0 equal, 1 not equal, 2 at least.
#define OPERATIONS(suffix, Scope) \
    EXPORTED u32 causeway_put_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, u64 from_offset, \
                                       u64 bytes) { \
        return static_cast<u32>( \
            put<Scope>(team_at(team), peer, window_at(to), to_offset, window_at(from), from_offset, bytes)); \
    } \
    EXPORTED u32 causeway_get_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, u64 from_offset, \
                                       u64 bytes) { \
        return static_cast<u32>( \
            get<Scope>(team_at(team), peer, window_at(to), to_offset, window_at(from), from_offset, bytes)); \
    } \
    EXPORTED u32 causeway_put_signal_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, \
                                              u64 from_offset, u64 bytes, u64 cells, u64 cell, u64 value, \
                                              u32 kind) { \
        return static_cast<u32>(put_signal<Scope>(team_at(team), peer, window_at(to), to_offset, \
                                                  window_at(from), from_offset, bytes, window_at(cells), \
                                                  cell, value, static_cast<SignalKind>(kind))); \
    } \
    EXPORTED u32 causeway_signal_##suffix(u64 team, u32 peer, u64 cells, u64 cell, u64 value, u32 kind) { \
        return static_cast<u32>(signal<Scope>(team_at(team), peer, window_at(cells), cell, value, \
                                              static_cast<SignalKind>(kind))); \
    } \
    EXPORTED u32 causeway_signal_wait_##suffix(u64 team, u64 cells, u64 cell, u32 compare, u64 value) { \
        return static_cast<u32>(signal_wait<Scope>(team_at(team), window_at(cells), cell, \
                                                   static_cast<Compare>(compare), value)); \
    } \
    EXPORTED u32 causeway_barrier_##suffix(u64 team, u32 number) { \
        return static_cast<u32>(barrier<Scope>(team_at(team), number)); \
    } \
    EXPORTED u32 causeway_quiet_##suffix(u64 team) { return static_cast<u32>(quiet<Scope>(team_at(team))); } \
    EXPORTED u32 causeway_fence_##suffix(u64 team) { return static_cast<u32>(fence<Scope>(team_at(team))); }

OPERATIONS(thread, Thread)
OPERATIONS(warp, Warp)
OPERATIONS(block, Block)

// The word before is written to an address of the kernel's.
EXPORTED u32 causeway_atomic_add(u64 team, u32 peer, u64 cells, u64 cell, u64 value, u64 before) {
    return static_cast<u32>(
        atomic_add(team_at(team), peer, window_at(cells), cell, value, reinterpret_cast<u64 *>(before)));
}

// What both forms of a post take of a request, and the request.
#define REQUEST_PARAMETERS \
    u64 qp, u32 operation, u32 flags, u64 wr_id, u64 address, u32 bytes, u32 lkey, u64 remote_address, \
        u32 rkey, u32 immediate, u64 compare_add, u64 swap
#define REQUEST \
    { \
        wr_id, static_cast<verbs::Operation>(operation), flags, address, bytes, lkey, remote_address, rkey, \
            immediate, compare_add, swap \
    }

// 40 bytes for each completion: a causeway::verbs::WorkCompletion, which the scope may read.
#define VERBS(suffix, Scope) \
    EXPORTED u32 causeway_post_send_##suffix(REQUEST_PARAMETERS) { \
        verbs::SendRequest request = REQUEST; \
        return by_first<Scope>([&] { return verbs::post_send(queue_pair_at(qp), request); }); \
    } \
    EXPORTED u32 causeway_try_post_send_##suffix(REQUEST_PARAMETERS) { \
        verbs::SendRequest request = REQUEST; \
        return by_first<Scope>([&] { return verbs::try_post_send(queue_pair_at(qp), request); }); \
    } \
    EXPORTED u32 causeway_post_recv_##suffix(u64 qp, u64 wr_id, u64 address, u32 bytes, u32 lkey) { \
        verbs::ReceiveRequest request = {wr_id, address, bytes, lkey}; \
        return by_first<Scope>([&] { return verbs::post_recv(queue_pair_at(qp), request); }); \
    } \
    EXPORTED u32 causeway_poll_cq_##suffix(u64 cq, u32 entries, u64 completions) { \
        auto *to = reinterpret_cast<verbs::WorkCompletion *>(completions); \
        return by_first<Scope>([&] { return verbs::poll_cq(completion_queue_at(cq), entries, to); }); \
    } \
    EXPORTED u32 causeway_wait_cq_##suffix(u64 cq, u64 completion) { \
        auto *to = reinterpret_cast<verbs::WorkCompletion *>(completion); \
        return by_first<Scope>([&] { return verbs::wait_cq(completion_queue_at(cq), to); }); \
    }

static __device__ verbs::QueuePair *queue_pair_at(u64 address) {
    return reinterpret_cast<verbs::QueuePair *>(address);
}
static __device__ verbs::CompletionQueue *completion_queue_at(u64 address) {
    return reinterpret_cast<verbs::CompletionQueue *>(address);
}

template <class Scope, class Call> static __device__ u32 by_first(Call call) {
    Scope::sync();
    u64 result = 0;
    if (Scope::rank() == 0) result = static_cast<u64>(call());
    return static_cast<u32>(Scope::from_first(result));
}

VERBS(thread, Thread)
VERBS(warp, Warp)
VERBS(block, Block)
