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

// Bytes of a descriptor.
#define CAUSEWAY_COMM_DESCRIPTOR 79

// The calling thread's last error.
const char *causeway_comm_error(void);

// Takes part in the job of this nonce (32 hexadecimal digits) as one of its ranks. Reads CAUSEWAY_COMM_*. 0
// or -1.
int causeway_comm_join(const char *nonce, uint32_t rank, uint32_t ranks);
// Ends that. Prints the report of CAUSEWAY_COMM_EXPLAIN.
void causeway_comm_leave(void);

// Whether an address is that of memory on a GPU.
int causeway_comm_on_gpu(const void *address);
// Waits until what the calling thread has had copied to or from memory on a GPU by calls that have returned is done: of small
// copies the driver returns before. Before memory is received into; sends and copies do so themselves.
void causeway_comm_settle(const void *address);
// Copies between a GPU and any memory, and waits. 0 or -1.
int causeway_comm_copy(void *to, const void *from, uint64_t bytes);

// Whether a message to a peer is worth being offered, and the peer answers. Otherwise its bytes are to be
// sent, and are counted so.
int causeway_comm_is_offered(uint32_t peer, uint64_t bytes);
// Counts a message of which the call keeps a copy.
void causeway_comm_count_copied(uint32_t peer, uint64_t bytes);
// How many messages of a GPU's memory have gone one way so far: those that were received by a channel (ipc,
// vmm, staged), or those whose bytes were sent with the MPI (mpi).
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

// Messages that probes took out, by communicator, source and tag (-1: any), in that order.
void causeway_comm_keep(uint64_t communicator, int source, int tag, void *message);
void *causeway_comm_kept(uint64_t communicator, int source, int tag, int is_taken);

#ifdef __cplusplus
}
#endif

#endif
