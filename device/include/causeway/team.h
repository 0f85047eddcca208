// Teams and windows for kernels that communicate: the host's functions, in libcauseway_comm.so. For C and
// C++.
//
// A kernel gets a causeway::Team and causeway::Window by value (layout.h): causeway_team_handle and
// causeway_window_handle write them. Functions that say 0 or -1, and those that give a window's number or -1,
// leave the words of an error in causeway_comm_error, for the calling thread.
#ifndef CAUSEWAY_TEAM_H
#define CAUSEWAY_TEAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The calling thread's last error.
const char *causeway_comm_error(void);

typedef struct causeway_team causeway_team;

// 0 means the default: 1 queue of 1024 requests, served by 1 thread, and waits of at most 5 s.
typedef struct causeway_team_options {
    uint32_t queues;             // of each rank, up to 8, which its blocks share
    uint32_t capacity;           // requests of each, a power of two
    uint32_t threads;            // of the host, for each rank's queues
    uint32_t limit_milliseconds; // of a kernel's wait
} causeway_team_options;

// A team whose ranks are all in this process. Each uses the device of this number; with null all use that of
// the calling thread's context. Null where it cannot be made.
causeway_team *causeway_team_create(uint32_t ranks, const int *devices, const causeway_team_options *options);
// This process's rank in a team whose ranks are in processes of their own, on one host (in containers of
// their own, too, as the ranks of causeway_comm_join) or on those that CAUSEWAY_COMM_HOSTS names. All call it
// with the same 32 hexadecimal digits, new ones for each team, and make the same windows in the same order,
// on their GPUs: that of the calling thread's context.
causeway_team *causeway_team_join(const char *nonce, uint32_t rank, uint32_t ranks,
                                  const causeway_team_options *options);
// Ends a team, whose kernels have ended. Prints the reports of CAUSEWAY_COMM_EXPLAIN and
// CAUSEWAY_DEVICE_EXPLAIN.
void causeway_team_destroy(causeway_team *team);
// What the kernels of a rank are given: 24 bytes. 0 or -1.
int causeway_team_handle(const causeway_team *team, uint32_t rank, void *handle);
// 0 while the team is well, -1 when it has ended: the error says why. May be asked while kernels run.
int causeway_team_check(const causeway_team *team);
// 0 where a grid of a kernel (a CUfunction; cudaGetFuncBySymbol) for each rank of this process fits on its
// GPU together with those of the other ranks; -1 if grids that wait for each other would wait for ever.
int causeway_team_fits(const causeway_team *team, void *function, uint32_t blocks, uint32_t threads,
                       uint64_t shared_bytes);
// Ends all waits of the team's kernels.
void causeway_team_abort(const causeway_team *team);

enum { CAUSEWAY_ON_DEVICE = 0, CAUSEWAY_IN_HOST = 1 };

// A window: so many bytes of new memory for each rank, zeroed. Its number, or -1.
int causeway_window_create(const causeway_team *team, uint32_t memory, uint64_t bytes);
// A window of the program's memory (a tensor's, say): an address for each rank of this process, at multiples of
// 16; one, where the team was joined. It stays until the window is freed. Memory of another GPU has to be open to the rank's (cudaDeviceEnablePeerAccess).
int causeway_window_register(const causeway_team *team, uint32_t memory, const uint64_t *addresses,
                             uint64_t bytes);
// 0 or -1. No kernel uses the window any more.
int causeway_window_free(const causeway_team *team, uint32_t window);
// What the kernels of a rank are given: 32 bytes, the first 8 of which are the address of the rank's part. 0
// or -1.
int causeway_window_handle(const causeway_team *team, uint32_t window, uint32_t rank, void *handle);

#ifdef __cplusplus
}
#endif

#endif
