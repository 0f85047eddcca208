/* The card: a thread that watches doorbells, reads requests, checks every field, moves the bytes, and writes
 * completions with their owner bits. It knows nothing of who wrote the requests. */
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"

/* What is wrong with a request or a doorbell, for the test: the first one. */
static char complaint[256];
static atomic_int is_counting;
static atomic_ullong requests_done, doorbells_seen;

static void complain(const char *format, ...) {
    if (complaint[0]) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
}

/* What tests ask the card, by the names. */

/* The first thing that no real program may do, or an empty text. */
void softcard_complaint(char *text, size_t size) {
    pthread_mutex_lock(&softcard_lock);
    snprintf(text, size, "%s", complaint);
    complaint[0] = 0;
    pthread_mutex_unlock(&softcard_lock);
}

/* Of a queue pair's requests from now on the one with this index fails for this reason, as a peer that does not
 * answer makes one fail. */
int softcard_fail(uint32_t number, uint32_t index, uint32_t syndrome) {
    pthread_mutex_lock(&softcard_lock);
    struct softcard_qp *qp = softcard_find(number);
    if (qp) {
        qp->fault_in = index + 1;
        qp->fault = syndrome;
    }
    pthread_mutex_unlock(&softcard_lock);
    return qp ? 0 : -1;
}

/* The card completes requests without reading more than their length, for rates. */
void softcard_count(int is_so) { is_counting = is_so; }

uint64_t softcard_requests(void) { return requests_done; }
uint64_t softcard_doorbells(void) { return doorbells_seen; }

struct softcard_qp *softcard_find(uint32_t number) {
    for (int at = 0; at < MAX_QUEUES; at++)
        if (softcard_qps[at].is_used && softcard_qps[at].ibv.qp_num == number) return &softcard_qps[at];
    return NULL;
}

/* Memory. */

/* Whether bytes lie in memory of this key, for which `access` was allowed. */
static int reaches(const struct softcard_qp *qp, uint32_t key, uint64_t address, uint64_t bytes, int access,
                   int is_remote) {
    for (int at = 0; at < MAX_REGIONS; at++) {
        const struct softcard_region *region = &softcard_regions[at];
        uint64_t start = (uint64_t)region->ibv.addr;
        if (!region->is_used || (is_remote ? region->ibv.rkey : region->ibv.lkey) != key) continue;
        return region->ibv.pd == qp->ibv.pd && (region->access & access) == access && address >= start &&
               bytes <= region->ibv.length && address - start <= region->ibv.length - bytes;
    }
    return 0;
}

/* Completions. */

struct completion {
    unsigned code, syndrome, operation, slot, bytes, immediate;
};

static void complete(struct ibv_cq *queue, const struct softcard_qp *qp, struct completion what) {
    struct softcard_cq *cq = (struct softcard_cq *)queue;
    uint32_t consumed = causeway_mlx5_be32(atomic_load((_Atomic uint32_t *)cq->record));
    if (((uint32_t)cq->produced - consumed & 0xffffff) >= cq->count)
        return complain("completion queue %u of %u entries has overrun", cq->number, cq->count);
    struct causeway_mlx5_cqe cqe = {0};
    cqe.immediate = causeway_mlx5_be32(what.immediate);
    cqe.bytes = causeway_mlx5_be32(what.bytes);
    cqe.syndrome = (unsigned char)what.syndrome;
    cqe.vendor_syndrome = what.syndrome ? 0x88 : 0;
    cqe.operation_and_queue = causeway_mlx5_be32(what.operation << 24 | qp->ibv.qp_num);
    cqe.slot = (unsigned short)(what.slot << 8 | (what.slot >> 8 & 0xff));
    unsigned owner = (cq->produced & cq->count) != 0;
    cqe.opcode_and_owner = (unsigned char)(what.code << 4 | owner);
    unsigned char *entry = cq->buffer + (cq->produced & (cq->count - 1)) * 64;
    uint32_t tail;
    memcpy(&tail, (unsigned char *)&cqe + 60, 4);
    memcpy(entry, &cqe, 60);
    /* The byte with the owner bit is the last one that is written. */
    atomic_store_explicit((_Atomic uint32_t *)(entry + 60), tail, memory_order_release);
    cq->produced++;
    softcard_notify(cq);
}

/* What the card finds in a queue pair's records. */
static uint32_t record(const struct softcard_qp *qp, int which) {
    return causeway_mlx5_be32(atomic_load((_Atomic uint32_t *)&qp->records[which]));
}

static const struct causeway_mlx5_control *control_at(const struct softcard_qp *qp, uint32_t slot) {
    return (const void *)(qp->sends + (size_t)(slot & (qp->send_count - 1)) * 64);
}

static unsigned slots_of(const struct causeway_mlx5_control *control) {
    unsigned segments = causeway_mlx5_be32(control->queue_and_segments) & 0x3f;
    return segments ? (segments + 3) / 4 : 1;
}

static void fail(struct softcard_qp *qp, uint32_t slot, unsigned operation, unsigned syndrome) {
    complete(qp->ibv.send_cq, qp,
             (struct completion){.code = CAUSEWAY_MLX5_CQE_REQUESTER_ERROR, .syndrome = syndrome,
                                 .operation = operation, .slot = slot & 0xffff});
}

static void flush(struct softcard_qp *qp) {
    while (qp->done != qp->told) {
        const struct causeway_mlx5_control *control = control_at(qp, qp->done);
        fail(qp, qp->done, causeway_mlx5_be32(control->index_and_opcode) & 0xff, CAUSEWAY_MLX5_FLUSHED);
        qp->done = (qp->done + slots_of(control)) & 0xffff;
    }
    for (uint32_t posted = record(qp, CAUSEWAY_MLX5_RECEIVE_RECORD) & 0xffff; qp->received != posted;) {
        complete(qp->ibv.recv_cq, qp,
                 (struct completion){.code = CAUSEWAY_MLX5_CQE_RESPONDER_ERROR,
                                     .syndrome = CAUSEWAY_MLX5_FLUSHED, .slot = qp->received});
        qp->received = (qp->received + 1) & 0xffff;
    }
}

void softcard_end(struct softcard_qp *qp) {
    qp->ibv.state = IBV_QPS_ERR;
    flush(qp);
}

/* Requests. */

/* One request, read from the ring as it wraps. */
struct request {
    unsigned operation, segments, flags, immediate, slot;
    unsigned char bytes[16 * 64];
};

static const void *segment(const struct request *request, unsigned at) { return request->bytes + 16 * at; }

static int read_request(const struct softcard_qp *qp, uint32_t slot, struct request *request) {
    const struct causeway_mlx5_control *control = control_at(qp, slot);
    unsigned index = causeway_mlx5_be32(control->index_and_opcode);
    unsigned queue = causeway_mlx5_be32(control->queue_and_segments);
    request->slot = slot;
    request->operation = index & 0xff;
    request->segments = queue & 0xff;
    request->flags = control->flags;
    request->immediate = causeway_mlx5_be32(control->immediate);
    if (index >> 24) complain("slot %u: operation modifier %#x", slot, index >> 24);
    if ((index >> 8 & 0xffff) != slot) complain("slot %u says that it is %u", slot, index >> 8 & 0xffff);
    if (queue >> 8 != qp->ibv.qp_num) complain("slot %u: queue pair %#x", slot, queue >> 8);
    if (control->signature || control->stream[0] || control->stream[1]) complain("slot %u: a signature", slot);
    if (request->segments < 1 || request->segments > 63) complain("slot %u: %u segments", slot, request->segments);
    unsigned known = CAUSEWAY_MLX5_SOLICITED | CAUSEWAY_MLX5_CQ_UPDATE | CAUSEWAY_MLX5_FENCE;
    if (request->flags & ~known) complain("slot %u: flags %#x", slot, request->flags);
    if (complaint[0]) return -1;
    for (unsigned at = 0; at < request->segments; at++)
        memcpy(request->bytes + 16 * at,
               qp->sends + (((size_t)slot * 4 + at) & ((size_t)qp->send_count * 4 - 1)) * 16, 16);
    return 0;
}

/* This side's bytes of a request: where they are, or a syndrome. */
struct local {
    const unsigned char *bytes;
    uint32_t count;
    int is_inline;
};

static unsigned local_of(const struct softcard_qp *qp, const struct request *request, unsigned at, int is_filled,
                         struct local *local) {
    *local = (struct local){0};
    if (at == request->segments) return 0;
    const struct causeway_mlx5_data *data = segment(request, at);
    uint32_t count = causeway_mlx5_be32(data->bytes);
    if (count & CAUSEWAY_MLX5_INLINE) {
        count &= ~CAUSEWAY_MLX5_INLINE;
        if (is_filled || count == 0 || count > qp->max_inline || at + (4 + count + 15) / 16 != request->segments)
            return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
        *local = (struct local){(const unsigned char *)data + 4, count, 1};
        return 0;
    }
    if (at + 1 != request->segments || count == 0 || count > 1u << 30) return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
    uint64_t address = causeway_mlx5_be64(data->address);
    if (!reaches(qp, causeway_mlx5_be32(data->key), address, count, is_filled ? IBV_ACCESS_LOCAL_WRITE : 0, 0))
        return CAUSEWAY_MLX5_LOCAL_PROTECTION;
    *local = (struct local){(const unsigned char *)address, count, 0};
    return 0;
}

/* Hands the peer a message, or takes a receive of it for a write with immediate data (`bytes` is null then). -1 where
 * it has posted none. */
static int receive(struct softcard_qp *peer, const struct softcard_request *request, const unsigned char *bytes,
                   unsigned code) {
    if (peer->received == (record(peer, CAUSEWAY_MLX5_RECEIVE_RECORD) & 0xffff)) return -1;
    unsigned slot = peer->received, syndrome = 0;
    const unsigned char *entry = peer->receives + (size_t)(slot & (peer->receive_count - 1)) * peer->receive_bytes;
    uint32_t count = request->bytes, left = bytes ? count : 0;
    for (uint32_t at = 0; left != 0 && syndrome == 0; at += 16) {
        const struct causeway_mlx5_data *data = (const void *)(entry + at);
        if (at == peer->receive_bytes || causeway_mlx5_be32(data->key) == CAUSEWAY_MLX5_INVALID_KEY) {
            syndrome = CAUSEWAY_MLX5_LOCAL_LENGTH;
            break;
        }
        uint32_t size = causeway_mlx5_be32(data->bytes);
        uint32_t some = left < size ? left : size;
        uint64_t address = causeway_mlx5_be64(data->address);
        if (!reaches(peer, causeway_mlx5_be32(data->key), address, some, IBV_ACCESS_LOCAL_WRITE, 0))
            syndrome = CAUSEWAY_MLX5_LOCAL_PROTECTION;
        else memcpy((void *)address, bytes + (count - left), some);
        left -= some;
    }
    peer->received = (slot + 1) & 0xffff;
    int is_error = syndrome != 0;
    complete(peer->ibv.recv_cq, peer,
             (struct completion){.code = is_error ? CAUSEWAY_MLX5_CQE_RESPONDER_ERROR : code, .syndrome = syndrome,
                                 .slot = slot, .bytes = count, .immediate = request->immediate});
    if (is_error) softcard_end(peer);
    return is_error ? CAUSEWAY_MLX5_REMOTE_INVALID_REQUEST : 0;
}

/* What the peer's card gets of a request, with this side's memory: 0 or a syndrome. */
static unsigned prepare(const struct softcard_qp *qp, const struct request *request, struct softcard_request *sent,
                        struct local *local) {
    unsigned operation = request->operation, at = 1;
    int is_write = operation == CAUSEWAY_MLX5_RDMA_WRITE || operation == CAUSEWAY_MLX5_RDMA_WRITE_IMM;
    int is_send = operation == CAUSEWAY_MLX5_SEND || operation == CAUSEWAY_MLX5_SEND_IMM;
    int is_read = operation == CAUSEWAY_MLX5_RDMA_READ;
    int is_swap = operation == CAUSEWAY_MLX5_ATOMIC_CS, is_atomic = is_swap || operation == CAUSEWAY_MLX5_ATOMIC_FA;
    int has_immediate = operation == CAUSEWAY_MLX5_RDMA_WRITE_IMM || operation == CAUSEWAY_MLX5_SEND_IMM;
    if (!is_write && !is_send && !is_read && !is_atomic) {
        complain("slot %u: operation %#x", request->slot, operation);
        return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
    }
    if (request->immediate && !has_immediate) complain("slot %u: immediate data of another operation", request->slot);
    *sent = (struct softcard_request){.from = qp->ibv.qp_num, .to = qp->peer, .operation = operation,
                                      .immediate = request->immediate};
    softcard_gid(sent->sender, qp->ibv.context->device->name[5] - '0');
    if (!is_send) {
        if (request->segments < 2) return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
        const struct causeway_mlx5_remote *named = segment(request, at++);
        sent->address = causeway_mlx5_be64(named->address);
        sent->key = causeway_mlx5_be32(named->key);
        if (named->reserved) complain("slot %u: a remote segment with %#x behind", request->slot, named->reserved);
    }
    if (is_atomic) {
        if (request->segments != 4) return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
        const struct causeway_mlx5_atomic *atomic = segment(request, at++);
        if (!is_swap && atomic->compare) complain("slot %u: an addition that compares", request->slot);
        sent->swap_or_add = causeway_mlx5_be64(atomic->swap_or_add);
        sent->compare = causeway_mlx5_be64(atomic->compare);
    }
    unsigned syndrome = local_of(qp, request, at, is_read || is_atomic, local);
    sent->bytes = local->count;
    return syndrome;
}

int softcard_respond(const struct softcard_request *request, const unsigned char *in, unsigned char *out) {
    unsigned operation = request->operation;
    int is_write = operation == CAUSEWAY_MLX5_RDMA_WRITE || operation == CAUSEWAY_MLX5_RDMA_WRITE_IMM;
    int is_send = operation == CAUSEWAY_MLX5_SEND || operation == CAUSEWAY_MLX5_SEND_IMM;
    int is_read = operation == CAUSEWAY_MLX5_RDMA_READ;
    int is_swap = operation == CAUSEWAY_MLX5_ATOMIC_CS, is_atomic = is_swap || operation == CAUSEWAY_MLX5_ATOMIC_FA;
    int has_immediate = operation == CAUSEWAY_MLX5_RDMA_WRITE_IMM || operation == CAUSEWAY_MLX5_SEND_IMM;
    struct softcard_qp *peer = softcard_find(request->to);
    if (!peer || peer->peer != request->from || memcmp(peer->peer_gid, request->sender, 16) != 0 ||
        peer->ibv.state < IBV_QPS_RTR || peer->ibv.state == IBV_QPS_ERR)
        return CAUSEWAY_MLX5_RETRY_EXCEEDED;
    int needed = is_write ? IBV_ACCESS_REMOTE_WRITE : is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_ATOMIC;
    uint64_t remote = request->address;
    if (!is_send && (request->bytes || is_atomic)) {
        if (is_atomic && (request->bytes != 8 || remote % 8)) return CAUSEWAY_MLX5_REMOTE_INVALID_REQUEST;
        if (!(peer->access & needed) || !reaches(peer, request->key, remote, request->bytes, needed, 1)) {
            softcard_end(peer);
            return CAUSEWAY_MLX5_REMOTE_ACCESS;
        }
    }
    if (!in) in = (const unsigned char *)"";
    if (is_send)
        return receive(peer, request, in, has_immediate ? CAUSEWAY_MLX5_CQE_RECEIVE_IMM : CAUSEWAY_MLX5_CQE_RECEIVE);
    if (is_write) {
        if (has_immediate && peer->received == (record(peer, CAUSEWAY_MLX5_RECEIVE_RECORD) & 0xffff)) return -1;
        memcpy((void *)remote, in, request->bytes);
        return has_immediate ? receive(peer, request, NULL, CAUSEWAY_MLX5_CQE_WRITE_IMM) : 0;
    }
    if (is_read) {
        memcpy(out, (const void *)remote, request->bytes);
        return 0;
    }
    uint64_t before;
    _Atomic uint64_t *word = (_Atomic uint64_t *)remote;
    if (is_swap) {
        before = request->compare;
        atomic_compare_exchange_strong(word, &before, request->swap_or_add);
    } else {
        before = atomic_fetch_add(word, request->swap_or_add);
    }
    memcpy(out, &before, 8);
    return 0;
}

/* Carries out a request of a peer in this process: 0, a syndrome, or -1 where it is to be tried again later. */
static int carry_out(struct softcard_qp *qp, const struct request *request, uint32_t *bytes) {
    struct softcard_request sent;
    struct local local;
    unsigned syndrome = prepare(qp, request, &sent, &local);
    *bytes = sent.bytes;
    return syndrome ? (int)syndrome : softcard_respond(&sent, local.bytes, (unsigned char *)local.bytes);
}

/* Reads a doorbell, if there is one. */
static void look_at_doorbell(struct softcard_qp *qp) {
    uint64_t rung = atomic_exchange((_Atomic uint64_t *)qp->doorbell, 0);
    if (rung == 0) return;
    doorbells_seen++;
    uint32_t first = causeway_mlx5_be32((uint32_t)rung), second = causeway_mlx5_be32((uint32_t)(rung >> 32));
    uint32_t told = record(qp, CAUSEWAY_MLX5_SEND_RECORD);
    if (complaint[0]) return;
    if (second >> 8 != qp->ibv.qp_num) complain("a doorbell of queue pair %#x is rung at %#x", second >> 8, qp->ibv.qp_num);
    if (told > 0xffff) complain("a doorbell record of %#x", told);
    /* The record is written first, so it counts the request that the doorbell names at least. */
    uint32_t named = ((first >> 8) + ((second & 0x3f) + 3) / 4) & 0xffff;
    if ((told - named & 0xffff) > 0x7fff) complain("the doorbell names slot %u, the record says %u", named, told);
    if ((told - qp->done & 0xffff) > qp->send_count)
        complain("%u slots are told of a ring of %u", told - qp->done & 0xffff, qp->send_count);
    qp->told = told & 0xffff;
}

/* Whether a request is a read that the one behind it passes, as it may on real cards where it is not fenced. */
static int passes_read(const struct softcard_qp *qp, const struct request *request, struct request *next) {
    uint32_t slot = (qp->done + (request->segments + 3) / 4) & 0xffff;
    if (request->operation != CAUSEWAY_MLX5_RDMA_READ || slot == qp->told || qp->fault_in) return 0;
    if (read_request(qp, slot, next) != 0) return 0;
    int is_known = next->operation == CAUSEWAY_MLX5_RDMA_WRITE || next->operation == CAUSEWAY_MLX5_SEND;
    return is_known && !(next->flags & CAUSEWAY_MLX5_FENCE);
}

/* Completes the first request of a queue pair. Whether it goes on. */
static int finish(struct softcard_qp *qp, const struct request *request, int syndrome, uint32_t bytes) {
    unsigned slot = qp->done;
    requests_done++;
    qp->done = (qp->done + (request->segments + 3) / 4) & 0xffff;
    if (syndrome > 0) {
        fail(qp, slot, request->operation, (unsigned)syndrome);
        softcard_end(qp);
    } else if (request->flags & CAUSEWAY_MLX5_CQ_UPDATE) {
        complete(qp->ibv.send_cq, qp,
                 (struct completion){.code = CAUSEWAY_MLX5_CQE_REQUESTER, .operation = request->operation,
                                     .slot = slot, .bytes = bytes});
    }
    return syndrome == 0;
}

/* Hands the first request of a queue pair to the thread that brings it to another process. Whether it fails at once. */
static int send_elsewhere(struct softcard_qp *qp, const struct request *request) {
    struct local local;
    unsigned syndrome = prepare(qp, request, &qp->sending, &local);
    if (syndrome) return (int)syndrome;
    unsigned char *copy = NULL;
    unsigned operation = request->operation;
    int is_filled = operation == CAUSEWAY_MLX5_RDMA_READ || operation == CAUSEWAY_MLX5_ATOMIC_CS ||
                    operation == CAUSEWAY_MLX5_ATOMIC_FA;
    /* The program does not change bytes before their completion, but inline ones are the ring's. */
    if (!is_filled && local.count) {
        copy = malloc(local.count);
        if (!copy) return CAUSEWAY_MLX5_LOCAL_QP_OPERATION;
        memcpy(copy, local.bytes, local.count);
    }
    qp->sending_bytes = is_filled ? local.bytes : copy;
    qp->sending_segments = request->segments;
    qp->sending_flags = request->flags;
    qp->is_sending = 1;
    softcard_wake();
    return 0;
}

void softcard_finish_sent(struct softcard_qp *qp, int syndrome, const unsigned char *bytes) {
    struct request request = {.operation = qp->sending.operation, .segments = qp->sending_segments,
                              .flags = qp->sending_flags};
    qp->is_sending = 0;
    if (syndrome == 0 && bytes) memcpy((void *)qp->sending_bytes, bytes, qp->sending.bytes);
    finish(qp, &request, syndrome, qp->sending.bytes);
}

/* Carries out what a queue pair was told. Whether there was something. */
static int serve(struct softcard_qp *qp) {
    int has_worked = 0;
    look_at_doorbell(qp);
    /* Nobody is to wait for a card that has stopped: what the record counts is flushed. */
    if (complaint[0]) {
        uint32_t told = record(qp, CAUSEWAY_MLX5_SEND_RECORD) & 0xffff;
        if ((told - qp->done & 0xffff) <= qp->send_count) qp->told = told;
        softcard_end(qp);
    }
    if (qp->ibv.state == IBV_QPS_ERR) flush(qp);
    if (qp->ibv.state != IBV_QPS_RTS) return 0;
    if (qp->is_joined) {
        struct request request;
        if (qp->is_sending || qp->done == qp->told || complaint[0]) return qp->is_sending;
        if (read_request(qp, qp->done, &request) != 0) return 0;
        int is_faulty = qp->fault_in && --qp->fault_in == 0;
        int syndrome = is_faulty ? (int)qp->fault : send_elsewhere(qp, &request);
        if (syndrome != 0) finish(qp, &request, syndrome, 0);
        return 1;
    }
    for (int count = 0; count < 64 && qp->done != qp->told && !complaint[0]; count++) {
        struct request request, next;
        uint32_t bytes = 0, next_bytes = 0;
        int syndrome = 0, of_next = -1;
        if (is_counting) {
            const struct causeway_mlx5_control *control = control_at(qp, qp->done);
            request.operation = causeway_mlx5_be32(control->index_and_opcode) & 0xff;
            request.flags = control->flags;
            request.segments = 4 * slots_of(control);
        } else {
            if (read_request(qp, qp->done, &request) != 0) break;
            if (qp->fault_in && --qp->fault_in == 0) syndrome = (int)qp->fault;
            else {
                if (passes_read(qp, &request, &next)) of_next = carry_out(qp, &next, &next_bytes);
                syndrome = carry_out(qp, &request, &bytes);
            }
        }
        if (syndrome < 0) break;
        has_worked = 1;
        if (finish(qp, &request, syndrome, bytes) && of_next >= 0) finish(qp, &next, of_next, next_bytes);
    }
    return has_worked;
}

static void *run(void *unused) {
    (void)unused;
    /* It sleeps where it has had nothing to do for a while: tests that need no card run beside it. */
    for (unsigned idle = 0;; idle++) {
        int has_worked = 0;
        pthread_mutex_lock(&softcard_lock);
        for (int at = 0; at < MAX_QUEUES; at++)
            if (softcard_qps[at].is_used) has_worked |= serve(&softcard_qps[at]);
        pthread_mutex_unlock(&softcard_lock);
        if (has_worked) idle = 0;
        else if (idle < 10000) sched_yield();
        else usleep(50);
    }
    return NULL;
}

static void start(void) {
    const char *count = getenv("SOFTCARD_COUNT");
    if (count && *count == '1') is_counting = 1;
    const char *address = getenv("SOFTCARD_LISTEN");
    if (address && softcard_listen(address) != 0) complain("SOFTCARD_LISTEN=%s is no address to listen at", address);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) == 0) pthread_detach(thread);
}

void softcard_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}
