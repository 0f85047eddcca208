/* The soft card: what its two halves share. library.c stands in for libibverbs and makes queues; card.c is the card
 * itself, a thread that sees memory alone: rings, doorbell records, doorbells. */
#ifndef SOFTCARD_CARD_H
#define SOFTCARD_CARD_H

#include "abi.h"
#include "mlx5.h"

enum { MAX_QUEUES = 64, MAX_REGIONS = 1024, PAGE = 4096 };

struct softcard_cq {
    struct ibv_cq ibv; /* first */
    int is_used;
    unsigned char *buffer;
    uint32_t count, *record;
    uint64_t produced; /* completions so far */
    uint32_t number;
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

void softcard_start(void);
/* To the state of an error: everything that is in the queue pair is flushed. */
void softcard_end(struct softcard_qp *qp);
struct softcard_qp *softcard_find(uint32_t number);

#endif
