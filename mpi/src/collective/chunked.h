// Chunked collective calls through host memory.
#ifndef CAUSEWAY_CHUNKED_H
#define CAUSEWAY_CHUNKED_H

#include "collective.h"

// A call between the ranks of a communicator, which pass the same arguments.
struct chunked_call {
    enum collective what;
    // The name of the user's call, for errors.
    const char *call;
    MPI_Comm comm;
    int rank, root;
    MPI_Datatype type;
    // Bytes from one element to the next.
    uint64_t extent;
    MPI_Count count;
    MPI_Op op;
    // The send and receive buffers of this rank: anywhere in memory, and the same in place.
    const void *from;
    void *to;
};
// MPI_Bcast or MPI_Reduce. Returns this rank's first error, which has not been raised.
int run_chunked(const struct chunked_call *chunked);
// Sends one rank's elements to another one, or copies them if that is the same.
int send_chunked(const struct chunked_call *chunked, int from, int to);

// Ranges of this rank's memory, whose bytes are transferred one after the other.
struct rank_block {
    uint32_t count;
    const struct causeway_comm_range *ranges;
    // Of all of them; the same at all ranks.
    uint64_t bytes;
};
// There is a block for each rank. Without a result, a rank sends its own block to all, and receives those of
// all others. With one, it sends each rank that one's block, and reduces its own block of all ranks into the
// result, which may be that block. Returns this rank's first error, which has not been raised.
int alltoall_chunked(const struct chunked_call *chunked, uint32_t ranks, const struct rank_block *rank_blocks,
                     const struct rank_block *result);

#endif
