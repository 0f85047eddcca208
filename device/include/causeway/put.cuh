// Bytes from this rank's window to a peer's and back, signals, and the completion of both.
#pragma once

#include "choice.cuh"
#include "direct.cuh"

namespace causeway {

// What a signal does to its word.
enum class SignalKind : u32 { set = 0, add = 1 };

// What a signal is waited for to be.
enum class Compare : u32 { equal = 0, not_equal = 1, at_least = 2 };

namespace detail {

// Posts to the proxy from the first thread, and tells all of the scope.
template <class Scope>
__device__ inline Status post_batch(const Team &team, Verb verb, u32 peer, const Window &window,
                                       u64 offset, u64 bytes, const Request *requests, u32 count,
                                       u64 *number = nullptr) {
    u64 last = 0;
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        status = leave_verbs(team, peer);
        if (status == Status::ok) status = post(team, requests, count, &last);
        if (status != Status::ok) fail(team, status, verb, peer, window.id, offset, bytes);
    }
    if (number != nullptr) *number = last;
    return from_first<Scope>(status);
}

// A transfer of any length, in requests of what one may ask for.
template <class Scope>
__device__ inline Status post_transfer(const Team &team, Verb verb, u32 peer, const Window &window,
                                       u64 offset, const Window &local, u64 local_offset, u64 bytes) {
    for (u64 at = 0; at < bytes; at += MAX_REQUEST_BYTES) {
        u64 piece = bytes - at < MAX_REQUEST_BYTES ? bytes - at : MAX_REQUEST_BYTES;
        Request request = transfer(verb, peer, window.id, offset + at, local.id, local_offset + at, piece);
        Status status = post_batch<Scope>(team, verb, peer, window, offset, bytes, &request, 1);
        if (status != Status::ok) return status;
    }
    return Status::ok;
}

// Whether a signal can be sent by an initiator: counting up in a GPU's memory is not for copy engines, and in
// the host's not for GPUs, whose atomic operations the host's processors do not take part in. Nor do GPUs in each
// other's, unless what joins them carries atomic operations. A network card's are atomic with those of that card alone.
__device__ inline bool can_signal(const MappedWindow &remote, SignalKind kind, Initiator initiator) {
    if (initiator == Initiator::verbs) return remote.by_nic && (kind == SignalKind::set || remote.atomics_by_verbs);
    if (initiator == Initiator::direct) return remote.base != 0 && (kind == SignalKind::set || remote.atomics);
    return kind == SignalKind::set || remote.atomics_by_proxy;
}

// Whether nobody outside of this GPU follows a word: not so where a thread of the host might.
__device__ inline bool is_local(const Team &team, bool in_host) {
    return (team.shape & ON_ONE_GPU) != 0 && !in_host;
}

// Writes a signal, or counts it up: what this thread has written before is there when it is.
__device__ inline void write_signal(u64 *cell, u64 value, SignalKind kind, bool is_local) {
    if (kind == SignalKind::set) {
        if (is_local) order::store_release_local(cell, value);
        else order::store_release(cell, value);
    } else {
        if (is_local) order::add_release_local(cell, value);
        else order::add_release(cell, value);
    }
}

// Sends a signal; what the scope has written comes before it.
template <class Scope>
__device__ inline Status send_signal(const Team &team, u32 peer, const Window &window,
                                     const MappedWindow &remote, u64 offset, u64 value, SignalKind kind,
                                     Initiator initiator) {
    if (initiator == Initiator::verbs) {
        Verb verb = kind == SignalKind::set ? Verb::signal_set : Verb::signal_add;
        Status status = Status::ok;
        if (Scope::rank() == 0) {
            status = signal_by_verbs(team, verb, peer, window, offset, value);
            if (status != Status::ok) fail(team, status, verb, peer, window.id, offset, 8);
        }
        return from_first<Scope>(status);
    }
    if (initiator != Initiator::direct) {
        Verb verb = kind == SignalKind::set ? Verb::signal_set : Verb::signal_add;
        Request request = word(verb, peer, window.id, offset, value);
        return post_batch<Scope>(team, verb, peer, window, offset, 8, &request, 1);
    }
    if (Scope::rank() == 0)
        write_signal(reinterpret_cast<u64 *>(remote.base + offset), value, kind,
                     is_local(team, remote.in_host));
    return Status::ok;
}

__device__ inline bool holds(Compare compare, u64 found, u64 value) {
    switch (compare) {
    case Compare::equal: return found == value;
    case Compare::not_equal: return found != value;
    default: return found >= value;
    }
}

// Polls a word of this rank's own memory.
template <class Scope>
__device__ inline Status wait_until(const Team &team, const Window &window, u64 offset, Compare compare,
                                    u64 value) {
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        const u64 *cell = reinterpret_cast<const u64 *>(window.base + offset);
        Timeout timeout(team);
        while (!holds(compare, order::load_acquire(cell), value)) {
            status = timeout.poll();
            if (status == Status::ok) continue;
            fail(team, status, Verb::wait, team.rank, window.id, offset, 8);
            break;
        }
    }
    return from_first<Scope>(status);
}

// Whether the initiator that the program insists on reaches the peer, and this rank's own bytes.
__device__ inline Status check_hint(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                    u64 bytes, const MappedWindow &remote, bool by_nic, Initiator hint) {
    bool is_there = hint == Initiator::automatic || hint == Initiator::proxy ||
                    (hint == Initiator::direct && remote.base != 0) || (hint == Initiator::verbs && by_nic);
    return is_there ? Status::ok : fail(team, Status::unsupported, verb, peer, window.id, offset, bytes);
}

template <class Scope>
__device__ inline Status transfer_by(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                     const Window &local, u64 local_offset, u64 bytes, Initiator hint) {
    Status status = check(team, verb, peer, window, offset, bytes);
    if (status == Status::ok) status = check(team, verb, team.rank, local, local_offset, bytes);
    if (status != Status::ok) return status;
    MappedWindow remote = mapped_window(window, peer);
    PathInputs<Scope> inputs(team, bytes, hint);
    u64 here = local.base + local_offset;
    WordCopy<Scope> word_copy(offset, here, bytes, verb == Verb::put && inputs.is_direct());
    bool by_nic = remote.by_nic && local.state->is_registered != 0;
    status = check_hint(team, verb, peer, window, offset, bytes, remote, by_nic, hint);
    if (status != Status::ok || bytes == 0) return status;
    // Another thread of the scope may have written what this one copies.
    Scope::sync();
    Choice choice = inputs.choose(team, peer, remote.base != 0, by_nic);
    if (choice.initiator == Initiator::verbs) {
        if (Scope::rank() == 0) {
            status = transfer_by_verbs(team, verb, peer, window, offset, local, local_offset, bytes);
            if (status != Status::ok) fail(team, status, verb, peer, window.id, offset, bytes);
        }
        status = from_first<Scope>(status);
    } else if (choice.initiator != Initiator::direct) {
        status = post_transfer<Scope>(team, verb, peer, window, offset, local, local_offset, bytes);
    } else {
        u64 there = remote.base + offset;
        if (verb == Verb::put) word_copy.copy_to(team, there, here, bytes);
        else copy_timed<Scope>(team, here, there, bytes);
    }
    if (Scope::rank() == 0 && status == Status::ok) count<Scope>(team, choice, bytes);
    return status;
}

// Who sends a signal: whoever was chosen, or who can. `automatic` where nobody can.
__device__ inline Choice signaller(const MappedWindow &remote, SignalKind kind, Choice chosen,
                                   Initiator hint) {
    if (can_signal(remote, kind, chosen.initiator)) return chosen;
    Initiator other = Initiator::automatic;
    if (hint == Initiator::automatic) {
        // The proxy last, which finds out only later that it cannot.
        if (can_signal(remote, kind, Initiator::direct)) other = Initiator::direct;
        else if (can_signal(remote, kind, Initiator::verbs)) other = Initiator::verbs;
        else if (can_signal(remote, kind, Initiator::proxy)) other = Initiator::proxy;
    }
    return {other, Reason::signal};
}

} // namespace detail

// Copies from this rank's part of `from` to the peer's part of `to`. Returns when the copy is under way:
// `quiet` waits for it, and only `put_signal` notifies the peer. The source must stay as it is until then.
template <class Scope = Thread>
__device__ inline Status put(const Team &team, u32 peer, const Window &to, u64 to_offset, const Window &from,
                             u64 from_offset, u64 bytes, Initiator hint = Initiator::automatic) {
    return detail::transfer_by<Scope>(team, Verb::put, peer, to, to_offset, from, from_offset, bytes, hint);
}

// Copies from the peer's part of `from` to this rank's part of `to`. The bytes are there after `quiet`.
template <class Scope = Thread>
__device__ inline Status get(const Team &team, u32 peer, const Window &to, u64 to_offset, const Window &from,
                             u64 from_offset, u64 bytes, Initiator hint = Initiator::automatic) {
    return detail::transfer_by<Scope>(team, Verb::get, peer, from, from_offset, to, to_offset, bytes, hint);
}

// Sets or counts up a word of the peer's window. What the scope has written to memory, and what it has put by
// `direct`, is there before; of puts that the proxy has, those that were posted before to the same queue
// if it sends the signal as well. Between hosts that is not so of a signal to this host: call `fence` first. Of puts
// that a network card has, those to the same peer, if the card sends the signal as well.
template <class Scope = Thread>
__device__ inline Status signal(const Team &team, u32 peer, const Window &window, u64 offset, u64 value,
                                SignalKind kind = SignalKind::set, Initiator hint = Initiator::automatic) {
    Verb verb = kind == SignalKind::set ? Verb::signal_set : Verb::signal_add;
    Status status = detail::check_word(team, verb, peer, window, offset);
    if (status != Status::ok) return status;
    detail::MappedWindow remote = detail::mapped_window(window, peer);
    detail::PathInputs<Scope> inputs(team, 8, hint);
    Scope::sync();
    detail::Choice chosen = inputs.choose(team, peer, remote.base != 0, remote.by_nic);
    Initiator initiator = detail::signaller(remote, kind, chosen, hint).initiator;
    if (initiator == Initiator::automatic)
        return detail::fail(team, Status::unsupported, verb, peer, window.id, offset, 8);
    return detail::send_signal<Scope>(team, peer, window, remote, offset, value, kind, initiator);
}

// A put, and behind it a signal: a thread that sees the signal finds the bytes. Both go the same way, so that
// no wait for the put is needed in between.
template <class Scope = Thread>
__device__ inline Status put_signal(const Team &team, u32 peer, const Window &to, u64 to_offset,
                                    const Window &from, u64 from_offset, u64 bytes, const Window &signals,
                                    u64 signal_offset, u64 value, SignalKind kind = SignalKind::set,
                                    Initiator hint = Initiator::automatic) {
    Verb verb = kind == SignalKind::set ? Verb::signal_set : Verb::signal_add;
    Status status = detail::check(team, Verb::put, peer, to, to_offset, bytes);
    if (status == Status::ok) status = detail::check(team, Verb::put, team.rank, from, from_offset, bytes);
    if (status == Status::ok) status = detail::check_word(team, verb, peer, signals, signal_offset);
    if (status != Status::ok) return status;
    // All at once, before anything depends on one of them.
    detail::MappedWindow remote = detail::mapped_window(to, peer), cell = detail::mapped_window(signals, peer);
    detail::PathInputs<Scope> inputs(team, bytes, hint);
    u64 here = from.base + from_offset;
    detail::WordCopy<Scope> word_copy(to_offset, here, bytes, inputs.is_direct());
    bool by_nic = remote.by_nic && from.state->is_registered != 0;
    status = detail::check_hint(team, Verb::put, peer, to, to_offset, bytes, remote, by_nic, hint);
    if (status != Status::ok) return status;
    Scope::sync();
    detail::Choice choice =
        detail::signaller(cell, kind, inputs.choose(team, peer, remote.base != 0, by_nic), hint);
    Initiator initiator = choice.initiator;
    // What the threads cannot put they cannot signal behind either.
    bool is_possible = initiator == Initiator::proxy || initiator == Initiator::verbs ||
                       (initiator == Initiator::direct && remote.base != 0);
    if (!is_possible)
        return detail::fail(team, Status::unsupported, verb, peer, signals.id, signal_offset, 8);
    if (initiator == Initiator::verbs && (by_nic || bytes == 0)) {
        if (Scope::rank() == 0) {
            verbs::SendRequest behind = detail::signal_request(team, verb, peer, signals, signal_offset, &value);
            detail::note_written(detail::verbs_peer(team, peer), cell.in_host);
            status = detail::transfer_by_verbs(team, Verb::put, peer, to, to_offset, from, from_offset, bytes,
                                               &behind, cell.in_host);
            if (status != Status::ok) detail::fail(team, status, Verb::put, peer, to.id, to_offset, bytes);
            else detail::count<Scope>(team, choice, bytes);
        }
        return from_first<Scope>(status);
    }
    if (initiator == Initiator::direct) {
        word_copy.copy_to(team, remote.base + to_offset, here, bytes);
    } else if (initiator == Initiator::verbs) {
        // The card alone can send the signal, and does not reach the bytes: they have to be there before.
        status = detail::post_transfer<Scope>(team, Verb::put, peer, to, to_offset, from, from_offset, bytes);
        if (Scope::rank() == 0 && status == Status::ok) {
            status = detail::drain(team);
            if (status != Status::ok) detail::fail(team, status, Verb::put, peer, to.id, to_offset, bytes);
        }
        status = from_first<Scope>(status);
    } else if (bytes != 0 && bytes <= MAX_REQUEST_BYTES) {
        // Both with one fence and one number of the queue.
        Request both[2] = {
            detail::transfer(Verb::put, peer, to.id, to_offset, from.id, from_offset, bytes),
            detail::word(verb, peer, signals.id, signal_offset, value),
        };
        status = detail::post_batch<Scope>(team, Verb::put, peer, to, to_offset, bytes, both, 2);
        if (Scope::rank() == 0) detail::count<Scope>(team, choice, bytes);
        return status;
    } else {
        status = detail::post_transfer<Scope>(team, Verb::put, peer, to, to_offset, from, from_offset, bytes);
    }
    // Everybody's bytes come before the first thread's signal.
    Scope::sync();
    if (status != Status::ok) return status;
    status = detail::send_signal<Scope>(team, peer, signals, cell, signal_offset, value, kind, initiator);
    // Behind the signal, which would wait for it.
    if (Scope::rank() == 0) detail::count<Scope>(team, choice, bytes);
    return status;
}

// Waits until a word of this rank's own part of a window is as wanted. What its sender had written before is
// then there.
template <class Scope = Thread>
__device__ inline Status signal_wait(const Team &team, const Window &window, u64 offset, Compare compare,
                                     u64 value) {
    Status status = detail::check_word(team, Verb::wait, team.rank, window, offset);
    return status != Status::ok ? status : detail::wait_until<Scope>(team, window, offset, compare, value);
}

// `ok` while the team is well, or why it has ended: this rank's own first error, or `aborted` where a peer
// has failed or the host has ended it. For kernels that poll by themselves.
template <class Scope = Thread> __device__ inline Status team_status(const Team &team) {
    Status status = Status::ok;
    if (Scope::rank() == 0) status = detail::end_of(team, false);
    return from_first<Scope>(status);
}

// Whether there is nothing more to wait for: the signal compares so now, or the team has ended, so that it
// may never do. `team_status` says which. Does not wait itself.
template <class Scope = Thread>
__device__ inline bool signal_test(const Team &team, const Window &window, u64 offset, Compare compare,
                                   u64 value) {
    if (detail::check_word(team, Verb::wait, team.rank, window, offset) != Status::ok) return true;
    u64 is_over = 0;
    if (Scope::rank() == 0) {
        u64 found = order::load_acquire(reinterpret_cast<const u64 *>(window.base + offset));
        is_over = detail::holds(compare, found, value) || detail::end_of(team, true) != Status::ok;
    }
    return Scope::from_first(is_over) != 0;
}

// Waits until all that the scope has asked for before is done: puts are at the peers, and gets are here. Of
// the proxy it waits for all that the calling block has posted, of the network card for all that this rank has.
template <class Scope = Thread> __device__ inline Status quiet(const Team &team) {
    Scope::sync();
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        status = detail::drain_all(team);
        if (status != Status::ok) detail::fail(team, status, Verb::wait, team.rank, 0, 0, 0);
        order::fence_sequential();
    }
    return from_first<Scope>(status);
}

// Orders what the scope has asked for before with what it asks for after, at each peer. By `direct` that is a
// fence; what the proxy has is waited for, since what follows may go another way. Network cards keep the order of what
// they are asked; what they have is waited for when something for the same peer goes to the proxy.
template <class Scope = Thread> __device__ inline Status fence(const Team &team) {
    Scope::sync();
    Status status = Status::ok;
    if (Scope::rank() == 0) {
        status = detail::drain(team);
        if (status != Status::ok) detail::fail(team, status, Verb::wait, team.rank, 0, 0, 0);
        detail::fence_verbs(team);
        order::fence();
    }
    return from_first<Scope>(status);
}

} // namespace causeway
