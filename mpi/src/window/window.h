// RMA windows of memory on GPUs: the interface between the files of this folder.
//
// The program's window is one of the MPI, which orders epochs and reports errors. For a rank whose memory is
// on a GPU it has a few bytes of host memory (`mark`). The other ranks map its memory, and copy to and from
// it in the call.
#ifndef CAUSEWAY_WINDOW_H
#define CAUSEWAY_WINDOW_H

#include <pthread.h>

#include "../interposer.h"

// A call to another rank's memory.
struct remote {
    enum { REMOTE_PUT, REMOTE_GET, REMOTE_UPDATE, REMOTE_SWAP } what;
    const void *from;
    MPI_Count from_count;
    MPI_Datatype from_type;
    // Of an update it may be null.
    void *result;
    MPI_Count result_count;
    MPI_Datatype result_type;
    const void *compared;
    int to;
    MPI_Aint at;
    MPI_Count count;
    MPI_Datatype type;
    MPI_Op op;
};

// A region of a rank's memory on a GPU.
struct region {
    // A number that is unique in the rank; 0: there is none.
    uint64_t number;
    // Its address at the rank.
    uint64_t start, bytes;
    // Its address in this process, and the handle that closes it: null for this rank's own.
    char *address;
    void *holder;
};

// The mapped memory of another rank.
struct share {
    // The displacement unit.
    MPI_Aint unit;
    // A window that is not dynamic has at most one.
    int count;
    struct region *regions;
    // In a dynamic window, the address of the mark at the other rank; and its table of attached memory as it
    // was read last, or null, with its version then (versions.c).
    MPI_Aint mark;
    struct table *copy;
    uint64_t version;
    // The epoch that is open to it, and the message that it may start one (epochs.c).
    unsigned char state;
    MPI_Request post_request;
};

struct window {
    MPI_Win handle;
    // Its ranks, with a communicator for messages between them.
    MPI_Comm comm;
    // The ranks in the job: a copy, since the program may free the communicator.
    uint32_t *job;
    int rank, ranks;
    bool is_dynamic;
    // The program's memory at this rank, if it is on a GPU.
    bool is_on_gpu;
    void *base;
    MPI_Aint bytes;
    int unit;
    // The memory of the program's window at this rank instead.
    char mark[64];
    // A window of the interposer. An exclusive lock of a rank protects updates of that rank's memory. In a
    // dynamic window it has the rank's table (attach.c).
    MPI_Win lock_window;
    void *table;
    // The versions of all ranks' tables, in memory that they share, or null.
    uint64_t *versions;
    // Serializes the calls that threads of this process must not make concurrently.
    pthread_mutex_t mutex;
    bool is_fenced;
    // The exports to other ranks: one number for each rank and region.
    uint64_t *exports;
    struct share *shares;
    struct window *next;
};

// make.c

// Number of windows.
extern int window_count;
// The window of a handle, or null: it is only the MPI's.
struct window *find_window(MPI_Win handle);
void add_window(struct window *window);
void forget_window(struct window *window);
// An error of a window: calls its error handler, and returns the code.
int raise_in_window(MPI_Win window, const char *call, const char *message);
int raise_code_in_window(MPI_Win window, int code);

// Exports memory to all other ranks: a descriptor and a number for each; whether all of them can map it.
bool export_to_all(struct window *window, const void *address, uint64_t bytes, unsigned char *descriptors,
                   uint64_t *numbers);
void withdraw_from_all(const struct window *window, uint64_t *numbers);
void close_region(struct region *region);
// MPI_Win_free.
int free_window(MPI_Win *handle);

// attach.c

enum { MAX_ATTACHED = 32 };
// Bytes of a rank's table in a dynamic window.
uint64_t bytes_of_table(const struct window *window);
// The rank's region that contains the start of an address range, mapped here; null if it is not on a GPU, or
// with a message if it cannot be mapped.
struct region *find_attached(struct window *window, int to, uint64_t address, const char **message);

// versions.c

#define UNKNOWN_VERSION UINT64_MAX
// Shares memory with all ranks of a dynamic window, which call this collectively, if they can. Returns an
// error of the MPI.
int share_versions(struct window *window);
void drop_versions(struct window *window);
// How often a rank has changed its table, or UNKNOWN_VERSION.
uint64_t version_of(const struct window *window, int rank);
// This rank has changed its own.
void change_version(struct window *window);

// epochs.c

// Waits until the window's memory at a rank may be accessed: an epoch is open, and the other rank has started
// its own. Returns an error of the MPI.
int enter(struct window *window, int to);
// Locks a rank's memory for updates, and unlocks it.
int lock_target(struct window *window, int to, int kind);
int unlock_target(struct window *window, int to);
// To be called before the MPI's calls that end epochs: at a rank, which may be MPI_PROC_NULL, or at all.
void begin_fence(MPI_Win handle, int assertion);
void end_start(MPI_Win handle);
void end_lock(MPI_Win handle, int to);
void end_all_locks(MPI_Win handle);
// Waits for all post messages.
void end_posts(struct window *window);

// access.c

// Makes a call to memory on a GPU. Whether it is; then there may be an error, which has been raised.
bool access_directly(const struct remote *remote, MPI_Win handle, const char *call, int *error);

#endif
