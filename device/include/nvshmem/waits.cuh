// Waits and tests of the SHMEM facade, on objects in this PE's own memory.
//
// Each look is an acquire, so that what was written before the object is there when the wait is over. A wait
// that the end of the team ends, ends the kernel.
#pragma once

#include "transfers.cuh"

namespace causeway::shmem {

__device__ inline u64 load_acquired(const u64 *from) { return order::load_acquire(from); }

__device__ inline u32 load_acquired(const u32 *from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ inline unsigned short load_acquired(const unsigned short *from) {
    unsigned short value;
    asm volatile("ld.acquire.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(from) : "memory");
    return value;
}

template <class T> __device__ inline T load_object(const T *from) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    if constexpr (sizeof(T) == 8) return static_cast<T>(load_acquired(reinterpret_cast<const u64 *>(from)));
    else if constexpr (sizeof(T) == 4)
        return static_cast<T>(load_acquired(reinterpret_cast<const u32 *>(from)));
    else return static_cast<T>(load_acquired(reinterpret_cast<const unsigned short *>(from)));
}

template <class T> __device__ inline bool compares(int comparison, T found, T expected) {
    switch (comparison) {
    case NVSHMEM_CMP_EQ: return found == expected;
    case NVSHMEM_CMP_NE: return found != expected;
    case NVSHMEM_CMP_GT: return found > expected;
    case NVSHMEM_CMP_LE: return found <= expected;
    case NVSHMEM_CMP_LT: return found < expected;
    case NVSHMEM_CMP_GE: return found >= expected;
    default:
        must(detail::fail(team(), Status::unsupported, Verb::wait, team().rank, 0, 0, sizeof(T)));
        return false;
    }
}

// What a look at the team says while a kernel polls.
class Polling {
  public:
    __device__ Polling() : team_(team()), timeout_(team_) {}

    __device__ void poll() {
        Status status = timeout_.poll();
        if (status != Status::ok) must(detail::fail(team_, status, Verb::wait, team_.rank, heap().id, 0, 8));
    }

  private:
    Team team_;
    detail::Timeout timeout_;
};

// Whether the team is well, for tests, with which kernels poll by themselves.
__device__ inline void must_be_well() { must(detail::end_of(team(), true)); }

template <class T> __device__ inline bool test(const T *object, int comparison, T expected) {
    bool is_so = compares(comparison, load_object(object), expected);
    if (!is_so) must_be_well();
    return is_so;
}

// Waits until an object compares so; what it is then.
template <class T> __device__ inline T wait_until(const T *object, int comparison, T expected) {
    Polling polling;
    while (true) {
        T found = load_object(object);
        if (compares(comparison, found, expected)) return found;
        polling.poll();
    }
}

// Objects that count: all whose mark is 0, where there are marks. What each is compared with: one value for
// all, or one for each.
template <class T> struct Objects {
    const T *objects;
    size_t count;
    const int *marks;
    int comparison;
    const T *expected;
    bool has_one_value;

    __device__ bool counts(size_t at) const { return marks == nullptr || marks[at] == 0; }
    __device__ bool is_so(size_t at) const {
        return compares(comparison, load_object(objects + at), expected[has_one_value ? 0 : at]);
    }

    // How many count that compare so; their numbers, where there is room for these.
    __device__ size_t some(size_t *numbers) const {
        size_t found = 0;
        for (size_t at = 0; at < count; at++) {
            if (!counts(at) || !is_so(at)) continue;
            if (numbers != nullptr) numbers[found] = at;
            found += 1;
        }
        return found;
    }

    __device__ size_t counted() const {
        size_t all = 0;
        for (size_t at = 0; at < count; at++) all += counts(at);
        return all;
    }

    // The first that counts and compares so; SIZE_MAX where there is none.
    __device__ size_t any() const {
        for (size_t at = 0; at < count; at++)
            if (counts(at) && is_so(at)) return at;
        return SIZE_MAX;
    }

    __device__ void wait_for_all() const {
        Polling polling;
        for (size_t at = 0; at < count; at++)
            while (counts(at) && !is_so(at)) polling.poll();
    }

    __device__ size_t wait_for_any() const {
        if (counted() == 0) return SIZE_MAX;
        Polling polling;
        while (true) {
            size_t found = any();
            if (found != SIZE_MAX) return found;
            polling.poll();
        }
    }

    __device__ size_t wait_for_some(size_t *numbers) const {
        if (counted() == 0) return 0;
        Polling polling;
        while (true) {
            size_t found = some(numbers);
            if (found > 0) return found;
            polling.poll();
        }
    }

    __device__ bool test_all() const {
        if (some(nullptr) == counted()) return true;
        must_be_well();
        return false;
    }

    __device__ size_t test_any() const {
        size_t found = any();
        if (found == SIZE_MAX) must_be_well();
        return found;
    }

    __device__ size_t test_some(size_t *numbers) const {
        size_t found = some(numbers);
        if (found == 0) must_be_well();
        return found;
    }
};

} // namespace causeway::shmem
