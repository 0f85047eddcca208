// libcauseway_comm.so: messages between the GPUs of a job's ranks.
//
// A process takes part in one job at a time. What lies on a GPU is offered by the sender and fetched by the
// receiver; how the receiver comes to know of an offer is the caller's affair (the interposer sends 79 bytes
// with MPI). Functions that say 0 or -1 leave the words of an error in causeway_comm_error, for the calling
// thread.
#ifndef CAUSEWAY_COMM_H
#define CAUSEWAY_COMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of these functions, and that of the library which is there: a program uses no other than the
// one it was built for.
#define CAUSEWAY_COMM_VERSION 5
uint32_t causeway_comm_version(void);

// Bytes of a descriptor.
#define CAUSEWAY_COMM_DESCRIPTOR 79

// The calling thread's last error.
const char *causeway_comm_error(void);

// Takes part in the job of this nonce (32 hexadecimal digits) as one of its ranks. Reads CAUSEWAY_COMM_*. 0
// or -1.
int causeway_comm_join(const char *nonce, uint32_t rank, uint32_t ranks);
// Has this process's part follow it into the container where it is now, after it has entered other namespaces (setns,
// unshare): messages in flight come to their end, those that follow wait, and this process and its peers look for each
// other again. Peers call nothing. Sends and fetches notice such a move by themselves within 0.1 s; this is for whoever
// does not want to wait for that. 0, or -1: then messages go on as before.
int causeway_comm_move(void);
// Ends that. Prints the report of CAUSEWAY_COMM_EXPLAIN.
void causeway_comm_leave(void);

// Whether this process has a driver: without one no address is that of memory on a GPU.
int causeway_comm_has_driver(void);
// Whether an address is that of memory on a GPU.
int causeway_comm_on_gpu(const void *address);
// Whether the processor reaches an address: that of memory of the host, or of managed memory.
int causeway_comm_is_reachable(const void *address);
// Waits until all that is pending in the legacy and the per-thread default stream is done, as cudaMemcpy does: in the
// context that the address is of, if it is one of a GPU, and in the calling thread's. To be called when a program hands
// memory over.
void causeway_comm_settle(const void *address);
// Copies between a GPU and any memory, and waits. 0 or -1.
int causeway_comm_copy(void *to, const void *from, uint64_t bytes);

// Whether a message to a peer is worth being offered, and the peer answers. Otherwise its bytes are to be
// sent, and are counted so. A short one is offered where the peer has the memory open that lies at the
// address, which may be null.
int causeway_comm_is_offered(uint32_t peer, const void *address, uint64_t bytes);
// Whether a message is short: whoever has offered one is to take it back (causeway_comm_detach) if it is not
// fetched within some microseconds.
int causeway_comm_is_short(uint64_t bytes);
// Counts a send of memory on a GPU to a peer, before it is offered, or a receive of such bytes that came with the MPI: by
// a call that waits for it, or another one. What is fetched is counted by that. CAUSEWAY_COMM_TRACE says after how many
// of one kind the traffic with a peer of this host is bound by latency, or by bandwidth: offers tell it to the receiver,
// whose choice of a channel depends on it.
void causeway_comm_count_operation(uint32_t peer, int is_blocking);
// Counts a message of which the call keeps a copy.
void causeway_comm_count_copied(uint32_t peer, uint64_t bytes);
// How many messages of a GPU's memory have gone one way so far: those that were received by a channel (ipc,
// vmm, staged, bar, rdma, loopback, tcp), or those whose bytes were sent with the MPI (mpi).
uint64_t causeway_comm_messages(const char *way);
// Offers memory on a GPU to a peer, and writes what the peer has to be told. The offer's number, or 0
// where no channel takes such memory: then the bytes are to be sent, and are counted so.
uint64_t causeway_comm_offer(uint32_t peer, const void *address, uint64_t bytes,
                             unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR]);
// 0 while the offer is under way, 1 when the peer has it, -1 when it has failed. To be asked until it is not
// 0.
int causeway_comm_offer_state(uint64_t offer);
// Gives the memory back where the peer has not begun to fetch it, and keeps a copy: the offer is then done.
void causeway_comm_detach(uint64_t offer);

// What has come for a receive with room for so many bytes: its payload, a payload that is too long, or a
// descriptor. Writes the payload's bytes.
enum { CAUSEWAY_COMM_PAYLOAD = 0, CAUSEWAY_COMM_TOO_LONG = 1, CAUSEWAY_COMM_ELSEWHERE = 2 };
int causeway_comm_judge(const void *start, uint64_t length, uint64_t room, uint64_t *payload);
// Fetches what a descriptor tells of, if there is room for it, and waits until it is there. 0 or -1.
int causeway_comm_fetch(const void *descriptor, void *to, int on_gpu, uint64_t room, int is_blocking);
// The same for a program that does not wait: 0 where it is there, 1 where it is under way, or -1. Under way
// it has a number, by which the second function is to be asked until it says something else than 1; until
// then the memory is not the program's.
int causeway_comm_start_fetch(const void *descriptor, void *to, int on_gpu, uint64_t room, uint64_t *number);
int causeway_comm_fetch_state(uint64_t number);

// Messages that probes took out, by communicator, source and tag (-1: any), in that order.
void causeway_comm_keep(uint64_t communicator, int source, int tag, void *message);
void *causeway_comm_kept(uint64_t communicator, int source, int tag, int is_taken);

// Memory of other ranks that is used where it lies, for as long as a caller wants.

// Lets a peer open memory on a GPU, until it is hidden, and writes what the peer has to be told. A number, or 0 where
// the peer is not reached or cannot open such memory.
uint64_t causeway_comm_show(uint32_t peer, const void *address, uint64_t bytes,
                            unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR]);
// No peer opens it any more. Who has it open keeps it.
void causeway_comm_hide(uint64_t number);
// Opens the memory that a descriptor tells of, for the GPU on which `near` lies, or the calling thread's where that is
// null or not on one. Its address here, or null. The holder closes it.
void *causeway_comm_open(const unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR], const void *near, void **holder);
// Counts bytes that were copied to or from it, for the report.
void causeway_comm_count_open(const void *holder, uint64_t bytes);
// Closes it, when nothing uses it any more; null is nothing.
void causeway_comm_close(void *holder);

// Collective calls on memory of GPUs.
//
// A group is some ranks of the job, which call together and in the same order. How they tell each other where
// their memory is is the caller's affair: `exchange` gives so many bytes to each rank of the group, and gets
// as many from each, in the order of ranks (as MPI_Alltoall of bytes); 0, or a code of an error.
struct causeway_comm_group {
    // This rank's number in the group, and how many there are.
    uint32_t rank, ranks;
    // The job's ranks.
    const uint32_t *members;
    int (*exchange)(void *context, const void *out, void *in, uint64_t bytes);
    void *context;
    // A CUDA stream whose work until now comes first, or null. What a call has done is done when it returns. In
    // a stream that is being captured a call becomes a part of the graph: see "Calls in graphs".
    void *stream;
    // Reductions of fewer bytes at each rank are not made (they give 1) where the ranks cannot open each other's
    // memory and would have to fetch it; the same at all ranks. 0: all of them are made.
    uint64_t fetched_from;
};

// Elements. Pairs are as MPI's: a number and an int, with the gaps that C makes.
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
// Whether such elements are reduced by kernels.
int causeway_comm_reduces(int element, int operation);

// From how many bytes on calls are worth being made in this way (CAUSEWAY_COMM_COLLECTIVE_THRESHOLD); reductions
// are from a sixteenth of it on where nothing has to be fetched.
uint64_t causeway_comm_direct_bytes(void);

// Whether a rank of the job is reached on this host: it answers by what both share there, and not over a
// network. To be asked when that rank has joined, as after a barrier.
int causeway_comm_is_near(uint32_t peer);
// Whether ranks of other hosts may be reached over a network (CAUSEWAY_COMM_HOSTS).
int causeway_comm_uses_network(void);
// Whether the report of CAUSEWAY_COMM_EXPLAIN is asked for.
int causeway_comm_explains(void);
// Counts a collective call for that report: by its name, and by the way that it went, with the reason where it
// went by way of the host's memory. `hosts` is how many hosts its ranks are on, where that is known and more
// than one; `leads` says whether this rank is its host's leader, and `bytes` what it sends and receives.
enum {
    // From GPU to GPU.
    CAUSEWAY_COMM_CALL_DIRECT = 0,
    // In two levels: leaders of hosts heard each other by the MPI, or by channels.
    CAUSEWAY_COMM_CALL_LEADERS_BY_MPI,
    CAUSEWAY_COMM_CALL_LEADERS_BY_CHANNELS,
    // By way of the host's memory, as it is not the blocking form.
    CAUSEWAY_COMM_CALL_LATER,
    // As it is short.
    CAUSEWAY_COMM_CALL_SHORT,
    // As it is short for one between hosts, which would be made in two levels.
    CAUSEWAY_COMM_CALL_SHORT_OF_HOSTS,
    // As no other way is built for this call.
    CAUSEWAY_COMM_CALL_NOT_BUILT,
    // As it is between two groups, by one rank, or with one that has no part in the job.
    CAUSEWAY_COMM_CALL_GROUP,
    // As no kernel reduces such elements by that operation.
    CAUSEWAY_COMM_CALL_NO_KERNEL,
    // As the ranks are on several hosts, and this call, or these ranks, have no two levels.
    CAUSEWAY_COMM_CALL_HOSTS,
    // As nobody asked the other ranks about it.
    CAUSEWAY_COMM_CALL_UNASKED,
    // As some rank cannot: for its memory, or since it does not reach the others.
    CAUSEWAY_COMM_CALL_RANK,
};
void causeway_comm_count_call(const char *name, int way, uint32_t hosts, int leads, uint64_t bytes);

// Words between the ranks of a group that are all of one host, by mailboxes in memory that each two of them share:
// as `exchange`, without the MPI. Each two ranks have so many mailboxes, which take so many bytes at once.
enum { CAUSEWAY_COMM_MAILBOXES = 16, CAUSEWAY_COMM_MAIL_BYTES = 496 };
struct causeway_comm_mail;
// Opens a mailbox, below CAUSEWAY_COMM_MAILBOXES, that no other group has open at any of the ranks: all of them
// have closed what they had, since one may still have words to read that another one has read. No rank has given
// the generation before. Each one must have been asked for by causeway_comm_is_near at all others. Null where a
// rank shares no memory with this one.
struct causeway_comm_mail *causeway_comm_open_mail(const uint32_t *members, uint32_t ranks, uint32_t me,
                                                   uint32_t mailbox, uint32_t generation);
// Gives so many bytes to each rank and gets as many from each, in the order of ranks. 1 when all have come. Then
// the next call is the next exchange; until then it gives 0, and is to be called again with the same. -1 where a
// rank has ended or gives another number of bytes: then the mail is of no more use.
int causeway_comm_exchange_mail(struct causeway_comm_mail *mail, const void *out, void *in, uint64_t bytes);
// Closes it; null is nothing.
void causeway_comm_close_mail(struct causeway_comm_mail *mail);

// All these give 0 when they are done, and -1 for an error. Where not all ranks have their memory on a GPU,
// numbers that are reduced lie at an address that is no multiple of their size, or some ranks are not reached, they
// have done nothing and give 1, at all ranks. In place: `to` is `from`, which
// causeway_comm_alltoall does not take; for causeway_comm_allgather `from` is the rank's own block of `to`.
int causeway_comm_allreduce(const struct causeway_comm_group *group, const void *from, void *to,
                            uint64_t count, int element, int operation);
// Only the root needs `to`.
int causeway_comm_reduce(const struct causeway_comm_group *group, const void *from, void *to, uint64_t count,
                         int element, int operation, uint32_t root);
// Counts are of elements, one for each rank.
int causeway_comm_reduce_scatter(const struct causeway_comm_group *group, const void *from, void *to,
                                 const uint64_t *counts, int element, int operation);
// Each rank gets the elements of the ranks up to it put together: with its own, or without them where the
// call is exclusive (then the first one gets nothing). Where memory cannot be opened at all ranks it gives 1,
// too.
int causeway_comm_scan(const struct causeway_comm_group *group, const void *from, void *to, uint64_t count,
                       int element, int operation, int is_exclusive);
// Gives each rank a range and takes one from each, in the order of ranks; a range of no bytes is none. No range
// that is taken overlaps another one; in place, a rank's own two are the same. `bytes` is a number that must be
// the same at all ranks, for they compare it: 0, where the caller has none.
struct causeway_comm_range {
    void *address;
    uint64_t bytes;
};
int causeway_comm_exchange(const struct causeway_comm_group *group, const struct causeway_comm_range *gives,
                           const struct causeway_comm_range *takes, uint64_t bytes);
int causeway_comm_broadcast(const struct causeway_comm_group *group, void *buffer, uint64_t bytes,
                            uint32_t root);
// Bytes are those of one rank's block.
int causeway_comm_allgather(const struct causeway_comm_group *group, const void *from, void *to,
                            uint64_t bytes);
int causeway_comm_alltoall(const struct causeway_comm_group *group, const void *from, void *to,
                           uint64_t bytes);

// Calls in graphs.
//
// In a stream that is being captured a call becomes kernels of the graph, by which the ranks' GPUs meet: a launch
// has no step at the host. All ranks capture the call, or none: the ranks talk to each other while they capture,
// by `exchange`. They are of one host and at most 16, and open each other's memory: by cudaIPC, or as exported
// virtual memory. Memory that cannot be opened so is an error, before which nothing has been captured: the capture
// stays valid. An error of the driver while the call is captured may leave a part of it in the graph.
//
// - Graphs with calls of a group are launched equally often and in the same order at all ranks, one at a time: two
//   of them, or two launches, do not run at the same time. Calls outside of graphs may come in between.
// - The memory of a call stays as long as its graph is launched. To free it before is the caller's fault, as with
//   NCCL: kernels of other ranks go on to use it. Between a rank's launch and its end the memory belongs to all.
// - A call in a graph ends at a rank when all ranks have done their part of it: then its results are there, and its
//   memory may be written again.
// - A rank that ends, or that does not launch its graph within CAUSEWAY_COMM_GRAPH_TIMEOUT, ends the calls of all:
//   what they, and later ones of the group, were to write is not there. causeway_comm_check_graphs tells.
// - What is kept for graphs, such as other ranks' memory, belongs to the group: its ranks, `exchange` and
//   `context`. It goes by causeway_comm_release_graphs, or when this process leaves the job.

// Whether the calls in graphs of a group are well so far: 0 or -1. To be asked when a stream has done its work.
int causeway_comm_check_graphs(const struct causeway_comm_group *group);
// No graph with calls of the group is launched any more, at any rank. 0 or -1.
int causeway_comm_release_graphs(const struct causeway_comm_group *group);

// Puts elements of two places on a GPU together, the first place's first: to = from, operation, to. 0, or -1, or 1
// where no kernel loads elements from such an address, which is no multiple of their size.
int causeway_comm_reduce_local(const void *from, void *to, uint64_t count, int element, int operation);

// Whether CAUSEWAY_COMM_CHECK asks for a look at what other ranks call.
int causeway_comm_checks(void);

// Elements with gaps.

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
// Copies so many bytes of elements at `typed`, which is on a GPU, to `packed` where they lie one behind the
// other, or back. Of the last element there may be a part. Waits until they are there. 0 or -1.
int causeway_comm_copy_runs(const struct causeway_comm_runs *list, void *typed, void *packed, uint64_t bytes,
                            int is_pack);
// A list that will not be used any more.
void causeway_comm_forget_runs(uint64_t id);
// Memory for a while, on the GPU on which other memory is, or null. The holder gives it back.
void *causeway_comm_take(const void *near, uint64_t bytes, void **holder);
void causeway_comm_give_back(void *holder);
// The same in the host, for copies to and from that GPU: pinned where it can be. Null where so many bytes are
// not to be had so. What it holds is not said.
void *causeway_comm_take_host(const void *near, uint64_t bytes, void **holder);
void causeway_comm_give_back_host(void *holder);

#ifdef __cplusplus
}
#endif

#endif
