// Atomic operations on words of a peer's window, which give back what was there before.
//
// On memory of GPUs they are the GPU's own, and refused where two GPUs have no such operations on each
// other's memory. On memory of the host they are the proxies', which are atomic with each other and with the
// host's threads. In a team of several hosts they are the proxies' on both: of a GPU's memory one thread of
// its owner makes one after the other. Where all ranks reach each other by network cards alone they are the cards'.
#pragma once

#include "put.cuh"

namespace causeway {
namespace detail {

// Who can do it: one initiator alone, whatever it costs. A copy engine can fetch.
__device__ inline Initiator atomic_initiator(const Window &window, u32 peer, Verb verb) {
    if (has_atomics_by_verbs(window, peer)) return Initiator::verbs;
    if (window.state->in_host != 0) return Initiator::proxy;
    if (verb != Verb::fetch && window.state->atomics_by_proxy != 0) return Initiator::proxy;
    if (verb == Verb::fetch) return mapped(window, peer) != 0 ? Initiator::direct : Initiator::proxy;
    return has_atomics(window, peer) ? Initiator::direct : Initiator::automatic;
}

template <class Scope>
__device__ inline Status atomic(const Team &team, Verb verb, u32 peer, const Window &window, u64 offset,
                                u64 expected, u64 value, u64 *before) {
    Status status = check_word(team, verb, peer, window, offset);
    if (status != Status::ok) return status;
    Scope::sync();
    Initiator initiator = atomic_initiator(window, peer, verb);
    if (initiator == Initiator::automatic)
        return fail(team, Status::unsupported, verb, peer, window.id, offset, 8);
    u64 found = 0;
    if (Scope::rank() == 0 && initiator == Initiator::direct) {
        u64 *cell = reinterpret_cast<u64 *>(mapped(window, peer) + offset);
        if (verb == Verb::atomic_add) found = order::fetch_add(cell, value);
        else if (verb == Verb::atomic_cas) found = order::compare_and_swap(cell, expected, value);
        else found = order::load_acquire(cell);
    } else if (Scope::rank() == 0 && initiator == Initiator::verbs) {
        status = atomic_by_verbs(team, verb, peer, window, offset, expected, value, &found);
        if (status != Status::ok) fail(team, status, verb, peer, window.id, offset, 8);
    } else if (Scope::rank() == 0) {
        Request requests[2] = {word(Verb::operand, peer, window.id, offset, expected),
                               word(verb, peer, window.id, offset, value)};
        u32 skipped = verb == Verb::atomic_cas ? 0 : 1;
        u64 number = 0;
        status = leave_verbs(team, peer);
        if (status == Status::ok) status = post(team, requests + skipped, 2 - skipped, &number);
        if (status == Status::ok) status = wait_for_response(team, number, &found);
        if (status != Status::ok) fail(team, status, verb, peer, window.id, offset, 8);
    }
    found = Scope::from_first(found);
    if (before != nullptr) *before = found;
    return from_first<Scope>(status);
}

} // namespace detail

// Adds to a word of the peer's window, and returns the previous value.
template <class Scope = Thread>
__device__ inline Status atomic_add(const Team &team, u32 peer, const Window &window, u64 offset, u64 value,
                                    u64 *before = nullptr) {
    return detail::atomic<Scope>(team, Verb::atomic_add, peer, window, offset, 0, value, before);
}

// Writes `desired` if the word equals `expected`, and returns the previous value.
template <class Scope = Thread>
__device__ inline Status atomic_cas(const Team &team, u32 peer, const Window &window, u64 offset,
                                    u64 expected, u64 desired, u64 *before = nullptr) {
    return detail::atomic<Scope>(team, Verb::atomic_cas, peer, window, offset, expected, desired, before);
}

// Reads a word of the peer's window.
template <class Scope = Thread>
__device__ inline Status fetch(const Team &team, u32 peer, const Window &window, u64 offset, u64 *value) {
    return detail::atomic<Scope>(team, Verb::fetch, peer, window, offset, 0, 0, value);
}

} // namespace causeway
