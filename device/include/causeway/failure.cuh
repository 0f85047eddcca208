// What goes wrong, and how a wait comes to an end.
//
// An error ends the team: it is written to the host's memory, where the host reads it while kernels run, and
// the host aborts the other ranks' waits. Nothing is written to any window.
#pragma once

#include "order.cuh"

namespace causeway::detail {

// What a network card says of a request that it has ended with an error.
struct NicError {
    u32 queue_pair, operation, syndrome;
};

// Takes the network card's completions for the peers that it reaches: an error among them ends the team
// (team_verbs.cuh).
__device__ void look_at_nic(const Team &team);

// Keeps the first error of this rank. Later ones are mostly its consequences.
__device__ inline Status fail(const Team &team, Status status, Verb verb, u32 peer, u32 window, u64 offset,
                              u64 bytes, NicError error = {0, 0, 0}) {
    TeamState *state = team.state;
    if (atomicCAS(&state->failure, 0u, static_cast<u32>(status)) != 0) return status;
    ErrorRecord *record = &state->host->error;
    record->verb = static_cast<u32>(verb);
    record->peer = peer;
    record->window = window;
    record->offset = offset;
    record->bytes = bytes;
    record->block = blockIdx.x;
    record->thread = threadIdx.x;
    record->queue_pair = error.queue_pair;
    record->operation = error.operation;
    record->syndrome = error.syndrome;
    // Released, for the host reads the rest once it finds the code.
    order::store_release(&record->code, static_cast<u32>(status));
    return status;
}

// Whether a wait is to go on. The clock is looked at every 64 polls, and the words of the host and the network card,
// which lie across the bus, every 512, and at the first of these.
class Timeout {
  public:
    __device__ explicit Timeout(const Team &team) : team_(team) {}

    // `ok` to poll again; `timed_out` or `aborted` to give up.
    __device__ Status poll() {
        if (++polls_ % 64 != 0) return Status::ok;
        u64 time = order::now();
        if (start_ == 0) start_ = time;
        if (polls_ % 512 == 64) {
            if (order::load_relaxed(&team_.state->host->abort) != 0) return Status::aborted;
            if (team_.state->verbs != nullptr) look_at_nic(team_);
            if (order::load_relaxed(&team_.state->failure) != 0) return Status::aborted;
        }
        return time - start_ > team_.state->limit ? Status::timed_out : Status::ok;
    }

  private:
    const Team &team_;
    u64 start_ = 0;
    u32 polls_ = 0;
};

// Why this rank's part in its team has ended, if it has: `ok`, its own first error, or `aborted`. The host's
// word lies across the bus, so that who asks often looks there in one microsecond of 16 alone.
__device__ inline Status end_of(const Team &team, bool is_polled_often) {
    u32 failure = order::load_relaxed(&team.state->failure);
    if (failure != 0) return static_cast<Status>(failure);
    if (is_polled_often && order::now() / 1024 % 16 != 0) return Status::ok;
    if (team.state->verbs != nullptr) look_at_nic(team);
    return order::load_relaxed(&team.state->host->abort) != 0 ? Status::aborted : Status::ok;
}

// Where a range of a peer's window is to lie, or why it is refused. All threads of a scope come to the same
// answer.
__device__ inline Status check(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                               u64 bytes) {
    if (window.team != team.id) return fail(team, Status::other_team, verb, peer, window.id, offset, bytes);
    if (peer >= team.ranks) return fail(team, Status::no_such_rank, verb, peer, window.id, offset, bytes);
    if (offset > window.bytes || bytes > window.bytes - offset)
        return fail(team, Status::out_of_bounds, verb, peer, window.id, offset, bytes);
    return Status::ok;
}

// The same for a word.
__device__ inline Status check_word(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset) {
    Status status = check(team, verb, peer, window, offset, 8);
    if (status == Status::ok && offset % 8 != 0)
        status = fail(team, Status::misaligned, verb, peer, window.id, offset, 8);
    return status;
}

// A peer's part of a window as this rank reaches it, 0 where it does not.
__device__ inline u64 mapped(const Window &window, u32 peer) { return window.state->peers[peer]; }

// Whether this rank's threads reach a peer's part, and their atomic operations are atomic there with those of
// all GPUs.
__device__ inline bool has_atomics(const Window &window, u32 peer) {
    return window.state->in_host == 0 && mapped(window, peer) != 0 && (window.state->without_atomics >> peer & 1) == 0;
}

// Whether network cards make all changes of a peer's part that are to be atomic.
__device__ inline bool has_atomics_by_verbs(const Window &window, u32 peer) {
    return window.state->atomics_by_verbs != 0 && window.state->remote[peer] != 0;
}

// Where a peer's part is, whether that is memory of the host, whether threads, proxies or network cards have atomic
// operations there, and whether a card reaches it.
struct MappedWindow {
    u64 base;
    bool in_host;
    bool atomics;
    bool atomics_by_proxy;
    bool atomics_by_verbs;
    bool by_nic;
};

__device__ inline MappedWindow mapped_window(const Window &window, u32 peer) {
    bool in_host = window.state->in_host != 0, atomics_by_verbs = has_atomics_by_verbs(window, peer);
    u64 base = mapped(window, peer);
    // Memory that is mapped needs no card, but where that has the atomic operations.
    bool by_nic = atomics_by_verbs || (base == 0 && window.state->remote[peer] != 0);
    bool by_proxy = (in_host || window.state->atomics_by_proxy != 0) && !atomics_by_verbs;
    return {base, in_host, has_atomics(window, peer), by_proxy, atomics_by_verbs, by_nic};
}

} // namespace causeway::detail
