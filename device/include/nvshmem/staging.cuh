// Staging memory in the heap, for what a proxy is to move and cannot reach: values, and memory that is not in
// the heap.
//
// A piece has 64 bytes and two words: how often it has been used, and the number of the request that used it
// last. A thread takes a ticket, which names the piece and the round, and waits until that piece was left in
// the round before. Who leaves it says which request reads it, so that nobody waits for that but who comes
// next.
#pragma once

#include "state.h"

namespace causeway::shmem {

constexpr u32 PIECE = 64;

class Staged {
  public:
    __device__ Staged() {
        u64 base = heap().base;
        u64 ticket = atomicAdd(reinterpret_cast<u64 *>(base + TICKET_AT), 1ull);
        round_ = ticket / SLOTS;
        offset_ = SLOTS_AT + ticket % SLOTS * SLOT_BYTES;
        Team own = team();
        detail::Timeout timeout(own);
        while (order::load_acquire(word(0)) != round_) must(fail_unless_ok(own, timeout.poll()));
        if (round_ > 0) wait(order::load_relaxed(word(1)));
    }

    __device__ u64 offset() const { return offset_ + 2 * sizeof(u64); }
    __device__ u64 address() const { return heap().base + offset(); }

    // Posts a transfer between this piece and a peer's heap; its number.
    __device__ u64 post(Verb verb, int pe, u64 there, u64 bytes) const {
        Team own = team();
        Window window = heap();
        Request request =
            detail::transfer(verb, static_cast<u32>(pe), window.id, there, window.id, offset(), bytes);
        u64 number = 0;
        must(fail_unless_ok(own, detail::leave_verbs(own, static_cast<u32>(pe))));
        must(fail_unless_ok(own, detail::post(own, &request, 1, &number)));
        return number;
    }

    // Waits until a request of the queue is done.
    __device__ void wait(u64 number) const {
        Team own = team();
        Queue *queue = detail::queue_of(own);
        must(fail_unless_ok(
            own, detail::wait_for(own, &queue->completed, &queue->counters->completed, number + 1)));
    }

    // Leaves it to the next one, behind the request that has used it.
    __device__ void leave(u64 number) const {
        order::store_relaxed(word(1), number);
        order::store_release(word(0), round_ + 1);
    }

  private:
    __device__ u64 *word(u32 at) const { return reinterpret_cast<u64 *>(heap().base + offset_) + at; }

    __device__ static Status fail_unless_ok(const Team &own, Status status) {
        return status == Status::ok ? status : detail::fail(own, status, Verb::wait, own.rank, 0, 0, 0);
    }

    u64 round_, offset_;
};

static_assert(PIECE + 2 * sizeof(u64) <= SLOT_BYTES);

__device__ inline void copy_bytes(u64 to, u64 from, u32 bytes) { detail::copy<Thread>(to, from, bytes); }

// Puts bytes from wherever they are; returns when all have been copied from there, and not when they have
// come.
template <class Scope> CAUSEWAY_SHMEM_CALLED void put_staged(int pe, u64 to, u64 from, u64 bytes) {
    for (u64 at = static_cast<u64>(PIECE) * Scope::rank(); at < bytes;
         at += static_cast<u64>(PIECE) * Scope::size()) {
        u32 length = bytes - at < PIECE ? static_cast<u32>(bytes - at) : PIECE;
        Staged piece;
        copy_bytes(piece.address(), from + at, length);
        piece.leave(piece.post(Verb::put, pe, to + at, length));
    }
    Scope::sync();
}

// Gets bytes to wherever they shall be, where they are when this returns.
template <class Scope> CAUSEWAY_SHMEM_CALLED void get_staged(int pe, u64 to, u64 from, u64 bytes) {
    for (u64 at = static_cast<u64>(PIECE) * Scope::rank(); at < bytes;
         at += static_cast<u64>(PIECE) * Scope::size()) {
        u32 length = bytes - at < PIECE ? static_cast<u32>(bytes - at) : PIECE;
        Staged piece;
        u64 number = piece.post(Verb::get, pe, from + at, length);
        piece.wait(number);
        copy_bytes(to + at, piece.address(), length);
        piece.leave(number);
    }
    Scope::sync();
}

} // namespace causeway::shmem
