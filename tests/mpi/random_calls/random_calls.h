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
    // The same ranks; messages there are received by their order, with any tag.
    MPI_Comm ordered;
    // An intercommunicator of the first half of them and the other one, or null.
    MPI_Comm between;
    int rank, ranks;
    uint64_t state;
    // Whether threads beside this one call, too.
    bool has_threads;
    // Whether this rank has no GPU: all its memory is the host's. And whether all ranks have one.
    bool is_host, all_have_gpus;
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
    // How far behind the address that calls get the first element begins; it may be negative.
    MPI_Aint base;
    // Where the bytes of one element are, in the order in which they are sent.
    size_t count, offsets[MAX_RUNS], lengths[MAX_RUNS];
    // Bytes of one element, and from one to the next.
    size_t size, extent;
};
void make_type(struct group *group, struct known_type *type);
void free_type(struct known_type *type);
// What calls get as the address of elements that are in this memory.
void *address_of(const struct known_type *type, void *memory);
// Elements as one call gets them: by another handle, or by absolute addresses behind MPI_BOTTOM.
struct elements {
    void *address;
    int count;
    MPI_Datatype type;
    bool is_own;
};
enum handle { THE_TYPE, DUPLICATE, ABSOLUTE, HANDLES };
struct elements elements_of(const struct known_type *type, enum handle handle, void *memory, size_t count);
// The program frees its handle, whatever is under way with it.
void drop_elements(struct elements *elements);
// Bytes that so many elements take in memory.
size_t span_of(const struct known_type *type, size_t count);
// Fills elements with the bytes of `seed`, or counts those that are not, and those outside of `count`
// elements or in gaps that are not 0x5a.
void fill_elements(const struct known_type *type, size_t count, uint64_t seed, unsigned char *memory,
                   size_t bytes);
size_t count_wrong(const struct known_type *type, size_t count, uint64_t seed, const unsigned char *memory,
                   size_t bytes);

// messages.c: messages that begin before another call and end after it.

// MPICH 4.0.2 alone gives errors for partitioned messages in MPI_Testall.
#if defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5
#define HAS_PARTITIONS
#endif
// The first partitioned message, which all ranks send: Open MPI 5.0 alone makes communicators of all ranks in
// it.
void start_partitions(void);
struct messages;
struct messages *start_messages(struct group *group);
void end_messages(struct group *group, struct messages *messages);

// pending_collectives.c: non-blocking collective calls that begin before the messages and end after them.

struct pending;
struct pending *start_collectives(struct group *group);
void end_collectives(struct group *group, struct pending *pending);

// concurrent_calls.c: a call of another kind that all ranks make.

void make_concurrent_call(struct group *group);

// file_calls.c: files of elements of any type, and files through views.

void write_elements(struct group *group);
void write_through_view(struct group *group);

// numbers.c: integers on a GPU or in the host.

struct numbers {
    enum memory memory;
    size_t count;
    int *here, *there;
};
struct numbers take(enum memory memory, size_t count);
void write_out(struct numbers *numbers);
void read_in(struct numbers *numbers);
void give_back(struct numbers *numbers);
int value(int rank, size_t at, uint64_t seed);
void fill_with(struct numbers *numbers, int rank, uint64_t seed);
// Says so if the numbers are not those that this rank has been given.
void must_be(const struct group *group, struct numbers *numbers, int rank, uint64_t seed, const char *call);

#endif
