// Two-sided messages: `send` needs no address at the peer, and `receive` takes them in the order in which
// that peer sent them.
//
// A message goes in pieces into a ring of eight at the receiver, which says how many it has taken. So a send
// waits for its receiver only when the ring is full. One sender and one receiver at a time for each pair of
// ranks.
#pragma once

#include "put.cuh"

namespace causeway {
namespace detail {

// Who writes the control window of a peer: not its own kernels' threads where that is not mapped.
__device__ inline Initiator control_initiator(const TeamState *state, u32 peer) {
    if (mapped(state->control, peer) == 0) return Initiator::proxy;
    return static_cast<Initiator>(state->control_by);
}

} // namespace detail

// Sends bytes of this rank's part of a window to the peer, whose `receive` takes them. They may be written again when it
// returns. Waits while the peer has eight pieces that it has not taken.
template <class Scope = Thread>
__device__ inline Status send(const Team &team, u32 peer, const Window &from, u64 offset, u64 bytes) {
    constexpr u64 MAX_PAYLOAD = PIECE_BYTES - PIECE_HEAD;
    Status status = detail::check(team, Verb::send, peer, from, offset, 0);
    if (status == Status::ok) status = detail::check(team, Verb::send, team.rank, from, offset, bytes);
    if (status != Status::ok) return status;
    TeamState *state = team.state;
    Window control = state->control;
    Initiator by = detail::control_initiator(state, peer);
    Scope::sync();
    u64 piece = Scope::from_first(order::load_relaxed(&state->sent[peer])), at = 0;
    do {
        u64 length = bytes - at < MAX_PAYLOAD ? bytes - at : MAX_PAYLOAD;
        // Room: the peer has taken the piece that was here before.
        if (piece >= PIECES) {
            status = detail::wait_until<Scope>(team, control, TAKEN_AT + 8ull * peer, Compare::at_least,
                                               piece - PIECES + 1);
            if (status != Status::ok) return status;
        }
        u64 slot = INBOX_AT + team.rank * CONTROL_BYTES_OF_RANK + piece % PIECES * PIECE_BYTES;
        if (by == Initiator::direct) {
            u64 there = detail::mapped(control, peer) + slot;
            if (Scope::rank() == 0) {
                order::store_relaxed(reinterpret_cast<u64 *>(there), bytes);
                order::store_relaxed(reinterpret_cast<u64 *>(there + 8), at);
            }
            detail::copy<Scope>(there + PIECE_HEAD, from.base + offset + at, length);
        } else {
            Request head[2] = {detail::word(Verb::store, peer, control.id, slot, bytes),
                               detail::word(Verb::store, peer, control.id, slot + 8, at)};
            status = detail::post_batch<Scope>(team, Verb::send, peer, control, slot, length, head, 2);
            if (status == Status::ok)
                status = detail::post_transfer<Scope>(team, Verb::put, peer, control, slot + PIECE_HEAD,
                                                      from, offset + at, length);
        }
        // Before the source may change, and before the signal.
        Scope::sync();
        if (status != Status::ok) return status;
        at += length;
        piece += 1;
        status = detail::send_signal<Scope>(team, peer, control, detail::mapped_window(control, peer),
                                            ARRIVED_AT + 8ull * team.rank, piece, SignalKind::set, by);
    } while (at < bytes && status == Status::ok);
    if (Scope::rank() == 0) {
        order::store_relaxed(&state->sent[peer], piece);
        detail::count<Scope>(team, {by, Reason::only}, bytes);
    }
    // The caller may write its bytes again, which the proxy has to have read before.
    if (by != Initiator::direct && status == Status::ok) return quiet<Scope>(team);
    Scope::sync();
    return status;
}

// Receives the peer's next message into this rank's part of a window, and returns its length. One that is
// longer than `capacity` is an error.
template <class Scope = Thread>
__device__ inline Status receive(const Team &team, u32 peer, const Window &to, u64 offset, u64 capacity,
                                 u64 *bytes = nullptr) {
    constexpr u64 MAX_PAYLOAD = PIECE_BYTES - PIECE_HEAD;
    Status status = detail::check(team, Verb::receive, peer, to, offset, 0);
    if (status == Status::ok) status = detail::check(team, Verb::receive, team.rank, to, offset, capacity);
    if (status != Status::ok) return status;
    TeamState *state = team.state;
    Window control = state->control;
    Initiator by = detail::control_initiator(state, peer);
    u64 piece = Scope::from_first(order::load_relaxed(&state->received[peer])), at = 0, total = 0;
    do {
        status =
            detail::wait_until<Scope>(team, control, ARRIVED_AT + 8ull * peer, Compare::at_least, piece + 1);
        if (status != Status::ok) return status;
        u64 slot = control.base + INBOX_AT + peer * CONTROL_BYTES_OF_RANK + piece % PIECES * PIECE_BYTES;
        total = Scope::from_first(order::load_relaxed(reinterpret_cast<const u64 *>(slot)));
        if (total > capacity)
            return detail::fail(team, Status::truncated, Verb::receive, peer, to.id, offset, total);
        u64 length = total - at < MAX_PAYLOAD ? total - at : MAX_PAYLOAD;
        detail::copy<Scope>(to.base + offset + at, slot + PIECE_HEAD, length);
        at += length;
        piece += 1;
        // Everybody has read, and the signal is a release: else the sender would write over what is still
        // being read.
        Scope::sync();
        status = detail::send_signal<Scope>(team, peer, control, detail::mapped_window(control, peer),
                                            TAKEN_AT + 8ull * team.rank, piece, SignalKind::set, by);
    } while (at < total && status == Status::ok);
    if (Scope::rank() == 0) order::store_relaxed(&state->received[peer], piece);
    Scope::sync();
    if (bytes != nullptr) *bytes = total;
    return status;
}

} // namespace causeway
