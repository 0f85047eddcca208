// What the files about windows of memory on GPUs share.
//
// The program's window is one of the MPI's, by which the MPI orders epochs and tells errors. In it a rank whose memory is
// on a GPU has a few bytes of the host's (`mark`). The other ranks open its memory, and copy to and from it at the call.
#ifndef CAUSEWAY_WINDOW_H
#define CAUSEWAY_WINDOW_H

#include <pthread.h>

#include "../shim.h"

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

// Some memory of a rank's on a GPU.
struct region {
    // A number that no other region of the rank's has; 0: it is none.
    uint64_t number;
    // Where the rank has it.
    uint64_t start, bytes;
    // Where it lies here, and what closes it: null for this rank's own.
    char *address;
    void *holder;
};

// What a rank has open of another one.
struct share {
    // From one displacement to the next.
    MPI_Aint unit;
    // Of a window that is not dynamic there is one at most.
    int count;
    struct region *regions;
    // Where the other rank has the mark in a dynamic window.
    MPI_Aint mark;
    // What epoch is open to it, and the word that it may begin one (epochs.c).
    unsigned char state;
    MPI_Request post_request;
};

struct window {
    MPI_Win handle;
    // Its ranks, with a communicator for words between them.
    MPI_Comm comm;
    // The ranks' numbers in the job.
    const uint32_t *job;
    int rank, ranks;
    bool is_dynamic;
    // Of this rank: what the program has given, where it is on a GPU.
    bool is_on_gpu;
    void *base;
    MPI_Aint bytes;
    int unit;
    // What the program's window has of this rank's instead.
    char mark[64];
    // A window of the interposer's. Who has it locked for himself at a rank updates that rank's memory. In a dynamic
    // window it has the rank's table (attach.c).
    MPI_Win lock_window;
    void *table;
    // One thread of this process is in the calls that other threads may not make beside it.
    pthread_mutex_t mutex;
    bool is_fenced;
    // What was shown to others, one number for each rank and region.
    uint64_t *exports;
    struct share *shares;
    struct window *next;
};

// known.c

// How many there are.
extern int window_count;
// The window of a handle, or null: it is the MPI's alone.
struct window *find_window(MPI_Win handle);
void add_window(struct window *window);
void forget_window(struct window *window);
// An error of a window's: calls its error handler, and gives the code.
int raise_in_window(MPI_Win window, const char *call, const char *message);
int raise_code_in_window(MPI_Win window, int code);

// make.c

// Shows memory to all other ranks: a descriptor and a number for each; says whether all can be shown it.
bool export_to_all(struct window *window, const void *address, uint64_t bytes, unsigned char *descriptors, uint64_t *numbers);
void withdraw_from_all(const struct window *window, uint64_t *numbers);
void close_region(struct region *region);
// MPI_Win_free.
int free_window(MPI_Win *handle);

// attach.c

enum { MAX_ATTACHED = 32 };
// Bytes of a rank's table in a dynamic window.
uint64_t bytes_of_table(const struct window *window);
// The rank's memory in which a range of addresses begins, open here; null where it is not on a GPU, or with words where it
// cannot be opened.
struct region *find_attached(struct window *window, int to, uint64_t address, const char **message);

// epochs.c

// Has the window's memory at a rank be this rank's to use: an epoch is open, and the other rank has begun its own. Gives an
// error of the MPI's.
int enter(struct window *window, int to);
// Takes the turn to update memory at a rank, and gives it back.
int lock_target(struct window *window, int to, int kind);
int unlock_target(struct window *window, int to);
// Before the MPI's calls that end epochs: at a rank, or with -1 at all.
void begin_fence(MPI_Win handle, int assertion);
void end_start(MPI_Win handle);
void end_locks(MPI_Win handle, int to);
// All words have been heard.
void end_posts(struct window *window);

// access.c

// Makes a call to memory that is on a GPU. Says whether it is; then there may be an error, which has been raised.
bool access_directly(const struct remote *remote, MPI_Win handle, const char *call, int *error);

// combine.c

// Puts elements together that lie one behind the other: into = from, operation, into. Gives the words of an error.
const char *combine(const void *from, void *into, uint64_t bytes, MPI_Datatype type, MPI_Op op);
// Whether an operation is one for windows.
bool is_for_windows(MPI_Op op);

#endif
