// A barrier of the team: nobody comes out before all have come in, and all that was asked for before is done.
#pragma once

#include "put.cuh"

namespace causeway {

// Each rank has a cell for each other one, and writes its number of the barrier into everybody's: one hop,
// and no rank that all wait for. One call at a time of each rank and `number`; other blocks use other
// numbers, up to BARRIERS.
template <class Scope = Thread> __device__ inline Status barrier(const Team &team, u32 number = 0) {
    TeamState *state = team.state;
    Window control = state->control;
    if (number >= BARRIERS)
        return detail::fail(team, Status::out_of_bounds, Verb::barrier, team.rank, control.id, number, 0);
    Status status = quiet<Scope>(team);
    if (status != Status::ok) return status;
    u64 epoch = Scope::from_first(order::load_relaxed(&state->epochs[number])) + 1;
    if (Scope::rank() == 0) order::store_relaxed(&state->epochs[number], epoch);
    u64 row = 8ull * number * MOST_RANKS, cell = row + 8ull * team.rank;
    Initiator initiator = static_cast<Initiator>(state->control_by);
    if (initiator == Initiator::direct) {
        // The thread whose fence `quiet` was tells all: behind that fence its stores are releases. Those of
        // other threads would each need one more.
        for (u32 peer = 0; peer < team.ranks && Scope::rank() == 0; peer++)
            order::store_relaxed(reinterpret_cast<u64 *>(detail::mapped(control, peer) + cell), epoch);
    } else {
        for (u32 peer = 0; peer < team.ranks && status == Status::ok; peer++)
            status =
                detail::send_signal<Scope>(team, peer, control, 0, cell, epoch, SignalKind::set, initiator);
        if (status != Status::ok) return status;
    }
    for (u32 peer = Scope::rank(); peer < team.ranks && status == Status::ok; peer += Scope::size()) {
        const u64 *own = reinterpret_cast<const u64 *>(control.base + row + 8ull * peer);
        detail::Patience patience(team);
        // An acquire gives up the multiprocessor's cache: one is enough, once the cell has been seen to change.
        while (status == Status::ok &&
               !(order::load_relaxed(own) >= epoch && order::load_acquire(own) >= epoch))
            status = patience.poll();
        if (status != Status::ok) detail::fail(team, status, Verb::barrier, peer, control.id, row, 8);
    }
    // All threads hear of the one that has given up.
    Scope::sync();
    u32 failure = order::load_relaxed(&state->failure);
    return failure == 0 ? Status::ok : static_cast<Status>(failure);
}

} // namespace causeway
