// Queue pairs whose work requests kernels write themselves: the host's functions, in libcauseway_comm.so. For C
// and C++. The device's functions are in verbs.cuh.
//
//   causeway_nic *nic = causeway_nic_open(NULL, NULL);
//   causeway_cq *cq = causeway_cq_create(nic, 1024, CAUSEWAY_IN_HOST);
//   causeway_qp *qp = causeway_qp_create(nic, cq, cq, NULL);
//   causeway_qp_address(qp, mine);   // 32 bytes, which the program brings to the peer
//   causeway_qp_connect(qp, peers);
//   kernel<<<1, 32>>>((causeway::verbs::QueuePair *)causeway_qp_handle(qp), ...);
//
// Functions that say 0 or -1, and those that give null, leave the words of an error in causeway_comm_error, for
// the calling thread. Queues are made, reset and destroyed while no kernel uses them or their completion queues.
#ifndef CAUSEWAY_VERBS_H
#define CAUSEWAY_VERBS_H

#include "team.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct causeway_nic causeway_nic;
typedef struct causeway_cq causeway_cq;
typedef struct causeway_qp causeway_qp;
typedef struct causeway_mr causeway_mr;

// Who rings the doorbell. The kernel, where the GPU's driver lets it write the card's register; else a thread of
// the host forwards what kernels write to a word in pinned memory.
enum { CAUSEWAY_DOORBELL_AUTO = 0, CAUSEWAY_DOORBELL_DIRECT = 1, CAUSEWAY_DOORBELL_ASSISTED = 2 };

// 0 means the default: waits of at most 5 s, CAUSEWAY_DOORBELL_AUTO.
typedef struct causeway_nic_options {
    uint32_t limit_milliseconds; // of a kernel's wait
    uint32_t doorbell;
} causeway_nic_options;

// Opens an InfiniBand or RoCE card that the driver mlx5 runs, for the GPU of the calling thread's context: by its
// name (`mlx5_0`), or with null the fastest one whose port is active. Null where there is none.
causeway_nic *causeway_nic_open(const char *name, const causeway_nic_options *options);
// Everything of it has been destroyed.
void causeway_nic_close(causeway_nic *nic);
// Ends all waits of kernels for its queues, or lets them wait again.
void causeway_nic_abort(const causeway_nic *nic);
void causeway_nic_resume(const causeway_nic *nic);

// What the peers of queue pairs may do with memory.
enum { CAUSEWAY_REMOTE_WRITE = 1, CAUSEWAY_REMOTE_READ = 2, CAUSEWAY_REMOTE_ATOMIC = 4 };
// Lets the card use memory of the GPU (by a dma-buf or nvidia-peermem) or of the host, until it is deregistered:
// the program frees it afterwards. Writes its two keys. Null where the card or the kernel refuses.
causeway_mr *causeway_mr_register(const causeway_nic *nic, void *address, uint64_t bytes, uint32_t access,
                                  uint32_t *lkey, uint32_t *rkey);
void causeway_mr_deregister(causeway_mr *mr);

// A completion queue with space for so many entries, in memory CAUSEWAY_IN_HOST. CAUSEWAY_ON_DEVICE is refused.
// Null where it cannot be made.
causeway_cq *causeway_cq_create(const causeway_nic *nic, uint32_t entries, uint32_t memory);
// The address of the causeway::verbs::CompletionQueue for kernels.
uint64_t causeway_cq_handle(const causeway_cq *cq);
// Its queue pairs have been destroyed.
void causeway_cq_destroy(causeway_cq *cq);

// 0 means the default: 256 requests in each queue, 60 inline bytes.
typedef struct causeway_qp_options {
    uint32_t sends;
    uint32_t receives;
    uint32_t inline_bytes;
    uint32_t memory; // CAUSEWAY_IN_HOST, or 0 for it
} causeway_qp_options;

// A reliable connection's queue pair, whose sends complete in one queue and receives in another or the same one.
// It takes receives at once, and requests when it is connected. Null where it cannot be made.
causeway_qp *causeway_qp_create(const causeway_nic *nic, const causeway_cq *sends, const causeway_cq *receives,
                                const causeway_qp_options *options);
void causeway_qp_destroy(causeway_qp *qp);
// The address of the causeway::verbs::QueuePair for kernels.
uint64_t causeway_qp_handle(const causeway_qp *qp);
// Its number, as completions name it.
uint32_t causeway_qp_number(const causeway_qp *qp);
// CAUSEWAY_DOORBELL_DIRECT or CAUSEWAY_DOORBELL_ASSISTED.
uint32_t causeway_qp_doorbell(const causeway_qp *qp);

enum { CAUSEWAY_QP_ADDRESS_BYTES = 32 };
// What the peer is to get.
void causeway_qp_address(const causeway_qp *qp, void *address);
// Joins it with the queue pair of the peer's address. 0 or -1.
int causeway_qp_connect(const causeway_qp *qp, const void *address);
// Has all requests that are in it come back with the syndrome CAUSEWAY_MLX5_FLUSHED. 0 or -1.
int causeway_qp_flush(const causeway_qp *qp);
// Empties it, also after an error, to be connected again. Its completions have been polled. 0 or -1.
int causeway_qp_reset(const causeway_qp *qp);

// What the syndrome of a completion says.
const char *causeway_syndrome_text(uint32_t syndrome);

#ifdef __cplusplus
}
#endif

#endif
