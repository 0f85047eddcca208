// Transfers of the SHMEM facade, by addresses in the symmetric heap: put, get, p, g, and a put with a signal.
//
// Threads store and load a peer's memory where that is mapped, or their PE's proxy moves the bytes
// (causeway/put.cuh). The other end may be any memory of the GPU.
#pragma once

#include "staging.cuh"

namespace causeway::shmem {

// Puts, and returns when the source may change if it `blocks`; it may return before otherwise.
template <class Scope, bool blocks>
CAUSEWAY_SHMEM_CALLED void put(void *to, const void *from, u64 bytes, int pe) {
    u64 there = offset_of(Verb::put, to, bytes, pe), here = reinterpret_cast<u64>(from);
    if (is_in_heap(from, bytes)) {
        must(causeway::put<Scope>(team(), static_cast<u32>(pe), heap(), there, heap(), here - heap().base,
                                  bytes));
        if (blocks) complete_posted<Scope>();
        return;
    }
    Scope::sync();
    void *mapped = mapped_at(there, pe);
    if (mapped != nullptr) detail::copy<Scope>(reinterpret_cast<u64>(mapped), here, bytes);
    else put_staged<Scope>(pe, there, here, bytes);
    Scope::sync();
}

template <class Scope, bool blocks>
CAUSEWAY_SHMEM_CALLED void get(void *to, const void *from, u64 bytes, int pe) {
    u64 there = offset_of(Verb::get, from, bytes, pe), here = reinterpret_cast<u64>(to);
    if (is_in_heap(to, bytes)) {
        must(causeway::get<Scope>(team(), static_cast<u32>(pe), heap(), here - heap().base, heap(), there,
                                  bytes));
        if (blocks) complete_posted<Scope>();
        return;
    }
    Scope::sync();
    void *mapped = mapped_at(there, pe);
    if (mapped != nullptr) detail::copy<Scope>(here, reinterpret_cast<u64>(mapped), bytes);
    else get_staged<Scope>(pe, here, there, bytes);
    Scope::sync();
}

// Puts a value.
template <class T> __device__ inline void put_value(T *to, T value, int pe) {
    u64 there = offset_of(Verb::put, to, sizeof(T), pe);
    T *mapped = static_cast<T *>(mapped_at(there, pe));
    if (mapped != nullptr) {
        *static_cast<volatile T *>(mapped) = value;
    } else if (sizeof(T) == 8 && there % 8 == 0) {
        u64 bits = 0;
        memcpy(&bits, &value, sizeof(T));
        Team own = team();
        Request request = detail::word(Verb::store, static_cast<u32>(pe), heap().id, there, bits);
        must(detail::post_batch<Thread>(own, Verb::put, static_cast<u32>(pe), heap(), there, 8, &request, 1));
    } else {
        put_staged<Thread>(pe, there, reinterpret_cast<u64>(&value), sizeof(T));
    }
}

// Gets a value.
template <class T> __device__ inline T get_value(const T *from, int pe) {
    u64 there = offset_of(Verb::get, from, sizeof(T), pe);
    const T *mapped = static_cast<const T *>(mapped_at(there, pe));
    if (mapped != nullptr) return *static_cast<const volatile T *>(mapped);
    T value;
    get_staged<Thread>(pe, reinterpret_cast<u64>(&value), there, sizeof(T));
    return value;
}

__device__ inline SignalKind signal_kind(int operation) {
    if (operation != NVSHMEM_SIGNAL_SET && operation != NVSHMEM_SIGNAL_ADD)
        must(detail::fail(team(), Status::unsupported, Verb::signal_set, team().rank, heap().id, 0, 8));
    return operation == NVSHMEM_SIGNAL_ADD ? SignalKind::add : SignalKind::set;
}

template <class Scope> CAUSEWAY_SHMEM_CALLED void signal(u64 *word, u64 value, int operation, int pe) {
    u64 there = offset_of(Verb::signal_set, word, 8, pe);
    must(causeway::signal<Scope>(team(), static_cast<u32>(pe), heap(), there, value, signal_kind(operation)));
}

template <class Scope, bool blocks>
CAUSEWAY_SHMEM_CALLED void put_signal(void *to, const void *from, u64 bytes, u64 *word, u64 value,
                                      int operation, int pe) {
    u64 there = offset_of(Verb::put, to, bytes, pe);
    u64 cell = offset_of(Verb::signal_set, word, 8, pe);
    SignalKind kind = signal_kind(operation);
    if (is_in_heap(from, bytes)) {
        must(causeway::put_signal<Scope>(team(), static_cast<u32>(pe), heap(), there, heap(),
                                         reinterpret_cast<u64>(from) - heap().base, bytes, heap(), cell,
                                         value, kind));
        if (blocks) complete_posted<Scope>();
        return;
    }
    put<Scope, blocks>(to, from, bytes, pe);
    // Staged bytes are the proxy's, and so is the signal then, behind them. Where threads have stored the
    // bytes a signal of either comes behind; counting up may be the proxies' alone.
    bool is_direct = mapped_at(there, pe) != nullptr && kind == SignalKind::set;
    Initiator way = is_direct ? Initiator::direct : Initiator::automatic;
    must(causeway::signal<Scope>(team(), static_cast<u32>(pe), heap(), cell, value, kind, way));
}

// Elements so many apart.
template <class T>
__device__ inline void put_strided(T *to, const T *from, ptrdiff_t to_step, ptrdiff_t from_step, size_t count,
                                   int pe) {
    for (size_t at = 0; at < count; at++)
        put_value<T>(to + static_cast<ptrdiff_t>(at) * to_step, from[static_cast<ptrdiff_t>(at) * from_step],
                     pe);
}

template <class T>
__device__ inline void get_strided(T *to, const T *from, ptrdiff_t to_step, ptrdiff_t from_step, size_t count,
                                   int pe) {
    for (size_t at = 0; at < count; at++)
        to[static_cast<ptrdiff_t>(at) * to_step] =
            get_value<T>(from + static_cast<ptrdiff_t>(at) * from_step, pe);
}

} // namespace causeway::shmem
