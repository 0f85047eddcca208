// C API of libcauseway_comm.so: messages and collective calls between the GPUs of a job's ranks.
//
// A process takes part in one job at a time. The sender offers memory on a GPU, and the receiver fetches it
// (a rendezvous). The caller brings the descriptor of an offer to the receiver; the interposer sends it with
// the MPI. A function that returns -1 for an error, or no object, leaves a message in causeway_comm_error,
// for the calling thread. So does a panic in the library, which never unwinds into the caller: a function
// without an error value then returns what it returns in a process that has not joined a job.
#ifndef CAUSEWAY_COMM_H
#define CAUSEWAY_COMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of this header, and that of the library which is loaded. A program must not call a library of
// another version than the header it was built with.
#define CAUSEWAY_COMM_VERSION 9
uint32_t causeway_comm_version(void);

// Bytes of a descriptor.
#define CAUSEWAY_COMM_DESCRIPTOR 79

// The message of the calling thread's last error.
const char *causeway_comm_error(void);

// Joins the job of this nonce (32 hexadecimal digits) as one of its ranks. Reads CAUSEWAY_COMM_*. 0 or -1.
int causeway_comm_join(const char *nonce, uint32_t rank, uint32_t ranks);
// Updates this process's locality after it has entered the namespaces of another container (setns, unshare):
// messages in flight complete, later ones wait, and this process and its peers connect again. Peers need not
// call it. Sends and fetches detect such a move within 0.1 s; this function does not wait for that. 0, or -1:
// then messages go on as before.
int causeway_comm_move(void);
// Leaves the job. Prints the report of CAUSEWAY_COMM_EXPLAIN.
void causeway_comm_leave(void);

// Whether a CUDA driver is loaded. Without one, no address is that of memory on a GPU.
int causeway_comm_has_driver(void);
// Whether an address is that of memory on a GPU.
int causeway_comm_on_gpu(const void *address);
// Whether the processor can access an address: that of memory of the host, or of managed memory.
int causeway_comm_is_host_accessible(const void *address);
// Waits until all pending work of the legacy and the per-thread default stream is complete, as cudaMemcpy
// does: in the context of the address, if it is one of a GPU, and in that of the calling thread. To be called
// when a program passes memory to a communication call.
void causeway_comm_sync_memory(const void *address);
// Copies between a GPU and any memory, and waits. 0 or -1.
int causeway_comm_copy(void *to, const void *from, uint64_t bytes);
// Copies the bytes of a message that the MPI has delivered to the user's memory on a GPU, and waits. Counts a
// message that the processor has written through the GPU's BAR, unless the peer is UINT32_MAX (unknown). 0 or
// -1.
int causeway_comm_deliver(uint32_t peer, void *to, const void *from, uint64_t bytes);

// Whether the peer responds and a message to it should be offered. Otherwise the caller sends its bytes,
// which this function counts. A short message is offered only if the peer has mapped the memory at the
// address, which may be null.
int causeway_comm_is_offered(uint32_t peer, const void *address, uint64_t bytes);
// Whether a message is short: the sender must detach it (causeway_comm_detach) if the peer does not fetch it
// within some microseconds.
int causeway_comm_is_short(uint64_t bytes);
// Counts a send of memory on a GPU to a peer, before it is offered, or a receive of bytes that the MPI
// delivered: by a blocking call, or a non-blocking one. A fetch counts itself. CAUSEWAY_COMM_TRACE says how
// many calls of one kind make the traffic with a peer of this node bound by latency, or by bandwidth. Offers
// carry that to the receiver, which selects the channel by it.
void causeway_comm_count_operation(uint32_t peer, int is_blocking);
// Counts a message of a call that buffers it.
void causeway_comm_count_copied(uint32_t peer, uint64_t bytes);
// The number of messages of a GPU's memory so far that were received by one channel, by its name, or whose
// bytes were sent with the MPI (mpi).
uint64_t causeway_comm_messages(const char *channel);
// The names of the channels by number, and of mpi behind the last one; NULL for greater numbers.
const char *causeway_comm_channel(uint32_t number);
// Offers memory on a GPU to a peer, and writes the descriptor for it. The number of the offer, or 0 if no
// channel supports such memory: then the caller sends the bytes, which this function counts.
uint64_t causeway_comm_offer(uint32_t peer, const void *address, uint64_t bytes,
                             unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR]);
// 0 while the offer is in flight, 1 when the peer has the message, -1 when it has failed. To be polled until
// it is not 0.
int causeway_comm_offer_state(uint64_t offer);
// Copies the message, unless the peer has started to fetch it, and releases the memory: the offer is then
// complete.
void causeway_comm_detach(uint64_t offer);
// A thread waits in a call of the MPI, in which this rank makes no progress on receives that it has
// started, and has come back: meanwhile the senders of such messages detach them soon.
void causeway_comm_begin_wait(void);
void causeway_comm_end_wait(void);

// Classifies a received message, for a receive with a buffer of so many bytes: a payload, a payload that is
// too long, or a descriptor of a rendezvous. Writes the length of the payload.
enum { CAUSEWAY_COMM_PAYLOAD = 0, CAUSEWAY_COMM_TOO_LONG = 1, CAUSEWAY_COMM_RENDEZVOUS = 2 };
int causeway_comm_classify(const void *start, uint64_t length, uint64_t capacity, uint64_t *payload);
// Fetches the message of a descriptor, if the buffer is large enough, and waits for it. 0 or -1.
int causeway_comm_fetch(const void *descriptor, void *to, int on_gpu, uint64_t capacity, int is_blocking);
// Starts a fetch: 0 if it is complete, 1 if it is in flight, or -1. A fetch in flight has a number, by which
// the caller polls its state until it is not 1; the buffer must not be used before.
int causeway_comm_start_fetch(const void *descriptor, void *to, int on_gpu, uint64_t capacity,
                              uint64_t *number);
int causeway_comm_fetch_state(uint64_t number);

// The queue of unexpected messages: those that a probe has received before a receive was posted. They are
// matched by communicator, source and tag (-1: any), in the order in which they were queued. The second
// function returns the first match, or null, and removes it if `is_removed` is not 0.
void causeway_comm_queue_unexpected(uint64_t communicator, int source, int tag, void *message);
void *causeway_comm_take_unexpected(uint64_t communicator, int source, int tag, int is_removed);

// Memory of other ranks that is mapped, for as long as the caller needs it.

// Exports memory on a GPU to a peer, until it is withdrawn, and writes the descriptor for the peer. A number,
// or 0 if the peer does not respond or cannot map such memory.
uint64_t causeway_comm_export(uint32_t peer, const void *address, uint64_t bytes,
                              unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR]);
// The peer cannot map it any more. A mapping that it has stays valid.
void causeway_comm_withdraw(uint64_t number);
// Maps the memory of a descriptor, for the GPU of `gpu_address`, or for the calling thread's where that is
// null or not on a GPU. The address in this process, or null. The handle closes the mapping.
void *causeway_comm_open(const unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR], const void *gpu_address,
                         void **handle);
// Counts bytes that were copied to or from the mapping, for the report.
void causeway_comm_count_open(const void *handle, uint64_t bytes);
// Closes the mapping, when nothing uses it any more. The handle may be null.
void causeway_comm_close(void *handle);

// Collective calls on memory of GPUs.
//
// A group is some ranks of the job, which call collectively and in the same order. The caller provides
// `exchange`, which sends so many bytes to each rank of the group and receives as many from each, in the
// order of ranks (as MPI_Alltoall of bytes); 0, or an error code.
struct causeway_comm_group {
    // This rank in the group, and the size of the group.
    uint32_t rank, ranks;
    // The ranks of the job, by rank of the group.
    const uint32_t *members;
    int (*exchange)(void *context, const void *out, void *in, uint64_t bytes);
    void *context;
    // A CUDA stream whose earlier work the call waits for, or null. A call is complete when it returns. In a
    // stream that is being captured, a call becomes a part of the graph: see "Calls in graphs".
    void *stream;
    // Reductions of fewer bytes per rank are not made (they return 1) if the ranks cannot map each other's
    // memory and would have to fetch it; the same at all ranks. 0: all of them are made.
    uint64_t fetched_from;
};

// Elements. Pairs are as MPI's: a number and an int, with the padding of C.
enum {
    CAUSEWAY_COMM_INT8 = 1,
    CAUSEWAY_COMM_INT16,
    CAUSEWAY_COMM_INT32,
    CAUSEWAY_COMM_INT64,
    CAUSEWAY_COMM_UINT8,
    CAUSEWAY_COMM_UINT16,
    CAUSEWAY_COMM_UINT32,
    CAUSEWAY_COMM_UINT64,
    CAUSEWAY_COMM_FLOAT16,
    CAUSEWAY_COMM_BFLOAT16,
    CAUSEWAY_COMM_FLOAT32,
    CAUSEWAY_COMM_FLOAT64,
    CAUSEWAY_COMM_COMPLEX64,
    CAUSEWAY_COMM_COMPLEX128,
    CAUSEWAY_COMM_SHORT_INT,
    CAUSEWAY_COMM_INT_INT,
    CAUSEWAY_COMM_LONG_INT,
    CAUSEWAY_COMM_FLOAT_INT,
    CAUSEWAY_COMM_DOUBLE_INT,
};
// Operations.
enum {
    CAUSEWAY_COMM_MAX = 1,
    CAUSEWAY_COMM_MIN,
    CAUSEWAY_COMM_SUM,
    CAUSEWAY_COMM_PROD,
    CAUSEWAY_COMM_LAND,
    CAUSEWAY_COMM_BAND,
    CAUSEWAY_COMM_LOR,
    CAUSEWAY_COMM_BOR,
    CAUSEWAY_COMM_LXOR,
    CAUSEWAY_COMM_BXOR,
    CAUSEWAY_COMM_MINLOC,
    CAUSEWAY_COMM_MAXLOC,
};
// Whether a kernel reduces such elements by this operation.
int causeway_comm_reduces(int element, int operation);

// The least bytes of a collective call that goes from GPU to GPU (CAUSEWAY_COMM_COLLECTIVE_THRESHOLD). A
// reduction whose ranks map each other's memory does from a sixteenth of it on.
uint64_t causeway_comm_direct_bytes(void);

// Whether a rank of the job is on this node: it responds by shared memory or a socket, and not over a
// network. To be called when that rank has joined, as after a barrier.
int causeway_comm_is_local(uint32_t peer);
// Whether ranks of other nodes may be reached over a network (CAUSEWAY_COMM_HOSTS).
int causeway_comm_uses_network(void);
// Whether the report of CAUSEWAY_COMM_EXPLAIN is enabled.
int causeway_comm_explains(void);
// Counts a collective call for that report: its name, and its algorithm, or why it was staged through host
// memory. `hosts` is the number of nodes of its ranks, if that is known and more than one; `is_leader` says
// whether this rank is the leader of its node, and `bytes` what it sends and receives.
enum {
    // From GPU to GPU.
    CAUSEWAY_COMM_CALL_DIRECT = 0,
    // Two-level: the leaders of the nodes communicated by the MPI, or by channels.
    CAUSEWAY_COMM_CALL_TWO_LEVEL_MPI,
    CAUSEWAY_COMM_CALL_TWO_LEVEL_CHANNELS,
    // Staged through host memory: it is a non-blocking or persistent call.
    CAUSEWAY_COMM_CALL_NONBLOCKING,
    // It is short.
    CAUSEWAY_COMM_CALL_SHORT,
    // It is short for a two-level call.
    CAUSEWAY_COMM_CALL_SHORT_INTER_NODE,
    // There is no other algorithm for this call.
    CAUSEWAY_COMM_CALL_UNSUPPORTED,
    // It is a call of an intercommunicator, of one rank, or with a rank that is not in the job.
    CAUSEWAY_COMM_CALL_GROUP,
    // No kernel reduces such elements by that operation.
    CAUSEWAY_COMM_CALL_NO_KERNEL,
    // The ranks are on several nodes, and this call, or these ranks, have no two-level algorithm.
    CAUSEWAY_COMM_CALL_INTER_NODE,
    // The ranks have not agreed on it.
    CAUSEWAY_COMM_CALL_NO_AGREEMENT,
    // Some rank cannot: for its memory, or because it cannot reach the others.
    CAUSEWAY_COMM_CALL_RANK,
};
void causeway_comm_count_call(const char *name, int algorithm, uint32_t hosts, int is_leader, uint64_t bytes);

// Control messages between the ranks of a group that are all on one node, by slots in memory that each pair
// of ranks shares: as `exchange`, without the MPI. Each pair has so many slots, each of which holds so many
// bytes at a time.
enum { CAUSEWAY_COMM_CONTROL_SLOTS = 16, CAUSEWAY_COMM_CONTROL_BYTES = 496 };
struct causeway_comm_control;
// Opens a slot, below CAUSEWAY_COMM_CONTROL_SLOTS, that no other group has open at any of the ranks. All
// ranks must have closed their earlier group of that slot, since one may still have a message to read that
// another one has read. No rank has used the generation before. All ranks have called causeway_comm_is_local
// for all others. Null if a rank shares no memory with this one.
struct causeway_comm_control *causeway_comm_open_control(const uint32_t *members, uint32_t ranks,
                                                         uint32_t rank, uint32_t slot, uint32_t generation);
// Sends so many bytes to each rank and receives as many from each, in the order of ranks. 1 when all have
// been received: then the next call starts the next exchange. 0 before: it is to be called again with the
// same arguments. -1 if a rank has ended or sends another number of bytes: then the channel must be closed.
int causeway_comm_exchange_control(struct causeway_comm_control *control, const void *out, void *in,
                                   uint64_t bytes);
// Closes it. It may be null.
void causeway_comm_close_control(struct causeway_comm_control *control);

// The calls return 0 when they are complete, and -1 for an error. They return 1, at all ranks, and have done
// nothing if some rank has memory that is not on a GPU, or numbers to reduce at an address that is no
// multiple of their size, or cannot reach another rank. In place, `to` is `from`, which
// causeway_comm_alltoall does not support; for causeway_comm_allgather `from` is then the rank's own block of
// `to`.
int causeway_comm_allreduce(const struct causeway_comm_group *group, const void *from, void *to,
                            uint64_t count, int element, int operation);
// Only the root needs `to`.
int causeway_comm_reduce(const struct causeway_comm_group *group, const void *from, void *to, uint64_t count,
                         int element, int operation, uint32_t root);
// Counts are of elements, one for each rank.
int causeway_comm_reduce_scatter(const struct causeway_comm_group *group, const void *from, void *to,
                                 const uint64_t *counts, int element, int operation);
// A prefix reduction: inclusive, or exclusive (then the first rank gets nothing). Returns 1, too, if the
// ranks cannot map each other's memory.
int causeway_comm_scan(const struct causeway_comm_group *group, const void *from, void *to, uint64_t count,
                       int element, int operation, int is_exclusive);
// Sends a range to each rank and receives one from each, in the order of ranks; a range may be empty. The
// received ranges must not overlap; in place, a rank's own two are the same. `bytes` is a number that must be
// the same at all ranks, which compare it: 0 if the caller has none.
struct causeway_comm_range {
    void *address;
    uint64_t bytes;
};
int causeway_comm_exchange(const struct causeway_comm_group *group, const struct causeway_comm_range *sends,
                           const struct causeway_comm_range *receives, uint64_t bytes);
int causeway_comm_broadcast(const struct causeway_comm_group *group, void *buffer, uint64_t bytes,
                            uint32_t root);
// Bytes are those of one rank's block.
int causeway_comm_allgather(const struct causeway_comm_group *group, const void *from, void *to,
                            uint64_t bytes);
int causeway_comm_alltoall(const struct causeway_comm_group *group, const void *from, void *to,
                           uint64_t bytes);

// Calls in graphs.
//
// In a stream that is being captured, a call becomes kernels of the graph, which synchronize the GPUs of the
// ranks: a launch has no step at the host. All ranks capture the call, or none: they communicate while they
// capture, by `exchange`. They are on one node and at most 16, and map each other's memory: by cudaIPC, or as
// exported virtual memory. Memory that cannot be mapped so is an error, before anything is captured: the
// capture stays valid. An error of the driver while the call is captured may leave a part of it in the graph.
//
// - Graphs with calls of a group must be launched equally often and in the same order at all ranks, one at a
// time: two of
//   them, or two launches, must not run concurrently. Calls outside of graphs may be made in between.
// - The memory of a call must stay valid as long as its graph is launched, as with NCCL: kernels of other
// ranks access it.
//   Between the start and the end of a rank's launch, all ranks may access that memory.
// - A call in a graph completes at a rank when all ranks have done their part of it: then its results are
// valid, and its
//   memory may be written again.
// - A rank that ends, or that does not launch its graph within CAUSEWAY_COMM_GRAPH_TIMEOUT, ends the calls of
// all ranks: what
//   they, and later ones of the group, were to write is not written. causeway_comm_check_graphs reports that.
// - What the library holds for graphs, such as other ranks' memory, belongs to the group: its ranks,
// `exchange` and
//   `context`. causeway_comm_release_graphs, or causeway_comm_leave, releases it.

// Whether the calls in graphs of a group have succeeded so far: 0 or -1. To be called when a stream is
// synchronized.
int causeway_comm_check_graphs(const struct causeway_comm_group *group);
// No graph with calls of the group is launched any more, at any rank. 0 or -1.
int causeway_comm_release_graphs(const struct causeway_comm_group *group);

// Reduces two buffers on one GPU, the first operand first: to = from, operation, to. 0, or -1, or 1 if no
// kernel loads elements from such an address, which is no multiple of their size.
int causeway_comm_reduce_local(const void *from, void *to, uint64_t count, int element, int operation);

// Whether CAUSEWAY_COMM_CHECK asks for a consistency check of collective calls.
int causeway_comm_checks(void);

// Strided elements.

// The bytes of one element: runs of so many, from an offset on. The id is a number that no other list has,
// now or later; the extent is the distance from one element to the next.
struct causeway_comm_run {
    int64_t offset;
    uint64_t bytes;
};
struct causeway_comm_runs {
    uint64_t id, count;
    const struct causeway_comm_run *runs;
    int64_t extent;
};
// Packs so many bytes of elements at `typed`, which is on a GPU, into the contiguous memory at `packed`, or
// unpacks them. The last element may be partial. Waits for the copy. 0 or -1.
int causeway_comm_copy_runs(const struct causeway_comm_runs *list, void *typed, void *packed, uint64_t bytes,
                            int is_pack);
// A list that will not be used any more.
void causeway_comm_forget_runs(uint64_t id);
// Allocates scratch memory on the GPU of `gpu_address`. Null for an error. The handle releases it; it may be
// null.
void *causeway_comm_allocate(const void *gpu_address, uint64_t bytes, void **handle);
void causeway_comm_release(void *handle);
// The same in host memory, for copies to and from that GPU: pinned if possible. Null if so many bytes cannot
// be allocated so. The contents are undefined.
void *causeway_comm_allocate_host(const void *gpu_address, uint64_t bytes, void **handle);
void causeway_comm_release_host(void *handle);

// Names of version 5 and before, deprecated for one minor version.
#define CAUSEWAY_COMM_DEPRECATED(name) __attribute__((deprecated("use causeway_comm_" name))) static inline
CAUSEWAY_COMM_DEPRECATED("sync_memory") void causeway_comm_settle(const void *address) {
    causeway_comm_sync_memory(address);
}
CAUSEWAY_COMM_DEPRECATED("classify")
int causeway_comm_judge(const void *start, uint64_t length, uint64_t capacity, uint64_t *payload) {
    return causeway_comm_classify(start, length, capacity, payload);
}
CAUSEWAY_COMM_DEPRECATED("queue_unexpected")
void causeway_comm_keep(uint64_t communicator, int source, int tag, void *message) {
    causeway_comm_queue_unexpected(communicator, source, tag, message);
}
CAUSEWAY_COMM_DEPRECATED("take_unexpected")
void *causeway_comm_kept(uint64_t communicator, int source, int tag, int is_removed) {
    return causeway_comm_take_unexpected(communicator, source, tag, is_removed);
}
CAUSEWAY_COMM_DEPRECATED("is_host_accessible") int causeway_comm_is_reachable(const void *address) {
    return causeway_comm_is_host_accessible(address);
}
CAUSEWAY_COMM_DEPRECATED("is_local") int causeway_comm_is_near(uint32_t peer) {
    return causeway_comm_is_local(peer);
}
CAUSEWAY_COMM_DEPRECATED("allocate")
void *causeway_comm_take(const void *near, uint64_t bytes, void **handle) {
    return causeway_comm_allocate(near, bytes, handle);
}
CAUSEWAY_COMM_DEPRECATED("release") void causeway_comm_give_back(void *handle) {
    causeway_comm_release(handle);
}
CAUSEWAY_COMM_DEPRECATED("allocate_host")
void *causeway_comm_take_host(const void *near, uint64_t bytes, void **handle) {
    return causeway_comm_allocate_host(near, bytes, handle);
}
CAUSEWAY_COMM_DEPRECATED("release_host") void causeway_comm_give_back_host(void *handle) {
    causeway_comm_release_host(handle);
}

#ifdef __cplusplus
}
#endif

#endif
