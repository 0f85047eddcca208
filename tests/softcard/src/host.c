/* Requests that a program posts by the library, and completions that it polls: what the provider's own functions do. They
 * write the same rings that kernels write, and read the same completions. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"

static void put(struct softcard_qp *qp, uint32_t slot, uint32_t at, const void *segment) {
    size_t of_ring = (size_t)qp->send_count * 4;
    memcpy(qp->sends + (((size_t)slot * 4 + at) & (of_ring - 1)) * 16, segment, 16);
}

/* Writes one request; the slots that it takes, or 0 with `errno`. */
static uint32_t write_request(struct softcard_qp *qp, const struct ibv_send_wr *request) {
    static const unsigned operations[] = {CAUSEWAY_MLX5_RDMA_WRITE, CAUSEWAY_MLX5_RDMA_WRITE_IMM, CAUSEWAY_MLX5_SEND,
                                          CAUSEWAY_MLX5_SEND_IMM, CAUSEWAY_MLX5_RDMA_READ};
    if (request->opcode < 0 || request->opcode > 4 || request->num_sge > 1) {
        errno = EINVAL;
        return 0;
    }
    const struct ibv_sge *bytes = request->num_sge ? request->sg_list : NULL;
    int is_inline = bytes && request->send_flags & IBV_SEND_INLINE, is_send = request->opcode == 2 || request->opcode == 3;
    uint32_t segments = 1 + !is_send + (!bytes ? 0 : is_inline ? (4 + bytes->length + 15) / 16 : 1);
    uint32_t slots = (segments + 3) / 4, slot = qp->posted & 0xffff;
    if (is_inline && bytes->length > qp->max_inline) {
        errno = EINVAL;
        return 0;
    }
    if (qp->posted + slots - qp->reaped > qp->send_count) {
        errno = ENOMEM;
        return 0;
    }
    unsigned flags = (request->send_flags & IBV_SEND_SIGNALED ? CAUSEWAY_MLX5_CQ_UPDATE : 0) |
                     (request->send_flags & IBV_SEND_SOLICITED ? CAUSEWAY_MLX5_SOLICITED : 0) |
                     (request->send_flags & IBV_SEND_FENCE ? CAUSEWAY_MLX5_FENCE : 0);
    struct causeway_mlx5_segment segment =
        causeway_mlx5_control_segment(qp->ibv.qp_num, slot, operations[request->opcode], segments, flags,
                                      causeway_mlx5_be32(request->imm_data));
    uint32_t at = 0;
    put(qp, slot, at++, &segment);
    if (!is_send) {
        segment = causeway_mlx5_remote_segment(request->remote_addr, request->rkey);
        put(qp, slot, at++, &segment);
    }
    if (is_inline) {
        unsigned char padded[256] = {0};
        uint32_t length = causeway_mlx5_be32(bytes->length | CAUSEWAY_MLX5_INLINE);
        memcpy(padded, &length, 4);
        memcpy(padded + 4, (const void *)bytes->addr, bytes->length);
        for (uint32_t from = 0; at < segments; from += 16) put(qp, slot, at++, padded + from);
    } else if (bytes) {
        segment = causeway_mlx5_data_segment(bytes->addr, bytes->length, bytes->lkey);
        put(qp, slot, at, &segment);
    }
    qp->send_ids[slot & (qp->send_count - 1)] = request->wr_id;
    qp->send_ends[slot & (qp->send_count - 1)] = qp->posted + slots;
    return slots;
}

int softcard_post_send(struct ibv_qp *queue, struct ibv_send_wr *request, struct ibv_send_wr **refused) {
    struct softcard_qp *qp = (struct softcard_qp *)queue;
    int code = 0;
    uint64_t control = 0;
    for (; request && code == 0; request = request->next) {
        uint32_t slot = qp->posted & 0xffff, slots = write_request(qp, request);
        if (slots == 0) {
            code = errno;
            *refused = request;
            break;
        }
        memcpy(&control, qp->sends + (size_t)(slot & (qp->send_count - 1)) * 64, 8);
        qp->posted += slots;
    }
    if (control) {
        atomic_store((_Atomic uint32_t *)&qp->records[CAUSEWAY_MLX5_SEND_RECORD],
                     causeway_mlx5_be32(qp->posted & 0xffff));
        atomic_store((_Atomic uint64_t *)qp->doorbell, control);
    }
    return code;
}

int softcard_post_recv(struct ibv_qp *queue, struct ibv_recv_wr *request, struct ibv_recv_wr **refused) {
    struct softcard_qp *qp = (struct softcard_qp *)queue;
    for (; request; request = request->next) {
        uint32_t slot = qp->receives_posted;
        if (slot - qp->receives_reaped == qp->receive_count || request->num_sge > 1) {
            *refused = request;
            return ENOMEM;
        }
        unsigned char *entry = qp->receives + (size_t)(slot & (qp->receive_count - 1)) * qp->receive_bytes;
        struct causeway_mlx5_segment segment = causeway_mlx5_data_segment(0, 0, CAUSEWAY_MLX5_INVALID_KEY);
        if (request->num_sge)
            segment = causeway_mlx5_data_segment(request->sg_list->addr, request->sg_list->length,
                                                 request->sg_list->lkey);
        memcpy(entry, &segment, 16);
        qp->receive_ids[slot & (qp->receive_count - 1)] = request->wr_id;
        qp->receives_posted++;
        atomic_store((_Atomic uint32_t *)&qp->records[CAUSEWAY_MLX5_RECEIVE_RECORD],
                     causeway_mlx5_be32(qp->receives_posted & 0xffff));
    }
    return 0;
}

static int status_of(unsigned syndrome) {
    switch (syndrome) {
    case CAUSEWAY_MLX5_BAD_RESPONSE: return 7;
    case CAUSEWAY_MLX5_LOCAL_ACCESS: return 8;
    case CAUSEWAY_MLX5_REMOTE_INVALID_REQUEST: return 9;
    case CAUSEWAY_MLX5_REMOTE_ACCESS: return 10;
    case CAUSEWAY_MLX5_REMOTE_OPERATION: return 11;
    case CAUSEWAY_MLX5_RETRY_EXCEEDED: return 12;
    case CAUSEWAY_MLX5_RNR_RETRY_EXCEEDED: return 13;
    default: return (int)syndrome;
    }
}

int softcard_poll_cq(struct ibv_cq *queue, int limit, struct ibv_wc *into) {
    struct softcard_cq *cq = (struct softcard_cq *)queue;
    int count = 0;
    /* Queue pairs are not destroyed meanwhile. */
    pthread_mutex_lock(&softcard_lock);
    while (count < limit) {
        const unsigned char *entry = cq->buffer + (cq->polled & (cq->count - 1)) * 64;
        uint32_t tail = atomic_load_explicit((_Atomic uint32_t *)(entry + 60), memory_order_acquire);
        if (!causeway_mlx5_is_new(tail >> 24, cq->polled, cq->count)) break;
        const struct causeway_mlx5_cqe *cqe = (const void *)entry;
        cq->polled++;
        uint32_t number = causeway_mlx5_be32(cqe->operation_and_queue) & 0xffffff;
        unsigned code = tail >> 28, slot = (unsigned)(cqe->slot << 8 & 0xff00) | cqe->slot >> 8;
        struct softcard_qp *qp = softcard_find(number);
        if (!qp) continue;
        int is_send = code == CAUSEWAY_MLX5_CQE_REQUESTER || code == CAUSEWAY_MLX5_CQE_REQUESTER_ERROR;
        int is_error = code == CAUSEWAY_MLX5_CQE_REQUESTER_ERROR || code == CAUSEWAY_MLX5_CQE_RESPONDER_ERROR;
        struct ibv_wc *wc = &into[count++];
        *wc = (struct ibv_wc){.qp_num = number, .byte_len = causeway_mlx5_be32(cqe->bytes),
                              .status = is_error ? status_of(cqe->syndrome) : 0, .opcode = is_send ? 0 : 1 << 7};
        if (is_send) {
            wc->wr_id = qp->send_ids[slot & (qp->send_count - 1)];
            qp->reaped = qp->send_ends[slot & (qp->send_count - 1)];
        } else {
            wc->wr_id = qp->receive_ids[slot & (qp->receive_count - 1)];
            qp->receives_reaped++;
        }
    }
    atomic_store((_Atomic uint32_t *)cq->record, causeway_mlx5_be32((uint32_t)cq->polled & 0xffffff));
    pthread_mutex_unlock(&softcard_lock);
    return count;
}

int softcard_req_notify_cq(struct ibv_cq *queue, int is_solicited) {
    (void)is_solicited;
    pthread_mutex_lock(&softcard_lock);
    ((struct softcard_cq *)queue)->is_armed = 1;
    pthread_mutex_unlock(&softcard_lock);
    return 0;
}

/* The card has written a completion. */
void softcard_notify(struct softcard_cq *cq) {
    if (!cq->is_armed || !cq->ibv.channel) return;
    cq->is_armed = 0;
    uint64_t one = 1;
    /* One that is full is readable. */
    if (write(cq->ibv.channel->fd, &one, sizeof one) < 0) return;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context) {
    uint64_t count;
    if (read(channel->fd, &count, sizeof count) != sizeof count) return -1;
    *cq = NULL;
    *context = NULL;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }
