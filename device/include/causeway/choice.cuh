// Who moves a message: read from the table that the host has made of what each initiator costs
// (crates/comm/src/device/choice).
#pragma once

#include "proxy.cuh"
#include "scope.cuh"
#include "team_verbs.cuh"

namespace causeway::detail {

// Sizes from one power of two, not counted, to the next.
__device__ inline u32 class_of(u64 bytes) {
    u32 bits = bytes <= 1 ? 0 : 64 - __clzll(static_cast<long long>(bytes - 1));
    return bits < 39 ? bits : 39;
}

// A byte for each number in flight.
constexpr u64 ALWAYS = 0x0101010101010101ull;

// An initiator, and why.
struct Choice {
    Initiator initiator;
    Reason reason;
};

// Requests in flight, as the power of two: 0, 1, 2 to 3, ... 64 and more.
__device__ inline u64 column_of(u64 in_flight) {
    u32 bits = in_flight == 0 ? 0 : 64 - __clzll(static_cast<long long>(in_flight));
    return bits < 7 ? bits : 7;
}

// Who moves a message to a peer that is reached over a network alone, and whose part a card reaches: what the proxy and
// the card have in flight counts.
template <class Scope> __device__ inline Initiator network_initiator(const Team &team, u32 peer, u64 bytes) {
    u64 row = 0, in_flight = 0;
    if (Scope::rank() == 0) {
        Queue *queue = queue_of(team);
        u64 head = order::load_relaxed(&queue->head), completed = order::load_relaxed(&queue->completed);
        row = order::load_relaxed_local(&team.state->verbs->choice[class_of(bytes)]);
        in_flight = requests_in_flight(verbs_peer(team, peer)) + (head > completed ? head - completed : 0);
    }
    return static_cast<Initiator>(Scope::from_first(row >> 8 * column_of(in_flight) & 0xff));
}

// What the choice for a message depends on: the table's row, and how many requests the calling block's queue
// holds. Loaded before the choice is made, with what else the caller needs: a load after each acquire costs a
// way to the L2, and together they cost one. A choice that took three of them was behind by 0.3 us of the 3
// us that 8 bytes and a signal take (H100, 2026-11-26).
template <class Scope> class PathInputs {
  public:
    // Of a message of so many bytes. Short ones have their row in the handle, and hints need none.
    __device__ PathInputs(const Team &team, u64 bytes, Initiator hint)
        : row_(ALWAYS * static_cast<u64>(Initiator::direct)), bytes_(bytes), hint_(hint) {
        u32 size = class_of(bytes);
        is_direct_ = hint == Initiator::direct ||
                     (hint == Initiator::automatic && size < team.direct_below[Scope::INDEX]);
        if (is_direct_ || hint != Initiator::automatic) return;
        if (Scope::rank() != 0) return;
        Queue *queue = queue_of(team);
        head_ = order::load_relaxed(&queue->head);
        completed_ = order::load_relaxed(&queue->completed);
        // The host changes rows as it learns what messages cost.
        row_ = order::load_relaxed(&team.state->choice[Scope::INDEX][size]);
    }

    // Whether it is `direct` wherever the memory is mapped, which is known before anything is loaded.
    __device__ bool is_direct() const { return is_direct_; }

    // The choice, the same for all threads of the scope. `is_mapped` says whether this rank's threads reach
    // the peer's memory at all, `by_nic` whether its card does.
    __device__ Choice choose(const Team &team, u32 peer, bool is_mapped, bool by_nic) const {
        if (hint_ != Initiator::automatic) return {hint_, Reason::named};
        if (!is_mapped && by_nic) return {network_initiator<Scope>(team, peer, bytes_), Reason::network};
        if (!is_mapped) return {Initiator::proxy, Reason::only};
        if (is_direct_) return {Initiator::direct, Reason::table};
        // What the first thread has read: another one may read a row that the host has changed meanwhile.
        u64 column = column_of(head_ > completed_ ? head_ - completed_ : 0);
        return {static_cast<Initiator>(Scope::from_first(row_ >> 8 * column & 0xff)), Reason::table};
    }

  private:
    u64 row_, head_ = 0, completed_ = 0, bytes_;
    Initiator hint_;
    bool is_direct_;
};

// Waits until all is done that the calling block's queue holds now, and the network card.
__device__ inline Status drain_all(const Team &team) {
    Status status = drain(team);
    return status == Status::ok ? drain_verbs(team) : status;
}

// Counts a message, by one thread of its scope.
template <class Scope> __device__ inline void count(const Team &team, Choice choice, u64 bytes) {
    u32 initiator = static_cast<u32>(choice.initiator), reason = static_cast<u32>(choice.reason);
    atomicAdd(&team.state->counts[Scope::INDEX][class_of(bytes)][initiator][reason], 1ull);
    atomicAdd(&team.state->moved[initiator], bytes);
}

} // namespace causeway::detail
