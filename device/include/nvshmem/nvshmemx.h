// Extensions of the SHMEM facade: functions that all threads of a warp or a block call together, those that
// the host puts into a stream, and the launch of kernels that wait for each other.
#pragma once

#include "nvshmem.h"

#ifdef __CUDACC__

// Of warps and blocks.

#define CAUSEWAY_SHMEM_SCOPE(ENDING, SCOPE)                                                                  \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_barrier_all_##ENDING() {                                             \
        causeway::shmem::barrier<causeway::SCOPE>();                                                         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_sync_all_##ENDING() { causeway::shmem::barrier<causeway::SCOPE>(); } \
    CAUSEWAY_SHMEM_DEVICE int nvshmemx_barrier_##ENDING(nvshmem_team_t team) {                               \
        causeway::shmem::must_be_world(team);                                                                \
        causeway::shmem::barrier<causeway::SCOPE>();                                                         \
        return 0;                                                                                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE int nvshmemx_team_sync_##ENDING(nvshmem_team_t team) {                             \
        return nvshmemx_barrier_##ENDING(team);                                                              \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_putmem_##ENDING(void *to, const void *from, size_t bytes, int pe) {  \
        causeway::shmem::put<causeway::SCOPE, true>(to, from, bytes, pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_getmem_##ENDING(void *to, const void *from, size_t bytes, int pe) {  \
        causeway::shmem::get<causeway::SCOPE, true>(to, from, bytes, pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_putmem_nbi_##ENDING(void *to, const void *from, size_t bytes,        \
                                                            int pe) {                                        \
        causeway::shmem::put<causeway::SCOPE, false>(to, from, bytes, pe);                                   \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_getmem_nbi_##ENDING(void *to, const void *from, size_t bytes,        \
                                                            int pe) {                                        \
        causeway::shmem::get<causeway::SCOPE, false>(to, from, bytes, pe);                                   \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_putmem_signal_##ENDING(                                              \
        void *to, const void *from, size_t bytes, uint64_t *word, uint64_t value, int operation, int pe) {   \
        causeway::shmem::put_signal<causeway::SCOPE, true>(to, from, bytes, causeway::shmem::as_word(word),  \
                                                           value, operation, pe);                            \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_putmem_signal_nbi_##ENDING(                                          \
        void *to, const void *from, size_t bytes, uint64_t *word, uint64_t value, int operation, int pe) {   \
        causeway::shmem::put_signal<causeway::SCOPE, false>(to, from, bytes, causeway::shmem::as_word(word), \
                                                            value, operation, pe);                           \
    }
CAUSEWAY_SHMEM_SCOPE(warp, Warp)
CAUSEWAY_SHMEM_SCOPE(block, Block)
#undef CAUSEWAY_SHMEM_SCOPE

CAUSEWAY_SHMEM_COLLECTIVES_OF_BYTES(nvshmemx, _warp, Warp)
CAUSEWAY_SHMEM_COLLECTIVES_OF_BYTES(nvshmemx, _block, Block)

#define CAUSEWAY_SHMEM_TRANSFERS(NAME, TYPE, ENDING)                                                         \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_put_##ENDING(TYPE *to, const TYPE *from, size_t count,      \
                                                              int pe) {                                      \
        nvshmemx_putmem_##ENDING(to, from, count * sizeof(TYPE), pe);                                        \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_get_##ENDING(TYPE *to, const TYPE *from, size_t count,      \
                                                              int pe) {                                      \
        nvshmemx_getmem_##ENDING(to, from, count * sizeof(TYPE), pe);                                        \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_put_nbi_##ENDING(TYPE *to, const TYPE *from, size_t count,  \
                                                                  int pe) {                                  \
        nvshmemx_putmem_nbi_##ENDING(to, from, count * sizeof(TYPE), pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_get_nbi_##ENDING(TYPE *to, const TYPE *from, size_t count,  \
                                                                  int pe) {                                  \
        nvshmemx_getmem_nbi_##ENDING(to, from, count * sizeof(TYPE), pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_put_signal_##ENDING(                                        \
        TYPE *to, const TYPE *from, size_t count, uint64_t *word, uint64_t value, int operation, int pe) {   \
        nvshmemx_putmem_signal_##ENDING(to, from, count * sizeof(TYPE), word, value, operation, pe);         \
    }                                                                                                        \
    CAUSEWAY_SHMEM_DEVICE void nvshmemx_##NAME##_put_signal_nbi_##ENDING(                                    \
        TYPE *to, const TYPE *from, size_t count, uint64_t *word, uint64_t value, int operation, int pe) {   \
        nvshmemx_putmem_signal_nbi_##ENDING(to, from, count * sizeof(TYPE), word, value, operation, pe);     \
    }
#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_TRANSFERS(NAME, TYPE, warp)                                                               \
    CAUSEWAY_SHMEM_TRANSFERS(NAME, TYPE, block)                                                              \
    CAUSEWAY_SHMEM_COLLECTIVES(nvshmemx, NAME, TYPE, _warp, Warp)                                            \
    CAUSEWAY_SHMEM_COLLECTIVES(nvshmemx, NAME, TYPE, _block, Block)
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_TRANSFERS

// Templates, so that of the many kernels only those are compiled that a program uses.
#define CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, WHAT, REDUCTION)                                               \
    CAUSEWAY_SHMEM_REDUCTION(nvshmemx, NAME, TYPE, _warp, Warp, WHAT, REDUCTION)                             \
    CAUSEWAY_SHMEM_REDUCTION(nvshmemx, NAME, TYPE, _block, Block, WHAT, REDUCTION)                           \
    template <class = void>                                                                                  \
    int nvshmemx_##NAME##_##WHAT##_reduce_on_stream(nvshmem_team_t team, TYPE *to, const TYPE *from,         \
                                                    size_t count, cudaStream_t stream) {                     \
        return causeway::shmem::reduce_on_stream<causeway::shmem::Reduction::REDUCTION, TYPE>(               \
            team, to, from, count, stream);                                                                  \
    }

namespace causeway::shmem {

template <Reduction reduction, class T>
__global__ static void do_reduction(nvshmem_team_t team, T *to, const T *from, size_t count) {
    reduce<Block, reduction, T>(team, to, from, count);
}

template <Reduction reduction, class T>
inline int reduce_on_stream(nvshmem_team_t team, T *to, const T *from, size_t count, cudaStream_t stream) {
    ready();
    do_reduction<reduction, T><<<1, 256, 0, stream>>>(team, to, from, count);
    return cudaGetLastError() == cudaSuccess ? 0 : NVSHMEMX_ERROR_INTERNAL;
}

} // namespace causeway::shmem

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, sum, sum)                                                          \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, prod, product)                                                     \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, min, min)                                                          \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, max, max)
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, and, bit_and)                                                      \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, or, bit_or)                                                        \
    CAUSEWAY_SHMEM_REDUCTIONS(NAME, TYPE, xor, bit_xor)
CAUSEWAY_SHMEM_REDUCED_BITS_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_REDUCTIONS

#endif

// In streams: one kernel of a block each. The forms without a wait are the same.

namespace causeway::shmem {

inline void run_on_stream(const Task &task, cudaStream_t stream) {
    ready();
    run(task, stream, "a function on a stream");
}

} // namespace causeway::shmem

inline void nvshmemx_barrier_all_on_stream(cudaStream_t stream) {
    causeway::shmem::run_on_stream({causeway::shmem::Task::barrier, nullptr, nullptr, 0, nullptr,
                                     causeway::shmem::STREAMS_BARRIER, 0, 0},
                                   stream);
}

inline void nvshmemx_sync_all_on_stream(cudaStream_t stream) { nvshmemx_barrier_all_on_stream(stream); }

inline void nvshmemx_quiet_on_stream(cudaStream_t stream) {
    causeway::shmem::run_on_stream({causeway::shmem::Task::quiet, nullptr, nullptr, 0, nullptr, 0, 0, 0},
                                   stream);
}

inline void nvshmemx_signal_op_on_stream(uint64_t *word, uint64_t value, int operation, int pe,
                                         cudaStream_t stream) {
    using namespace causeway::shmem;
    run_on_stream({Task::signal, nullptr, nullptr, 0, as_word(word), value, operation, pe}, stream);
}

inline void nvshmemx_signal_wait_until_on_stream(uint64_t *word, int comparison, uint64_t value,
                                                 cudaStream_t stream) {
    using namespace causeway::shmem;
    run_on_stream({Task::wait, nullptr, nullptr, 0, as_word(word), value, comparison, 0}, stream);
}

#define CAUSEWAY_SHMEM_ON_STREAM(ENDING)                                                                     \
    inline void nvshmemx_putmem##ENDING##_on_stream(void *to, const void *from, size_t bytes, int pe,        \
                                                    cudaStream_t stream) {                                   \
        using namespace causeway::shmem;                                                                     \
        run_on_stream({Task::put, to, from, bytes, nullptr, 0, 0, pe}, stream);                              \
    }                                                                                                        \
    inline void nvshmemx_getmem##ENDING##_on_stream(void *to, const void *from, size_t bytes, int pe,        \
                                                    cudaStream_t stream) {                                   \
        using namespace causeway::shmem;                                                                     \
        run_on_stream({Task::get, to, from, bytes, nullptr, 0, 0, pe}, stream);                              \
    }                                                                                                        \
    inline void nvshmemx_putmem_signal##ENDING##_on_stream(void *to, const void *from, size_t bytes,         \
                                                           uint64_t *word, uint64_t value, int operation,    \
                                                           int pe, cudaStream_t stream) {                    \
        using namespace causeway::shmem;                                                                     \
        run_on_stream({Task::put_signal, to, from, bytes, as_word(word), value, operation, pe}, stream);     \
    }
CAUSEWAY_SHMEM_ON_STREAM()
CAUSEWAY_SHMEM_ON_STREAM(_nbi)
#undef CAUSEWAY_SHMEM_ON_STREAM

#define CAUSEWAY_SHMEM_ON_STREAM(NAME, TYPE, ENDING)                                                         \
    inline void nvshmemx_##NAME##_put##ENDING##_on_stream(TYPE *to, const TYPE *from, size_t count, int pe,  \
                                                          cudaStream_t stream) {                             \
        nvshmemx_putmem##ENDING##_on_stream(to, from, count * sizeof(TYPE), pe, stream);                     \
    }                                                                                                        \
    inline void nvshmemx_##NAME##_get##ENDING##_on_stream(TYPE *to, const TYPE *from, size_t count, int pe,  \
                                                          cudaStream_t stream) {                             \
        nvshmemx_getmem##ENDING##_on_stream(to, from, count * sizeof(TYPE), pe, stream);                     \
    }                                                                                                        \
    inline void nvshmemx_##NAME##_put_signal##ENDING##_on_stream(                                            \
        TYPE *to, const TYPE *from, size_t count, uint64_t *word, uint64_t value, int operation, int pe,     \
        cudaStream_t stream) {                                                                               \
        nvshmemx_putmem_signal##ENDING##_on_stream(to, from, count * sizeof(TYPE), word, value, operation,   \
                                                   pe, stream);                                              \
    }
#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_ON_STREAM(NAME, TYPE, )                                                                   \
    CAUSEWAY_SHMEM_ON_STREAM(NAME, TYPE, _nbi)                                                               \
    inline void nvshmemx_##NAME##_p_on_stream(TYPE *to, TYPE value, int pe, cudaStream_t stream) {           \
        using namespace causeway::shmem;                                                                     \
        causeway::u64 bits = 0;                                                                              \
        std::memcpy(&bits, &value, sizeof value);                                                            \
        run_on_stream({Task::put_value, to, nullptr, sizeof value, nullptr, bits, 0, pe}, stream);           \
    }
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_ON_STREAM

namespace causeway::shmem {

inline int collective_on_stream(Task::Kind kind, nvshmem_team_t team, void *to, const void *from,
                                size_t bytes, int root, cudaStream_t stream) {
    if (team != NVSHMEM_TEAM_WORLD) return NVSHMEMX_ERROR_INVALID_VALUE;
    run_on_stream({kind, to, from, bytes, nullptr, 0, 0, root}, stream);
    return NVSHMEMX_SUCCESS;
}

} // namespace causeway::shmem

#define CAUSEWAY_SHMEM_ON_STREAM(BROADCAST, FCOLLECT, ALLTOALL, TYPE, BYTES)                                 \
    inline int nvshmemx_##BROADCAST##_on_stream(nvshmem_team_t team, TYPE *to, const TYPE *from,             \
                                                size_t count, int root, cudaStream_t stream) {               \
        using namespace causeway::shmem;                                                                     \
        return collective_on_stream(Task::broadcast, team, to, from, count * BYTES, root, stream);           \
    }                                                                                                        \
    inline int nvshmemx_##FCOLLECT##_on_stream(nvshmem_team_t team, TYPE *to, const TYPE *from,              \
                                               size_t count, cudaStream_t stream) {                          \
        using namespace causeway::shmem;                                                                     \
        return collective_on_stream(Task::collect, team, to, from, count * BYTES, 0, stream);                \
    }                                                                                                        \
    inline int nvshmemx_##ALLTOALL##_on_stream(nvshmem_team_t team, TYPE *to, const TYPE *from,              \
                                               size_t count, cudaStream_t stream) {                          \
        using namespace causeway::shmem;                                                                     \
        return collective_on_stream(Task::exchange, team, to, from, count * BYTES, 0, stream);               \
    }
#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_ON_STREAM(NAME##_broadcast, NAME##_fcollect, NAME##_alltoall, TYPE, sizeof(TYPE))
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
CAUSEWAY_SHMEM_ON_STREAM(broadcastmem, fcollectmem, alltoallmem, void, 1)
#undef CAUSEWAY_SHMEM_X
#undef CAUSEWAY_SHMEM_ON_STREAM

// Kernels that wait for each other: refused where their blocks do not fit on the GPU together.

inline int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared_bytes, cudaStream_t stream) {
    using namespace causeway::shmem;
    Job &own = ready();
    cudaFunction_t function = nullptr;
    int device = 0, is_cooperative = 0;
    must_succeed(cudaGetFuncBySymbol(&function, kernel), "nvshmemx_collective_launch");
    unsigned int blocks = grid.x * grid.y * grid.z, threads = block.x * block.y * block.z;
    if (causeway_team_fits(own.team, function, blocks, threads, shared_bytes) != 0) {
        report("nvshmemx_collective_launch: %s", causeway_comm_error());
        return NVSHMEMX_ERROR_INVALID_VALUE;
    }
    must_succeed(cudaGetDevice(&device), "nvshmemx_collective_launch");
    must_succeed(cudaDeviceGetAttribute(&is_cooperative, cudaDevAttrCooperativeLaunch, device),
                 "nvshmemx_collective_launch");
    cudaError_t status =
        is_cooperative != 0
            ? cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared_bytes, stream)
            : cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
    if (status == cudaSuccess) return NVSHMEMX_SUCCESS;
    report("nvshmemx_collective_launch: %s", cudaGetErrorString(status));
    return NVSHMEMX_ERROR_INTERNAL;
}
