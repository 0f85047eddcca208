// Random messages and calls: the interface between the files of this program.
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu.h"

// One thread's ranks: those that call the same. All of them draw the same numbers.
struct group {
    MPI_Comm comm;
    // The same ranks; messages there are received by probes for anything.
    MPI_Comm probed;
    int rank, ranks;
    uint64_t state;
    // Whether threads beside this one call, too.
    bool has_threads;
    // Whether this rank has no GPU: all its memory is the host's.
    bool is_host;
    // Where files are made, and a name for them that no other thread has.
    const char *folder;
    int number;
};

// A number below `limit`, the same at all ranks.
size_t below(struct group *group, size_t limit);
enum memory some_memory(struct group *group);
// Copies between any two places that this rank has.
void copy_bytes(void *to, const void *from, size_t bytes);
// A byte of a thing.
unsigned char byte_at(uint64_t seed, size_t at);
// Says what is wrong, in words for the rank, and counts it.
void is_wrong(const struct group *group, const char *format, ...);
extern int wrong;

// types.c: types whose bytes are known.

enum { MAX_RUNS = 12 };
struct known_type {
    MPI_Datatype type;
    // Where the bytes of one element are, in the order in which they are sent.
    size_t count, offsets[MAX_RUNS], lengths[MAX_RUNS];
    // Bytes of one element, and from one to the next.
    size_t size, extent;
};
void make_type(struct group *group, struct known_type *type);
void free_type(struct known_type *type);
// Bytes that so many elements take in memory.
size_t span_of(const struct known_type *type, size_t count);
// Fills elements with the bytes of `seed`, or counts those that are not, and those outside of `count`
// elements or in gaps that are not 0x5a.
void fill_elements(const struct known_type *type, size_t count, uint64_t seed, unsigned char *memory,
                   size_t bytes);
size_t count_wrong(const struct known_type *type, size_t count, uint64_t seed, const unsigned char *memory,
                   size_t bytes);

// messages.c: messages that begin before another call and end after it.

struct messages;
struct messages *start_messages(struct group *group);
void end_messages(struct group *group, struct messages *messages);

// concurrent_calls.c: a call of another kind that all ranks make.

void make_concurrent_call(struct group *group);

#endif
