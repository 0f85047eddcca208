// Collective calls: their arguments, the layout of their data, and the ranks that make them.
#ifndef CAUSEWAY_COLLECTIVE_H
#define CAUSEWAY_COLLECTIVE_H

#include "../datatype/datatype.h"
#include "calls.h"

#define COLLECTIVE_NAME(name, ...) COLLECTIVE_##name,
enum collective { ALL_COLLECTIVE_CALLS(COLLECTIVE_NAME) };
#undef COLLECTIVE_NAME

// Which ranks get whose data.
enum pattern { BROADCAST, REDUCTION, GATHER, SCATTER, ALLGATHER, ALLTOALL, NEIGHBORS, LOCAL };
// The bytes of a call that all ranks know: those of its one count, of the sum of all counts, of a count for
// each rank, or of one rank's block. Of an irregular call no rank knows them for the others.
enum length { OF_COUNT, OF_SUM, OF_EACH, OF_BLOCK, OF_IRREGULAR, OF_UNKNOWN };

// What a call sends, or what it receives: one count and type, or one for each rank.
struct side {
    void *address;
    MPI_Count count;
    MPI_Datatype type;
    // `int`, or MPI_Count where the call is large.
    const void *counts;
    // `int`, or MPI_Aint where the call is large.
    const void *displacements;
    const MPI_Datatype *types;
};

// A call, with its arguments.
struct call {
    enum collective what;
    // It is a form for large counts (_c).
    bool is_large;
    struct side out, in;
    int root;
    MPI_Op op;
    MPI_Comm comm;
};

enum form { BLOCKING, NON_BLOCKING, PERSISTENT };

// The algorithm of a call: CAUSEWAY_COMM_CALL_*, with the number of nodes, if that is known and more than
// one.
struct choice {
    int algorithm;
    uint32_t hosts;
    bool is_leader;
};

// layout.c: where the data of a call are. Pure, but for queries of communicators and types.

// Contiguous elements, at a distance from a side's address.
struct block {
    MPI_Aint offset;
    MPI_Count count;
    MPI_Datatype type;
};
// A side's blocks at this rank. None if the call does not use the side here.
struct layout {
    // The MPI reads them, writes them, and may leave some as they are.
    bool is_read, is_written, may_stay;
    int count;
    struct block *blocks;
};
// MPI_SUCCESS, or an error. The caller must free the blocks.
int lay_out(const struct call *call, struct layout *out, struct layout *in);
// From the table of calls.
enum pattern pattern_of(const struct call *call);
enum length length_of_call(const struct call *call);
// Whether a call has a root.
bool has_root(const struct call *call);
// A side's count for a rank, and the offset of its block, in elements (bytes, for a list of types).
MPI_Count count_at(const struct call *call, const struct side *side, int at);
MPI_Aint displacement_at(const struct call *call, const struct side *side, int at);

// dispatch.c: makes calls, which may have memory on GPUs, in each of their forms.

int run_collective(const struct call *call);
int run_nonblocking(const struct call *call, MPI_Request *request);
int make_persistent(const struct call *call, MPI_Info info, MPI_Request *request);
const char *name_of(const struct call *call);
// Makes the call of the MPI. The request is ignored by the blocking form.
int invoke(const struct call *call, enum form form, MPI_Info info, MPI_Request *request);
// Counts a call of a rank with memory on a GPU, or of ranks some of which have it there.
void count_for_report(const struct call *call, const struct choice *choice);
uint64_t bytes_of_layouts(const struct layout *out, const struct layout *in);

// arguments.c: elements, operations and ranges, as libcauseway_comm has them, and aliased buffers.

// 0 if it does not know the type or the operation.
int element_of(MPI_Datatype type);
int operation_of(MPI_Op op);
// What a call without a reduction sends to each rank, and receives from each.
struct moves {
    // One for each rank.
    struct causeway_comm_range *sends, *receives;
};
void lay_out_moves(const struct call *call, uint32_t me, uint32_t ranks, struct moves *moves);
// The location of all these ranges, and their bytes.
struct moves_summary {
    bool on_gpu, in_host;
    uint64_t bytes;
};
struct moves_summary summarize_moves(const struct moves *moves, uint32_t ranks);
// An error, which has been raised, if a call receives into the buffer that it sends from and the MPI itself
// would report that.
int check_aliasing(const struct call *call);

// direct.c: the ranks of a communicator, and calls from GPU to GPU.

// A communicator's ranks in the job.
struct members {
    // All of them are of the job, and there is one group.
    bool is_supported;
    // Calls so far whose length no rank knows for the others, and whether a rank had memory on a GPU in one
    // of those on which the ranks agreed: the same at all ranks.
    uint64_t irregular_calls;
    bool has_gpus;
    // Short reductions so far of which it was not known whether the ranks can map each other's memory, and
    // whether they could in the last one that tried: the same at all ranks.
    uint64_t short_reductions;
    bool maps_peers;
    uint32_t rank, count;
    uint32_t ranks[];
};
// An attribute of the communicator.
struct members *members_of(MPI_Comm comm);
// The bytes of a call, if all ranks know them; 0 otherwise.
uint64_t bytes_known_to_all(const struct call *call, const struct members *members);
// Whether the call was made so, and by which algorithm, or why not. All ranks of the communicator decide the
// same.
bool run_on_gpus(const struct call *call, struct choice *choice, int *error);

// control.c: control messages between the ranks of a communicator.

// Sends so many bytes to each rank and receives as many from each, as MPI_Alltoall does; all ranks call. The
// context is the address of the communicator. Returns an error of the MPI.
int exchange_control(void *context, const void *out, void *in, uint64_t bytes);
// Frees the attribute of MPI_COMM_WORLD, before the MPI is finalized. All ranks call it.
void free_world_control(void);

// consistency_check.c: whether all ranks make the same call, with CAUSEWAY_COMM_CHECK.

void start_checking(void);
void stop_checking(void);
// Whether all ranks make this call, if that is checked: else an error, which has been raised.
int check_consistency(const struct call *call, enum form form);

#endif
