// The operations of the headers as functions with C names, for languages whose compilers link NVIDIA's
// intermediate code (LTO-IR): Numba, by mpi/python/causeway_numba.py. The link inlines them.
//
// A team and a window are given by the addresses of their handles (causeway_team_handle,
// causeway_window_handle) in memory that the kernel reads. All return a causeway::Status as a number.
// `_thread`, `_warp` and `_block` say who calls together.
#include <causeway/device.cuh>

using namespace causeway;

#define EXPORTED extern "C" __device__

static __device__ const Team &team_at(u64 address) { return *reinterpret_cast<const Team *>(address); }
static __device__ const Window &window_at(u64 address) { return *reinterpret_cast<const Window *>(address); }

// `kind` of a signal: 0 sets, 1 adds. `compare`: 0 equal, 1 not equal, 2 at least.
#define OPERATIONS(suffix, Scope) \
    EXPORTED u32 causeway_put_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, u64 from_offset, \
                                       u64 bytes) { \
        return static_cast<u32>( \
            put<Scope>(team_at(team), peer, window_at(to), to_offset, window_at(from), from_offset, bytes)); \
    } \
    EXPORTED u32 causeway_get_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, u64 from_offset, \
                                       u64 bytes) { \
        return static_cast<u32>( \
            get<Scope>(team_at(team), peer, window_at(to), to_offset, window_at(from), from_offset, bytes)); \
    } \
    EXPORTED u32 causeway_put_signal_##suffix(u64 team, u32 peer, u64 to, u64 to_offset, u64 from, \
                                              u64 from_offset, u64 bytes, u64 cells, u64 cell, u64 value, \
                                              u32 kind) { \
        return static_cast<u32>(put_signal<Scope>(team_at(team), peer, window_at(to), to_offset, \
                                                  window_at(from), from_offset, bytes, window_at(cells), \
                                                  cell, value, static_cast<SignalKind>(kind))); \
    } \
    EXPORTED u32 causeway_signal_##suffix(u64 team, u32 peer, u64 cells, u64 cell, u64 value, u32 kind) { \
        return static_cast<u32>(signal<Scope>(team_at(team), peer, window_at(cells), cell, value, \
                                              static_cast<SignalKind>(kind))); \
    } \
    EXPORTED u32 causeway_signal_wait_##suffix(u64 team, u64 cells, u64 cell, u32 compare, u64 value) { \
        return static_cast<u32>(signal_wait<Scope>(team_at(team), window_at(cells), cell, \
                                                   static_cast<Compare>(compare), value)); \
    } \
    EXPORTED u32 causeway_barrier_##suffix(u64 team, u32 number) { \
        return static_cast<u32>(barrier<Scope>(team_at(team), number)); \
    } \
    EXPORTED u32 causeway_quiet_##suffix(u64 team) { return static_cast<u32>(quiet<Scope>(team_at(team))); } \
    EXPORTED u32 causeway_fence_##suffix(u64 team) { return static_cast<u32>(fence<Scope>(team_at(team))); }

OPERATIONS(thread, Thread)
OPERATIONS(warp, Warp)
OPERATIONS(block, Block)

// The word before is written to an address of the kernel's.
EXPORTED u32 causeway_atomic_add(u64 team, u32 peer, u64 cells, u64 cell, u64 value, u64 before) {
    return static_cast<u32>(
        atomic_add(team_at(team), peer, window_at(cells), cell, value, reinterpret_cast<u64 *>(before)));
}
