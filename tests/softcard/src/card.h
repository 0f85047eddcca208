/* The soft card: what its two halves share. library.c stands in for libibverbs and makes queues; card.c is the card
 * itself, a thread that sees memory alone: rings, doorbell records, doorbells. */
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

struct softcard_qp {
    struct ibv_qp ibv; /* first */
    int is_used, access;
    uint32_t peer;
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

#endif
