// A barrier of the team: nobody comes out before all have come in, and all that was asked for before is done.
#pragma once

#include "put.cuh"

namespace causeway {

// Returns when all ranks have called it, and all that they had requested before is done. Each rank has a cell for each other one, and writes its number of the barrier into everybody's: one hop,
// and no rank that all wait for. One call at a time of each rank and `number`; other blocks use other
// numbers, up to BARRIERS.
template <class Scope = Thread> __device__ inline Status barrier(const Team &team, u32 number = 0) {
    TeamState *state = team.state;
    Window control = state->control;
    if (number >= BARRIERS)
        return detail::fail(team, Status::out_of_bounds, Verb::barrier, team.rank, control.id, number, 0);
    // By all, and before they meet: behind that the first one writes it again.
    u64 epoch = order::load_relaxed(&state->epochs[number]) + 1;
    detail::MappedWindow own = detail::mapped_window(control, team.rank);
    Initiator initiator = static_cast<Initiator>(state->control_by);
    Scope::sync();
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        order::store_relaxed(&state->epochs[number], epoch);
        status = detail::drain_all(team);
        if (status != Status::ok) detail::fail(team, status, Verb::barrier, team.rank, control.id, 0, 0);
    }
    u64 row = 8ull * number * MAX_RANKS, cell = row + 8ull * team.rank;
    if (initiator != Initiator::direct) {
        status = from_first<Scope>(status);
        for (u32 peer = 0; peer < team.ranks && status == Status::ok; peer++)
            status =
                detail::send_signal<Scope>(team, peer, control, own, cell, epoch, SignalKind::set, initiator);
    } else if (Scope::rank() == 0 && status == Status::ok) {
        // One fence for all: behind it this thread's stores are releases. Those of other threads would each
        // need one more.
        if (detail::is_local(team, own.in_host)) order::fence_local();
        else order::fence();
        for (u32 peer = 0; peer < team.ranks; peer++) {
            u64 there = detail::mapped(control, peer);
            if (there != 0) order::store_relaxed(reinterpret_cast<u64 *>(there + cell), epoch);
            // On another host. Should it fail the others hear of it as they wait.
            else
                status = detail::send_signal<Thread>(team, peer, control, {}, cell, epoch, SignalKind::set,
                                                     control.state->remote[peer] == 0
                                                         ? Initiator::proxy
                                                         : detail::network_initiator<Thread>(team, peer, 8));
        }
    }
    for (u32 peer = Scope::rank(); peer < team.ranks && status == Status::ok; peer += Scope::size()) {
        const u64 *arrived = reinterpret_cast<const u64 *>(control.base + row + 8ull * peer);
        detail::Timeout timeout(team);
        // An acquire gives up the multiprocessor's cache: one is enough, once the cell has been seen to
        // change.
        while (status == Status::ok &&
               !(order::load_relaxed(arrived) >= epoch && order::load_acquire(arrived) >= epoch))
            status = timeout.poll();
        if (status != Status::ok) detail::fail(team, status, Verb::barrier, peer, control.id, row, 8);
    }
    // All threads hear of the one that has given up.
    if (!Scope::any(status != Status::ok)) return Status::ok;
    return static_cast<Status>(order::load_relaxed(&state->failure));
}

} // namespace causeway
