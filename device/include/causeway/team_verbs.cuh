// `verbs`: a kernel writes the work requests of a network card itself, for peers that a card reaches.
//
// A rank has a queue pair for each of these peers, to which all its threads post. The queue pair keeps the order of
// writes; a read or an atomic operation orders what follows if that has `SEND_FENCE`. Few requests have a completion,
// as many as a ring needs to become free: whoever waits posts a last one that has.
//
// The card's writes to a GPU and to the host take different ways, behind the peer's card and behind this one's. What
// is written to the peer's GPU has arrived once a read of its memory has returned; what reads have brought to this
// GPU is there once the card has read from this GPU again. Both are done with a word for that, `flush`.
#pragma once

#include "failure.cuh"
#include "verbs_poll.cuh"

// Few messages come to these functions, in which a kernel waits for the bus: one copy of each is enough for all that
// call them.
#define CAUSEWAY_OUT_OF_LINE __device__ __attribute__((noinline)) inline

namespace causeway::detail {

// The longest put whose bytes are in the request, which takes one slot then.
constexpr u64 INLINE_BYTES = 12;

// Bytes of a request from which on the time that it takes is that of its bytes.
constexpr u64 LONG_REQUEST = 16384;

__device__ inline VerbsPeer *verbs_peer(const Team &team, u32 peer) { return &team.state->verbs->peers[peer]; }

// What the error record is to say of a request, as its number.
__device__ inline u64 request_id(Verb verb, u32 window, u64 offset) {
    return static_cast<u64>(verb) << 42 | static_cast<u64>(window) << 36 | offset;
}

// Takes completions of the requests for a peer. Whoever finds an error tells of it.
CAUSEWAY_OUT_OF_LINE void poll_peer(const Team &team, u32 peer) {
    verbs::WorkCompletion done[4];
    u32 found = verbs::poll_cq(verbs_peer(team, peer)->completions, 4, done);
    for (u32 at = 0; at < found; at++) {
        if (done[at].syndrome == 0) continue;
        u64 id = done[at].wr_id;
        fail(team, Status::nic_failed, static_cast<Verb>(id >> 42 & 0xf), peer, id >> 36 & 0x3f,
             id & ((1ull << 36) - 1), 0,
             {done[at].queue_pair, static_cast<u32>(done[at].operation), done[at].syndrome});
    }
}

// Slots of a peer's queue that are not known to be done.
__device__ inline u64 requests_in_flight(const VerbsPeer *peer) {
    const verbs::Ring *ring = &peer->queue_pair->send;
    u64 completed = order::load_relaxed_local(&ring->completed);
    u64 reserved = order::load_relaxed_local(&ring->reserved);
    return reserved > completed ? reserved - completed : 0;
}

// Takes the rows of the table that the host has changed, by any thread that finds that.
__device__ inline void renew_choice(TeamVerbs *of_team) {
    u32 version = order::load_relaxed(&of_team->shared->version);
    if (version == order::load_relaxed_local(&of_team->version)) return;
    order::fence();
    for (u32 size = 0; size < 40; size++)
        order::store_relaxed_local(&of_team->choice[size], order::load_relaxed(&of_team->shared->rows[size]));
    order::store_relaxed(&of_team->version, version);
}

// Says how long a request took that was waited for alone.
__device__ inline void note_time(TeamVerbs *of_team, u64 nanoseconds) {
    u64 count = atomicAdd(&of_team->timed[0], 1ull) + 1, all = atomicAdd(&of_team->timed[1], nanoseconds) + nanoseconds;
    order::store_relaxed(&of_team->shared->timed[1], all);
    order::store_relaxed(&of_team->shared->timed[0], count);
}

CAUSEWAY_OUT_OF_LINE void look_at_nic(const Team &team) {
    renew_choice(team.state->verbs);
    for (u32 peer = 0; peer < team.ranks; peer++) {
        const VerbsPeer *of_peer = verbs_peer(team, peer);
        if (of_peer->queue_pair != nullptr && requests_in_flight(of_peer) != 0) poll_peer(team, peer);
    }
}

// Posts requests for a peer, behind each other; with `end` gives where the last one ends, if that is waited for.
// Waits while the queue is full.
CAUSEWAY_OUT_OF_LINE Status post_requests(const Team &team, u32 peer, const verbs::SendRequest *requests, u32 count,
                                       u64 *end = nullptr) {
    verbs::QueuePair *qp = verbs_peer(team, peer)->queue_pair;
    Timeout timeout(team);
    while (true) {
        u64 last;
        // One alone is posted together with those of other threads of the warp.
        verbs::Status posted = count == 1 && end == nullptr
                                   ? verbs::try_post_send(qp, requests[0])
                                   : verbs::detail::try_post_batch(qp, requests, count, &last);
        if (posted == verbs::Status::ok) {
            if (end != nullptr) *end = last;
            return Status::ok;
        }
        if (posted == verbs::Status::invalid) return Status::unsupported;
        // It is full, or has failed: then who has found the error says so, and that ends this wait.
        poll_peer(team, peer);
        Status status = timeout.poll();
        if (status != Status::ok) return status == Status::timed_out ? Status::queue_full : status;
    }
}

// Waits until a request that has a completion is done, with all before it: what it has brought may be read then.
CAUSEWAY_OUT_OF_LINE Status wait_for_request(const Team &team, u32 peer, u64 end) {
    const verbs::Ring *ring = &verbs_peer(team, peer)->queue_pair->send;
    Timeout timeout(team);
    // Acquired: another thread may have polled the completion.
    while (order::load_acquire_local(&ring->completed) < end) {
        poll_peer(team, peer);
        if (order::load_acquire_local(&ring->completed) >= end) break;
        Status status = timeout.poll();
        if (status != Status::ok) return status;
    }
    return Status::ok;
}

// Whether what a peer is asked now has to come behind what it was asked before: `fence` was called in between.
__device__ inline bool is_fenced(const VerbsPeer *peer) {
    u64 fenced = order::load_relaxed_local(&peer->fenced);
    return fenced != 0 && fenced > order::load_relaxed_local(&peer->queue_pair->send.completed);
}

__device__ inline verbs::SendRequest new_request(verbs::Operation operation, u64 id, u32 flags) {
    verbs::SendRequest request = {};
    request.operation = operation;
    request.wr_id = id;
    request.flags = flags | verbs::SEND_SPARSE;
    return request;
}

// A read of the peer's GPU memory, which returns when what was written there has arrived.
__device__ inline verbs::SendRequest flush_request(const Team &team, const VerbsPeer *peer) {
    const TeamVerbs *of_team = team.state->verbs;
    verbs::SendRequest request = new_request(verbs::Operation::rdma_read, request_id(Verb::wait, 0, 0), 0);
    request.address = of_team->results;
    request.lkey = of_team->results_key;
    request.bytes = 8;
    request.remote_address = peer->flush;
    request.rkey = peer->flush_key;
    return request;
}

// What comes in front of a request for a window that is to be behind all before: 0 or 1 requests. Writes to the host
// could be seen before those to its GPU.
__device__ inline u32 order_request(const Team &team, const VerbsPeer *peer, bool in_host,
                                    verbs::SendRequest *flush) {
    if (!in_host || order::load_relaxed_local(&peer->written) == 0) return 0;
    *flush = flush_request(team, peer);
    return 1;
}

__device__ inline void note_written(VerbsPeer *peer, bool in_host) {
    if (!in_host && order::load_relaxed_local(&peer->written) == 0)
        asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(&peer->written) : "memory");
}

__device__ inline void note_filled(VerbsPeer *peer, bool in_host) {
    if (!in_host && order::load_relaxed_local(&peer->filled) == 0)
        asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(&peer->filled) : "memory");
}

// Bytes of a put or a get, at most MAX_REQUEST_BYTES.
__device__ inline verbs::SendRequest transfer_request(Verb verb, u32 peer, const Window &window, u64 offset,
                                                      const Window &local, u64 local_offset, u64 bytes) {
    bool is_put = verb == Verb::put;
    u32 flags = is_put && bytes <= INLINE_BYTES ? verbs::SEND_INLINE : 0;
    verbs::SendRequest request =
        new_request(is_put ? verbs::Operation::rdma_write : verbs::Operation::rdma_read,
                    request_id(verb, window.id, offset), flags);
    request.address = local.base + local_offset;
    request.lkey = local.state->local_key;
    request.bytes = static_cast<u32>(bytes);
    request.remote_address = window.state->remote[peer] + offset;
    request.rkey = window.state->keys[peer];
    return request;
}

// A signal, behind all that the queue pair was asked for before. `value` stays until it is posted.
__device__ inline verbs::SendRequest signal_request(const Team &team, Verb verb, u32 peer, const Window &window,
                                                    u64 offset, const u64 *value) {
    bool is_set = verb == Verb::signal_set;
    verbs::SendRequest request =
        new_request(is_set ? verbs::Operation::rdma_write : verbs::Operation::fetch_and_add,
                    request_id(verb, window.id, offset),
                    verbs::SEND_FENCE | (is_set ? verbs::SEND_INLINE : 0));
    const TeamVerbs *of_team = team.state->verbs;
    request.address = is_set ? reinterpret_cast<u64>(value) : of_team->results;
    request.lkey = of_team->results_key;
    request.compare_add = is_set ? 0 : *value;
    request.bytes = 8;
    request.remote_address = window.state->remote[peer] + offset;
    request.rkey = window.state->keys[peer];
    return request;
}

// A transfer of any length, and with `signal` one of these behind it. By one thread.
CAUSEWAY_OUT_OF_LINE Status transfer_by_verbs(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                           const Window &local, u64 local_offset, u64 bytes,
                                           const verbs::SendRequest *signal = nullptr, bool signal_in_host = false) {
    VerbsPeer *of_peer = verbs_peer(team, peer);
    bool in_host = window.state->in_host != 0;
    if (verb == Verb::put) note_written(of_peer, in_host);
    else note_filled(of_peer, local.state->in_host != 0);
    if (bytes >= LONG_REQUEST) order::store_relaxed(&team.state->verbs->has_long, 1u);
    verbs::SendRequest requests[4];
    bool is_first = true;
    u64 at = 0;
    do {
        u64 piece = bytes - at < MAX_REQUEST_BYTES ? bytes - at : MAX_REQUEST_BYTES;
        u32 count = 0;
        bool is_ordered = is_first && is_fenced(of_peer);
        if (is_ordered) count = order_request(team, of_peer, verb == Verb::put && in_host, requests);
        if (piece != 0) {
            requests[count] = transfer_request(verb, peer, window, offset + at, local, local_offset + at, piece);
            if (is_ordered) requests[count].flags |= verbs::SEND_FENCE;
            count++;
        }
        at += piece;
        if (at == bytes && signal != nullptr) {
            count += order_request(team, of_peer, signal_in_host, requests + count);
            requests[count++] = *signal;
        }
        if (count == 0) return Status::ok;
        Status status = post_requests(team, peer, requests, count);
        if (status != Status::ok) return status;
        is_first = false;
    } while (at < bytes);
    return Status::ok;
}

// A signal alone. By one thread.
CAUSEWAY_OUT_OF_LINE Status signal_by_verbs(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                         u64 value) {
    VerbsPeer *of_peer = verbs_peer(team, peer);
    bool in_host = window.state->in_host != 0;
    verbs::SendRequest requests[2];
    u32 count = order_request(team, of_peer, in_host, requests);
    note_written(of_peer, in_host);
    requests[count++] = signal_request(team, verb, peer, window, offset, &value);
    return post_requests(team, peer, requests, count);
}

// A word of pinned memory for an answer, until it is released.
__device__ inline Status take_result(const Team &team, u32 *number) {
    TeamVerbs *of_team = team.state->verbs;
    Timeout timeout(team);
    while (true) {
        u32 at = 1 + static_cast<u32>(atomicAdd(&of_team->next, 1ull) % (VERBS_RESULTS - 1));
        if (verbs::detail::try_lock(&of_team->is_taken[at])) {
            *number = at;
            return Status::ok;
        }
        Status status = timeout.poll();
        if (status != Status::ok) return status;
    }
}

// An atomic operation, or the read of a word, by the network cards. By one thread.
CAUSEWAY_OUT_OF_LINE Status atomic_by_verbs(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                         u64 expected, u64 value, u64 *found) {
    TeamVerbs *of_team = team.state->verbs;
    VerbsPeer *of_peer = verbs_peer(team, peer);
    verbs::Operation operation = verb == Verb::atomic_add   ? verbs::Operation::fetch_and_add
                                 : verb == Verb::atomic_cas ? verbs::Operation::compare_and_swap
                                                            : verbs::Operation::rdma_read;
    u32 word;
    Status status = take_result(team, &word);
    if (status != Status::ok) return status;
    if (verb != Verb::fetch) note_written(of_peer, window.state->in_host != 0);
    bool is_alone = requests_in_flight(of_peer) == 0;
    verbs::SendRequest request =
        new_request(operation, request_id(verb, window.id, offset),
                    verbs::SEND_SIGNALED | (is_fenced(of_peer) ? verbs::SEND_FENCE : 0));
    request.address = of_team->results + 8ull * word;
    request.lkey = of_team->results_key;
    request.bytes = 8;
    request.remote_address = window.state->remote[peer] + offset;
    request.rkey = window.state->keys[peer];
    request.compare_add = verb == Verb::atomic_cas ? expected : verb == Verb::atomic_add ? value : 0;
    request.swap = verb == Verb::atomic_cas ? value : 0;
    u64 start = is_alone ? order::now() : 0, end;
    status = post_requests(team, peer, &request, 1, &end);
    if (status == Status::ok) status = wait_for_request(team, peer, end);
    // A word that the card may still write stays taken.
    if (status != Status::ok) return status;
    if (is_alone) note_time(of_team, order::now() - start);
    *found = order::load_acquire(reinterpret_cast<const u64 *>(request.address));
    verbs::detail::unlock(&of_team->is_taken[word]);
    return Status::ok;
}

// Posts what shows that all before is done, at the peer and here.
CAUSEWAY_OUT_OF_LINE Status post_mark(const Team &team, u32 peer) {
    VerbsPeer *of_peer = verbs_peer(team, peer);
    const TeamVerbs *of_team = team.state->verbs;
    verbs::SendRequest requests[2];
    u32 count = 0;
    if (order::load_relaxed_local(&of_peer->written) != 0) requests[count++] = flush_request(team, of_peer);
    bool is_filled = order::load_relaxed_local(&of_peer->filled) != 0;
    if (is_filled || count == 0) {
        // The card reads this GPU's word behind what the reads before have brought here. Otherwise it is enough that
        // the peer's card answers.
        verbs::SendRequest *write = &requests[count++];
        *write = new_request(verbs::Operation::rdma_write, request_id(Verb::wait, 0, 0), verbs::SEND_FENCE);
        write->address = of_team->flush;
        write->lkey = of_team->flush_key;
        write->bytes = is_filled ? 8 : 0;
        write->remote_address = of_peer->sink;
        write->rkey = of_peer->sink_key;
    }
    requests[count - 1].flags |= verbs::SEND_SIGNALED;
    u64 end;
    Status status = post_requests(team, peer, requests, count, &end);
    if (status == Status::ok) atomicMax(&of_peer->marked, end);
    return status;
}

// Waits until all requests for a peer are done that it has now.
CAUSEWAY_OUT_OF_LINE Status drain_peer(const Team &team, u32 peer) {
    VerbsPeer *of_peer = verbs_peer(team, peer);
    u64 reserved = order::load_relaxed_local(&of_peer->queue_pair->send.reserved);
    if (order::load_acquire_local(&of_peer->queue_pair->send.completed) >= reserved) return Status::ok;
    Status status = Status::ok;
    // Behind the last mark there may be nothing.
    if (order::load_relaxed_local(&of_peer->marked) < reserved) status = post_mark(team, peer);
    return status != Status::ok
               ? status
               : wait_for_request(team, peer, order::load_relaxed_local(&of_peer->marked));
}

// Waits until all that this rank's kernels have asked of its card is done: first all marks are posted, so that their
// ways overlap.
CAUSEWAY_OUT_OF_LINE Status drain_verbs(const Team &team) {
    TeamVerbs *of_team = team.state->verbs;
    if (of_team == nullptr) return Status::ok;
    Status status = Status::ok;
    u64 start = 0;
    u32 marks = 0;
    bool is_short = true;
    for (u32 peer = 0; peer < team.ranks && status == Status::ok; peer++) {
        VerbsPeer *of_peer = verbs_peer(team, peer);
        if (of_peer->queue_pair == nullptr) continue;
        u64 reserved = order::load_relaxed_local(&of_peer->queue_pair->send.reserved);
        u64 completed = order::load_acquire_local(&of_peer->queue_pair->send.completed);
        if (completed >= reserved || order::load_relaxed_local(&of_peer->marked) >= reserved) continue;
        is_short = is_short && reserved - completed <= 4;
        start = order::now();
        marks += 1;
        status = post_mark(team, peer);
    }
    for (u32 peer = 0; peer < team.ranks && status == Status::ok; peer++) {
        VerbsPeer *of_peer = verbs_peer(team, peer);
        if (of_peer->queue_pair != nullptr)
            status = wait_for_request(team, peer, order::load_relaxed_local(&of_peer->marked));
    }
    if (status != Status::ok || marks == 0) return status;
    if (marks == 1 && is_short && order::load_relaxed(&of_team->has_long) == 0) note_time(of_team, order::now() - start);
    order::store_relaxed(&of_team->has_long, 0u);
    renew_choice(of_team);
    return status;
}

// Orders what follows behind what was asked before, at each peer: without a wait, by the queue pair.
__device__ inline void fence_verbs(const Team &team) {
    if (team.state->verbs == nullptr) return;
    for (u32 peer = 0; peer < team.ranks; peer++) {
        VerbsPeer *of_peer = verbs_peer(team, peer);
        if (of_peer->queue_pair == nullptr) continue;
        u64 reserved = order::load_relaxed_local(&of_peer->queue_pair->send.reserved);
        if (reserved != 0) atomicMax(&of_peer->fenced, reserved);
    }
}

// Before a peer is asked by another initiator: what a fence has put in front is done first.
__device__ inline Status leave_verbs(const Team &team, u32 peer) {
    if (team.state->verbs == nullptr) return Status::ok;
    const VerbsPeer *of_peer = verbs_peer(team, peer);
    if (of_peer->queue_pair == nullptr || !is_fenced(of_peer)) return Status::ok;
    return drain_peer(team, peer);
}

} // namespace causeway::detail

#undef CAUSEWAY_OUT_OF_LINE
