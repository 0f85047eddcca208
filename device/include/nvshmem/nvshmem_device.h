// Functions of the SHMEM facade that kernels call, each by one thread: transfers, signals, atomic operations,
// waits, collectives. nvshmemx.h has those of warps and blocks.
#pragma once

#define CAUSEWAY_SHMEM_DEVICE __device__ inline

// Transfers without a wait, elements that lie apart, and elements of a size.

CAUSEWAY_SHMEM_DEVICE void nvshmem_putmem_nbi(void *to, const void *from, size_t bytes, int pe) {
    causeway::shmem::put<causeway::Thread, false>(to, from, bytes, pe);
}

CAUSEWAY_SHMEM_DEVICE void nvshmem_getmem_nbi(void *to, const void *from, size_t bytes, int pe) {
    causeway::shmem::get<causeway::Thread, false>(to, from, bytes, pe);
}

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_put_nbi(TYPE *to, const TYPE *from, size_t count, int pe) {  \
        nvshmem_putmem_nbi(to, from, count * sizeof(TYPE), pe);                                              \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_get_nbi(TYPE *to, const TYPE *from, size_t count, int pe) {  \
        nvshmem_getmem_nbi(to, from, count * sizeof(TYPE), pe);                                              \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_iput(TYPE *to, const TYPE *from, ptrdiff_t to_step,          \
                                                     ptrdiff_t from_step, size_t count, int pe) {            \
        causeway::shmem::put_strided<TYPE>(to, from, to_step, from_step, count, pe);                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_iget(TYPE *to, const TYPE *from, ptrdiff_t to_step,          \
                                                     ptrdiff_t from_step, size_t count, int pe) {            \
        causeway::shmem::get_strided<TYPE>(to, from, to_step, from_step, count, pe);                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_put_signal(                                                  \
        TYPE *to, const TYPE *from, size_t count, uint64_t *word, uint64_t value, int operation, int pe) {   \
        causeway::shmem::put_signal<causeway::Thread, true>(                                                 \
            to, from, count * sizeof(TYPE), causeway::shmem::as_word(word), value, operation, pe);           \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_put_signal_nbi(                                              \
        TYPE *to, const TYPE *from, size_t count, uint64_t *word, uint64_t value, int operation, int pe) {   \
        causeway::shmem::put_signal<causeway::Thread, false>(                                                \
            to, from, count * sizeof(TYPE), causeway::shmem::as_word(word), value, operation, pe);           \
    }
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

#define CAUSEWAY_SHMEM_X(BITS, BYTES)                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_put##BITS(void *to, const void *from, size_t count, int pe) {         \
        nvshmem_putmem(to, from, count * BYTES, pe);                                                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_get##BITS(void *to, const void *from, size_t count, int pe) {         \
        nvshmem_getmem(to, from, count * BYTES, pe);                                                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_put##BITS##_nbi(void *to, const void *from, size_t count, int pe) {   \
        nvshmem_putmem_nbi(to, from, count * BYTES, pe);                                                     \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_get##BITS##_nbi(void *to, const void *from, size_t count, int pe) {   \
        nvshmem_getmem_nbi(to, from, count * BYTES, pe);                                                     \
    }
CAUSEWAY_SHMEM_SIZES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

// Signals.

CAUSEWAY_SHMEM_DEVICE void nvshmem_putmem_signal(void *to, const void *from, size_t bytes, uint64_t *word,
                                                 uint64_t value, int operation, int pe) {
    using namespace causeway::shmem;
    put_signal<causeway::Thread, true>(to, from, bytes, as_word(word), value, operation, pe);
}

CAUSEWAY_SHMEM_DEVICE void nvshmem_putmem_signal_nbi(void *to, const void *from, size_t bytes, uint64_t *word,
                                                     uint64_t value, int operation, int pe) {
    causeway::shmem::put_signal<causeway::Thread, false>(to, from, bytes, causeway::shmem::as_word(word),
                                                         value, operation, pe);
}

CAUSEWAY_SHMEM_DEVICE void nvshmemx_signal_op(uint64_t *word, uint64_t value, int operation, int pe) {
    causeway::shmem::signal<causeway::Thread>(causeway::shmem::as_word(word), value, operation, pe);
}

CAUSEWAY_SHMEM_DEVICE uint64_t nvshmem_signal_fetch(const uint64_t *word) {
    return causeway::shmem::load_object(word);
}

CAUSEWAY_SHMEM_DEVICE uint64_t nvshmem_signal_wait_until(const uint64_t *word, int comparison,
                                                         uint64_t value) {
    return causeway::shmem::wait_until(word, comparison, value);
}

// Waits and tests.

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_wait_until(const TYPE *object, int comparison, TYPE value) { \
        causeway::shmem::wait_until<TYPE>(object, comparison, value);                                        \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int nvshmem_##NAME##_test(const TYPE *object, int comparison, TYPE value) {        \
        return causeway::shmem::test<TYPE>(object, comparison, value);                                       \
    }                                                                                                        \
    CAUSEWAY_SHMEM_OBJECTS(NAME, TYPE, , TYPE, &value, true)                                                 \
    CAUSEWAY_SHMEM_OBJECTS(NAME, TYPE, _vector, const TYPE *, value, false)

#define CAUSEWAY_SHMEM_OBJECTS(NAME, TYPE, ENDING, VALUE, VALUES, HAS_ONE)                                   \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_wait_until_all##ENDING(                                      \
        const TYPE *objects, size_t count, const int *marks, int comparison, VALUE value) {                  \
        causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}.wait_for_all();   \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE size_t nvshmem_##NAME##_wait_until_any##ENDING(                                    \
        const TYPE *objects, size_t count, const int *marks, int comparison, VALUE value) {                  \
        return causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}            \
            .wait_for_any();                                                                                 \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE size_t nvshmem_##NAME##_wait_until_some##ENDING(                                   \
        const TYPE *objects, size_t count, size_t *numbers, const int *marks, int comparison, VALUE value) { \
        return causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}            \
            .wait_for_some(numbers);                                                                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int nvshmem_##NAME##_test_all##ENDING(                                             \
        const TYPE *objects, size_t count, const int *marks, int comparison, VALUE value) {                  \
        return causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}            \
            .test_all();                                                                                     \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE size_t nvshmem_##NAME##_test_any##ENDING(                                          \
        const TYPE *objects, size_t count, const int *marks, int comparison, VALUE value) {                  \
        return causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}            \
            .test_any();                                                                                     \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE size_t nvshmem_##NAME##_test_some##ENDING(                                         \
        const TYPE *objects, size_t count, size_t *numbers, const int *marks, int comparison, VALUE value) { \
        return causeway::shmem::Objects<TYPE>{objects, count, marks, comparison, VALUES, HAS_ONE}.test_some( \
            numbers);                                                                                        \
    }
CAUSEWAY_SHMEM_WHOLE_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_OBJECTS

// Atomic operations.

#define CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, WHAT, CHANGE)                                                      \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_atomic_##WHAT(TYPE *object, TYPE value, int pe) {            \
        causeway::shmem::atomic<TYPE>(causeway::shmem::Change::CHANGE, object, value, 0, pe);                \
    }
#define CAUSEWAY_SHMEM_FETCH(NAME, TYPE, WHAT, CHANGE)                                                       \
    CAUSEWAY_SHMEM_DEVICE TYPE nvshmem_##NAME##_atomic_##WHAT(TYPE *object, TYPE value, int pe) {            \
        return causeway::shmem::atomic<TYPE>(causeway::shmem::Change::CHANGE, object, value, 0, pe);         \
    }

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, set, set)                                                              \
    CAUSEWAY_SHMEM_FETCH(NAME, TYPE, swap, set)                                                              \
    CAUSEWAY_SHMEM_DEVICE TYPE nvshmem_##NAME##_atomic_fetch(const TYPE *object, int pe) {                   \
        return causeway::shmem::atomic<TYPE>(causeway::shmem::Change::none, const_cast<TYPE *>(object), 0,   \
                                             0, pe);                                                         \
    }
CAUSEWAY_SHMEM_SWAPPED_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, add, add)                                                              \
    CAUSEWAY_SHMEM_FETCH(NAME, TYPE, fetch_add, add)                                                         \
    CAUSEWAY_SHMEM_DEVICE void nvshmem_##NAME##_atomic_inc(TYPE *object, int pe) {                           \
        nvshmem_##NAME##_atomic_add(object, 1, pe);                                                          \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE TYPE nvshmem_##NAME##_atomic_fetch_inc(TYPE *object, int pe) {                     \
        return nvshmem_##NAME##_atomic_fetch_add(object, 1, pe);                                             \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE TYPE nvshmem_##NAME##_atomic_compare_swap(TYPE *object, TYPE expected, TYPE value, \
                                                                    int pe) {                                \
        return causeway::shmem::atomic<TYPE>(causeway::shmem::Change::compare_and_swap, object, value,       \
                                             expected, pe);                                                  \
    }
CAUSEWAY_SHMEM_ATOMIC_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, and, bit_and)                                                          \
    CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, or, bit_or)                                                            \
    CAUSEWAY_SHMEM_CHANGE(NAME, TYPE, xor, bit_xor)                                                          \
    CAUSEWAY_SHMEM_FETCH(NAME, TYPE, fetch_and, bit_and)                                                     \
    CAUSEWAY_SHMEM_FETCH(NAME, TYPE, fetch_or, bit_or)                                                       \
    CAUSEWAY_SHMEM_FETCH(NAME, TYPE, fetch_xor, bit_xor)
CAUSEWAY_SHMEM_BITWISE_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_CHANGE
#undef CAUSEWAY_SHMEM_FETCH

// Collectives. PREFIX and ENDING make the functions of warps and blocks as well.

#define CAUSEWAY_SHMEM_COLLECTIVES(PREFIX, NAME, TYPE, ENDING, SCOPE)                                        \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_##NAME##_broadcast##ENDING(                                           \
        nvshmem_team_t team, TYPE *to, const TYPE *from, size_t count, int root) {                           \
        causeway::shmem::broadcast<causeway::SCOPE>(team, to, from, count * sizeof(TYPE), root);             \
        return 0;                                                                                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_##NAME##_fcollect##ENDING(nvshmem_team_t team, TYPE *to,              \
                                                                 const TYPE *from, size_t count) {           \
        causeway::shmem::collect<causeway::SCOPE>(team, to, from, count * sizeof(TYPE));                     \
        return 0;                                                                                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_##NAME##_alltoall##ENDING(nvshmem_team_t team, TYPE *to,              \
                                                                 const TYPE *from, size_t count) {           \
        causeway::shmem::exchange<causeway::SCOPE>(team, to, from, count * sizeof(TYPE));                    \
        return 0;                                                                                            \
    }

#define CAUSEWAY_SHMEM_COLLECTIVES_OF_BYTES(PREFIX, ENDING, SCOPE)                                           \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_broadcastmem##ENDING(nvshmem_team_t team, void *to, const void *from, \
                                                            size_t bytes, int root) {                        \
        causeway::shmem::broadcast<causeway::SCOPE>(team, to, from, bytes, root);                            \
        return 0;                                                                                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_fcollectmem##ENDING(nvshmem_team_t team, void *to, const void *from,  \
                                                           size_t bytes) {                                   \
        causeway::shmem::collect<causeway::SCOPE>(team, to, from, bytes);                                    \
        return 0;                                                                                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_alltoallmem##ENDING(nvshmem_team_t team, void *to, const void *from,  \
                                                           size_t bytes) {                                   \
        causeway::shmem::exchange<causeway::SCOPE>(team, to, from, bytes);                                   \
        return 0;                                                                                            \
    }
CAUSEWAY_SHMEM_COLLECTIVES_OF_BYTES(nvshmem, , Thread)

#define CAUSEWAY_SHMEM_REDUCTION(PREFIX, NAME, TYPE, ENDING, SCOPE, WHAT, REDUCTION)                         \
    CAUSEWAY_SHMEM_DEVICE int PREFIX##_##NAME##_##WHAT##_reduce##ENDING(nvshmem_team_t team, TYPE *to,       \
                                                                        const TYPE *from, size_t count) {    \
        return causeway::shmem::reduce<causeway::SCOPE, causeway::shmem::Reduction::REDUCTION, TYPE>(        \
            team, to, from, count);                                                                          \
    }

#define CAUSEWAY_SHMEM_X(NAME, TYPE) CAUSEWAY_SHMEM_COLLECTIVES(nvshmem, NAME, TYPE, , Thread)
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, sum, sum)                                        \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, prod, product)                                   \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, min, min)                                        \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, max, max)
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, and, bit_and)                                    \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, or, bit_or)                                      \
    CAUSEWAY_SHMEM_REDUCTION(nvshmem, NAME, TYPE, , Thread, xor, bit_xor)
CAUSEWAY_SHMEM_REDUCED_BITS_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X

CAUSEWAY_SHMEM_DEVICE int nvshmem_barrier(nvshmem_team_t team) {
    causeway::shmem::must_be_world(team);
    nvshmem_barrier_all();
    return 0;
}

CAUSEWAY_SHMEM_DEVICE int nvshmem_team_sync(nvshmem_team_t team) { return nvshmem_barrier(team); }
