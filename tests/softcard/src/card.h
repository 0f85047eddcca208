/* The soft card: what its parts share. library.c stands in for libibverbs and makes queues; card.c is the card
 * itself, a thread that sees memory alone: rings, doorbell records, doorbells; wire.c joins it with cards of other
 * processes. */
#ifndef SOFTCARD_CARD_H
#define SOFTCARD_CARD_H

#include "abi.h"
#include "mlx5.h"

enum { MAX_QUEUES = 256, MAX_REGIONS = 1024, PAGE = 4096 };

struct softcard_cq {
    struct ibv_cq ibv; /* first */
    int is_used;
    unsigned char *buffer;
    uint32_t count, *record;
    uint64_t produced; /* completions so far */
    uint32_t number;
    /* Of programs that poll by the library: completions that they have taken, and whether they wait for one. */
    uint64_t polled;
    int is_armed;
};

/* A request as the peer's card gets it. A negative answer means that no receive is posted. */
struct softcard_request {
    uint32_t from, to, operation, immediate, key, bytes;
    uint64_t address, swap_or_add, compare;
    unsigned char sender[16];
};

struct softcard_qp {
    struct ibv_qp ibv; /* first */
    int is_used, access;
    uint32_t peer;
    unsigned char peer_gid[16];
    /* Of a peer in another process: which of the queue pairs with this memory it is, whether its thread has a request,
     * and how often one is sent again for which there is no receive (7: without end). */
    uint64_t generation;
    int is_joined, is_sending, rnr_retries;
    struct softcard_request sending;
    const unsigned char *sending_bytes;
    uint32_t sending_segments, sending_flags;
    unsigned char *sends, *receives;
    uint32_t send_count, receive_count, receive_bytes, max_inline;
    uint32_t *records;
    volatile uint64_t *doorbell;
    /* Slots: told by the doorbell, done. Of receives the record alone tells. */
    uint32_t told, done, received;
    /* Of programs that post by the library: slots that they have written, and that are free again; what requests are
     * called, and where they end; the same of receives. */
    uint32_t posted, reaped, receives_posted, receives_reaped;
    uint64_t *send_ids, *receive_ids;
    uint32_t *send_ends;
    uint32_t fault_in, fault; /* so many requests from now one fails for this reason */
};

struct softcard_region {
    struct ibv_mr ibv; /* first */
    int is_used, access;
};

extern struct softcard_cq softcard_cqs[MAX_QUEUES];
extern struct softcard_qp softcard_qps[MAX_QUEUES];
extern struct softcard_region softcard_regions[MAX_REGIONS];
/* Held while the card works, and while queues are made and destroyed. */
extern pthread_mutex_t softcard_lock;

/* What programs call by a context's functions. */
int softcard_poll_cq(struct ibv_cq *queue, int limit, struct ibv_wc *into);
int softcard_req_notify_cq(struct ibv_cq *queue, int is_solicited);
int softcard_post_send(struct ibv_qp *queue, struct ibv_send_wr *request, struct ibv_send_wr **refused);
int softcard_post_recv(struct ibv_qp *queue, struct ibv_recv_wr *request, struct ibv_recv_wr **refused);
void softcard_notify(struct softcard_cq *cq);

void softcard_start(void);
/* To the state of an error: everything that is in the queue pair is flushed. */
void softcard_end(struct softcard_qp *qp);
struct softcard_qp *softcard_find(uint32_t number);

/* Carries out a request of a peer: 0, a syndrome, or -1 where no receive is posted. `in` is what it brings, and `out`
 * gets what it reads. */
int softcard_respond(const struct softcard_request *request, const unsigned char *in, unsigned char *out);
/* Completes the request that was sent, whose bytes have come if it reads. */
void softcard_finish_sent(struct softcard_qp *qp, int syndrome, const unsigned char *bytes);

/* Cards of other processes: the place of this process in all GIDs, and whether a GID is of another one. */
void softcard_gid(unsigned char gid[16], int card);
int softcard_is_elsewhere(const unsigned char gid[16]);
int softcard_listen(const char *address);
/* Starts the thread of a queue pair whose peer is elsewhere. -1 where there is none. */
int softcard_join(struct softcard_qp *qp);
/* Wakes it, for there is a request, or the queue pair has ended. */
void softcard_wake(void);

#endif
