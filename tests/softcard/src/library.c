/* libibverbs and libmlx5 of the soft card: what a program calls to open it, to register memory and to make queues.
 * Everything lies where rdma-core's own provider would put it, and is found by mlx5dv_init_obj. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "card.h"

struct softcard_cq softcard_cqs[MAX_QUEUES];
struct softcard_qp softcard_qps[MAX_QUEUES];
struct softcard_region softcard_regions[MAX_REGIONS];
pthread_mutex_t softcard_lock = PTHREAD_MUTEX_INITIALIZER;

/* Two cards, joined with each other. */
static struct ibv_device cards[2];
static struct ibv_device *card_list[3] = {&cards[0], &cards[1], NULL};
static uint32_t next_number = 0x100;
static uint64_t next_generation;

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(void *memory, size_t bytes) { munmap(memory, bytes); }

static void *(*allocate)(size_t) = map;
static void (*release)(void *, size_t) = unmap;

/* Where rings, records and registers lie, in whole pages of zeros: a software GPU reaches some memory only. */
void softcard_use_memory(void *(*new_allocate)(size_t), void (*new_release)(void *, size_t)) {
    allocate = new_allocate;
    release = new_release;
}

static uint32_t power_of_two(uint32_t least) {
    uint32_t count = 1;
    while (count < least) count *= 2;
    return count;
}

static int not_here(void) { return ENOSYS; }

/* Whether this process has memory there, as the kernel finds out where it locks the pages. */
static int is_mapped(const char *address, size_t length) {
    char bytes[2];
    struct iovec here[2] = {{&bytes[0], 1}, {&bytes[1], 1}};
    struct iovec there[2] = {{(void *)address, 1}, {(void *)(address + length - 1), 1}};
    return length == 0 || process_vm_readv(getpid(), here, 2, there, 2, 0) == 2;
}

struct ibv_device **ibv_get_device_list(int *count) {
    for (int at = 0; at < 2; at++) {
        snprintf(cards[at].name, sizeof cards[at].name, "mlx5_%d", at);
        cards[at].node_type = 1;
    }
    if (count) *count = 2;
    return card_list;
}

void ibv_free_device_list(struct ibv_device **list) { (void)list; }

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct ibv_context *context = calloc(1, sizeof *context);
    if (!context) return NULL;
    context->device = device;
    for (size_t at = 0; at < sizeof context->ops / sizeof *context->ops; at++) context->ops[at] = not_here;
    context->ops[11] = (softcard_operation)(void *)softcard_poll_cq;
    context->ops[12] = (softcard_operation)(void *)softcard_req_notify_cq;
    context->ops[25] = (softcard_operation)(void *)softcard_post_send;
    context->ops[26] = (softcard_operation)(void *)softcard_post_recv;
    softcard_start();
    return context;
}

int ibv_close_device(struct ibv_context *context) {
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes) {
    (void)context;
    memset(attributes, 0, sizeof *attributes);
    attributes->vendor_id = 0x15b3;
    attributes->max_mr_size = UINT64_MAX;
    attributes->max_qp = attributes->max_cq = MAX_QUEUES;
    attributes->max_qp_wr = 1 << 15;
    attributes->max_cqe = 1 << 22;
    attributes->max_mr = MAX_REGIONS;
    attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
    attributes->phys_port_cnt = 1;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *port) {
    if (number != 1) return EINVAL;
    memset(port, 0, sizeof *port);
    port->state = 4;
    port->max_mtu = port->active_mtu = 5;
    port->gid_tbl_len = 1;
    port->max_msg_sz = 1u << 30;
    port->lid = (uint16_t)(1 + (context->device - cards));
    port->active_width = 2;
    port->active_speed = 128;
    port->link_layer = 1;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, unsigned char gid[16]) {
    (void)port;
    if (index != 0) return EINVAL;
    softcard_gid(gid, (int)(context->device - cards));
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *domain = calloc(1, sizeof *domain);
    if (domain) domain->context = context;
    return domain;
}

int ibv_dealloc_pd(struct ibv_pd *domain) {
    free(domain);
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t length, int access) {
    struct ibv_mr *made = NULL;
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
        errno = EINVAL;
        return NULL;
    }
    if (!is_mapped(address, length)) {
        errno = EFAULT;
        return NULL;
    }
    pthread_mutex_lock(&softcard_lock);
    for (uint32_t at = 0; !made && at < MAX_REGIONS; at++) {
        struct softcard_region *region = &softcard_regions[at];
        if (region->is_used) continue;
        region->is_used = 1;
        region->access = access;
        /* Keys are never the same twice, and never each other's. */
        uint32_t key = at << 8 | (next_number++ & 0x7f) << 1;
        region->ibv = (struct ibv_mr){.context = domain->context, .pd = domain, .addr = address, .length = length,
                                      .lkey = 0x01000000 | key, .rkey = 0x02000000 | key | 1};
        made = &region->ibv;
    }
    pthread_mutex_unlock(&softcard_lock);
    if (!made) errno = ENOMEM;
    return made;
}

int ibv_dereg_mr(struct ibv_mr *region) {
    pthread_mutex_lock(&softcard_lock);
    ((struct softcard_region *)region)->is_used = 0;
    pthread_mutex_unlock(&softcard_lock);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    if (channel) *channel = (struct ibv_comp_channel){.context = context, .fd = eventfd(0, EFD_CLOEXEC)};
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                             struct ibv_comp_channel *channel, int vector) {
    (void)vector;
    struct softcard_cq *cq = NULL;
    pthread_mutex_lock(&softcard_lock);
    for (int at = 0; !cq && at < MAX_QUEUES; at++)
        if (!softcard_cqs[at].is_used) cq = &softcard_cqs[at];
    /* One more than was asked for, as the provider has it. */
    uint32_t count = power_of_two((uint32_t)entries + 1);
    unsigned char *memory = cq ? allocate((size_t)count * 64 + PAGE) : NULL;
    if (memory) {
        memset(cq, 0, sizeof *cq);
        cq->ibv = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context,
                                  .cqe = (int)count - 1};
        cq->is_used = 1;
        cq->count = count;
        cq->record = (uint32_t *)memory;
        cq->buffer = memory + PAGE;
        cq->number = next_number++;
        for (uint32_t at = 0; at < count; at++)
            cq->buffer[at * 64 + 63] = CAUSEWAY_MLX5_CQE_INVALID << 4;
    }
    pthread_mutex_unlock(&softcard_lock);
    if (!memory) errno = ENOMEM;
    return memory ? &cq->ibv : NULL;
}

int ibv_destroy_cq(struct ibv_cq *queue) {
    struct softcard_cq *cq = (struct softcard_cq *)queue;
    pthread_mutex_lock(&softcard_lock);
    cq->is_used = 0;
    release(cq->record, (size_t)cq->count * 64 + PAGE);
    pthread_mutex_unlock(&softcard_lock);
    return 0;
}

static size_t bytes_of_sends(const struct softcard_qp *qp) { return (size_t)qp->send_count * 64; }

static size_t bytes_of_receives(const struct softcard_qp *qp) {
    size_t bytes = (size_t)qp->receive_count * qp->receive_bytes;
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* A page with the records, one with the doorbell, and the rings: receives before sends. */
static size_t bytes_of(const struct softcard_qp *qp) {
    return 2 * PAGE + bytes_of_receives(qp) + bytes_of_sends(qp);
}

static struct ibv_qp *make(struct ibv_pd *domain, struct ibv_cq *sends, struct ibv_cq *receives, struct ibv_qp_cap *cap) {
    struct softcard_qp *qp = NULL;
    pthread_mutex_lock(&softcard_lock);
    for (int at = 0; !qp && at < MAX_QUEUES; at++)
        if (!softcard_qps[at].is_used) qp = &softcard_qps[at];
    unsigned char *memory = NULL;
    if (qp) {
        memset(qp, 0, sizeof *qp);
        cap->max_inline_data = (cap->max_inline_data + 4 + 15) / 16 * 16 - 4;
        uint32_t slots = (16 + 16 + 4 + cap->max_inline_data + 63) / 64;
        qp->send_count = power_of_two(cap->max_send_wr * slots);
        qp->receive_bytes = 16 * power_of_two(cap->max_recv_sge);
        qp->receive_count = power_of_two(cap->max_recv_wr);
        qp->max_inline = cap->max_inline_data;
        memory = allocate(bytes_of(qp));
        qp->send_ids = calloc(qp->send_count, sizeof *qp->send_ids);
        qp->send_ends = calloc(qp->send_count, sizeof *qp->send_ends);
        qp->receive_ids = calloc(qp->receive_count, sizeof *qp->receive_ids);
    }
    if (memory) {
        qp->ibv = (struct ibv_qp){.context = domain->context, .pd = domain, .send_cq = sends, .recv_cq = receives,
                                  .qp_num = next_number++, .qp_type = 2};
        qp->records = (uint32_t *)memory;
        qp->doorbell = (volatile uint64_t *)(memory + PAGE + 0x800);
        qp->receives = memory + 2 * PAGE;
        qp->sends = qp->receives + bytes_of_receives(qp);
        qp->is_used = 1;
        qp->generation = ++next_generation;
    }
    pthread_mutex_unlock(&softcard_lock);
    if (!memory) errno = ENOMEM;
    return memory ? &qp->ibv : NULL;
}

struct ibv_qp *softcard_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes,
                                  struct mlx5dv_qp_init_attr *of_provider) {
    (void)context;
    /* The card keeps short messages out of completions where it is asked to: only then kernels find them. */
    if (!of_provider || of_provider->comp_mask != 1 || of_provider->create_flags != 1 << 3 ||
        attributes->comp_mask != 1 || attributes->qp_type != 2) {
        errno = EINVAL;
        return NULL;
    }
    return make(attributes->pd, attributes->send_cq, attributes->recv_cq, &attributes->cap);
}

/* Programs that post by the library. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *attributes) {
    if (attributes->qp_type != 2 || attributes->srq) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return make(domain, attributes->send_cq, attributes->recv_cq, &attributes->cap);
}

int ibv_destroy_qp(struct ibv_qp *queue) {
    struct softcard_qp *qp = (struct softcard_qp *)queue;
    pthread_mutex_lock(&softcard_lock);
    qp->is_used = 0;
    qp->generation = ++next_generation;
    softcard_wake();
    release(qp->records, bytes_of(qp));
    free(qp->send_ids);
    free(qp->send_ends);
    free(qp->receive_ids);
    pthread_mutex_unlock(&softcard_lock);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *queue, struct ibv_qp_attr *attributes, int mask) {
    struct softcard_qp *qp = (struct softcard_qp *)queue;
    int wanted = attributes->qp_state, code = mask & IBV_QP_STATE ? 0 : EINVAL;
    pthread_mutex_lock(&softcard_lock);
    int is_next = wanted == qp->ibv.state + 1 && wanted <= IBV_QPS_RTS;
    if (code == 0 && wanted != IBV_QPS_RESET && wanted != IBV_QPS_ERR && !is_next) code = EINVAL;
    if (code == 0 && wanted == IBV_QPS_ERR) softcard_end(qp);
    if (code == 0 && wanted == IBV_QPS_RESET) {
        qp->told = qp->done = qp->received = qp->fault_in = 0;
        qp->peer = 0;
        qp->is_joined = qp->is_sending = 0;
        qp->generation = ++next_generation;
        softcard_wake();
        qp->records[0] = qp->records[1] = 0;
        *qp->doorbell = 0;
        /* The provider takes the queue pair's completions out as if nobody had read any: the record is wrong. */
        *((struct softcard_cq *)queue->send_cq)->record = 0;
        *((struct softcard_cq *)queue->recv_cq)->record = 0;
    }
    if (code == 0) {
        if (mask & IBV_QP_ACCESS_FLAGS) qp->access = (int)attributes->qp_access_flags;
        if (mask & IBV_QP_DEST_QPN) qp->peer = attributes->dest_qp_num;
        if (mask & IBV_QP_AV) memcpy(qp->peer_gid, attributes->ah_attr.grh.dgid, 16);
        if (mask & IBV_QP_RNR_RETRY) qp->rnr_retries = attributes->rnr_retry;
        if (wanted == IBV_QPS_RTS && softcard_is_elsewhere(qp->peer_gid) && softcard_join(qp) != 0) code = ENOMEM;
    }
    if (code == 0) {
        qp->ibv.state = wanted;
    }
    pthread_mutex_unlock(&softcard_lock);
    return code;
}

int softcard_init_obj(struct mlx5dv_obj *object, uint64_t kinds) {
    if (kinds & 1) {
        struct softcard_qp *qp = (struct softcard_qp *)object->qp_in;
        *object->qp_out = (struct mlx5dv_qp){
            .dbrec = qp->records, .sq = {qp->sends, qp->send_count, 64},
            .rq = {qp->receives, qp->receive_count, qp->receive_bytes}, .bf_reg = (void *)qp->doorbell, .bf_size = 256};
    }
    if (kinds & 2) {
        struct softcard_cq *cq = (struct softcard_cq *)object->cq_in;
        *object->cq_out = (struct mlx5dv_cq){.buf = cq->buffer, .dbrec = cq->record, .cqe_cnt = cq->count,
                                             .cqe_size = 64, .cqn = cq->number};
    }
    return kinds & ~3ull ? EOPNOTSUPP : 0;
}
