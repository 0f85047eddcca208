/* Prints work requests as rdma-core's own mlx5 provider writes them: its qp.c, on a queue made by hand, whose
 * doorbell is a page of memory. One line for each: what was asked for, and the bytes. See README.md. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5.h"

enum { SLOTS = 16, RECEIVES = 8, QUEUE_PAIR = 0xabcdef, MAX_INLINE = 512 };

int mlx5_single_threaded = 1;

static unsigned char send_ring[SLOTS * 64] __attribute__((aligned(64)));
static unsigned char receive_ring[RECEIVES * 64] __attribute__((aligned(64)));
static unsigned char page[4096] __attribute__((aligned(4096)));
static __be32 records[2];
static struct mlx5_context context;
static struct mlx5_qp qp;
static struct mlx5_cq cq;
static struct mlx5_bf bf;
static uint64_t ids[SLOTS];
static unsigned heads[SLOTS];
static uint32_t data_of[SLOTS];
static unsigned char payload[MAX_INLINE];

static void print_bytes(const void *bytes, size_t count) {
    for (size_t at = 0; at < count; at++) printf("%02x", ((const unsigned char *)bytes)[at]);
}

static void start_at(unsigned first) {
    memset(send_ring, 0, sizeof send_ring);
    memset(page, 0, sizeof page);
    records[0] = records[1] = 0;
    qp.sq.cur_post = first;
    qp.sq.head = qp.sq.tail = 0;
    bf.offset = 0;
}

/* name first flags immediate bytes address lkey remote rkey compare_add swap = slots record doorbell */
static void send_one(const char *name, enum ibv_wr_opcode opcode, unsigned first, unsigned flags, uint32_t bytes,
                     uint64_t address, uint64_t remote) {
    struct ibv_sge sge = {.addr = address, .length = bytes, .lkey = 0x00112233};
    struct ibv_send_wr request = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
    struct ibv_send_wr *bad = NULL;
    uint32_t immediate = 0x11223344, rkey = 0x44556677;
    uint64_t compare_add = 0x0123456789abcdefull, swap = 0xfedcba9876543210ull;
    if (flags & IBV_SEND_INLINE) sge.addr = (uintptr_t)payload;
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND_WITH_IMM)
        request.imm_data = htobe32(immediate);
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = remote;
        request.wr.atomic.rkey = rkey;
        request.wr.atomic.compare_add = compare_add;
        request.wr.atomic.swap = swap;
    } else {
        request.wr.rdma.remote_addr = remote;
        request.wr.rdma.rkey = rkey;
    }
    start_at(first);
    if (mlx5_post_send(&qp.verbs_qp.qp, &request, &bad) != 0) {
        fprintf(stderr, "%s of %u bytes is refused\n", name, bytes);
        exit(1);
    }
    unsigned slots = qp.sq.cur_post - first;
    printf("%s %u %u %#x %u %#llx %#x %#llx %#x %#llx %#llx = ", name, first, flags, immediate, bytes,
           (unsigned long long)address, sge.lkey, (unsigned long long)remote, rkey,
           (unsigned long long)compare_add, (unsigned long long)swap);
    for (unsigned at = 0; at < slots; at++) print_bytes(send_ring + (first + at) % SLOTS * 64, 64);
    printf(" ");
    print_bytes(&records[MLX5_SND_DBR], 4);
    printf(" ");
    print_bytes(page, 8);
    printf("\n");
}

/* receive first segments_of_a_slot bytes address lkey = slot record */
static void receive_one(unsigned first, unsigned segments, uint32_t bytes, uint64_t address) {
    struct ibv_sge sge = {.addr = address, .length = bytes, .lkey = 0x00112233};
    struct ibv_recv_wr request = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    unsigned slot = first % RECEIVES, slot_bytes = 16 * segments;
    memset(receive_ring, 0, sizeof receive_ring);
    qp.rq.head = qp.rq.tail = first;
    qp.rq.max_gs = qp.rq.qp_state_max_gs = segments;
    qp.rq.wqe_shift = segments == 1 ? 4 : segments == 2 ? 5 : 6;
    if (mlx5_post_recv(&qp.verbs_qp.qp, &request, &bad) != 0) exit(1);
    printf("receive %u %u %u %#llx %#x = ", first, segments, bytes, (unsigned long long)address, sge.lkey);
    print_bytes(receive_ring + slot * slot_bytes, slot_bytes);
    printf(" ");
    print_bytes(&records[MLX5_RCV_DBR], 4);
    printf("\n");
}

static const struct {
    const char *name;
    enum ibv_wr_opcode opcode;
    int has_inline, is_atomic;
} operations[] = {
    {"rdma_write", IBV_WR_RDMA_WRITE, 1, 0},
    {"rdma_write_with_imm", IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0},
    {"send", IBV_WR_SEND, 1, 0},
    {"send_with_imm", IBV_WR_SEND_WITH_IMM, 1, 0},
    {"rdma_read", IBV_WR_RDMA_READ, 0, 0},
    {"compare_and_swap", IBV_WR_ATOMIC_CMP_AND_SWP, 0, 1},
    {"fetch_and_add", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1},
};

int main(void) {
    static const uint32_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 63, 64, 65, 4095, 4096, 1 << 20, 1 << 30};
    static const uint32_t inline_sizes[] = {0, 1, 3, 4, 8, 11, 12, 13, 27, 28, 29, 43, 44, 45, 60, 64, 92, 93, 256, 512};
    /* The ring's beginning, middle and end, and where the card's counts of 16 bits begin again. */
    static const unsigned firsts[] = {0, 5, 15, 65535, 65537 + 13};
    for (unsigned at = 0; at < sizeof payload; at++) payload[at] = (unsigned char)(at * 37 + 11);
    context.shut_up_bf = 1;
    qp.ibv_qp = &qp.verbs_qp.qp;
    qp.ibv_qp->context = &context.ibv_ctx.context;
    qp.ibv_qp->qp_num = QUEUE_PAIR;
    qp.ibv_qp->qp_type = IBV_QPT_RC;
    qp.ibv_qp->state = IBV_QPS_RTS;
    qp.ibv_qp->send_cq = qp.ibv_qp->recv_cq = &cq.verbs_cq.cq;
    qp.sq_start = send_ring;
    qp.sq = (struct mlx5_wq){.wrid = ids, .wqe_head = heads, .wqe_cnt = SLOTS, .max_post = SLOTS, .max_gs = 1,
                             .qp_state_max_gs = 1, .wqe_shift = 6, .qend = send_ring + sizeof send_ring,
                             .wr_data = data_of};
    qp.rq = (struct mlx5_wq){.wrid = ids, .wqe_cnt = RECEIVES, .max_post = RECEIVES};
    qp.buf.ibv_buf.addr = receive_ring;
    qp.db = records;
    qp.bf = &bf;
    qp.max_inline_data = MAX_INLINE;
    qp.atomics_enabled = 1;
    bf.reg = page;
    bf.buf_size = 256;
    printf("# Made by harness.c from rdma-core's mlx5 provider, version %s. See README.md.\n", RDMA_CORE_VERSION);
    printf("# ring of %d slots, queue pair %#x\n", SLOTS, QUEUE_PAIR);
    for (unsigned at = 0; at < sizeof operations / sizeof *operations; at++) {
        const char *name = operations[at].name;
        enum ibv_wr_opcode opcode = operations[at].opcode;
        if (operations[at].is_atomic) {
            for (unsigned first = 0; first < 5; first++)
                send_one(name, opcode, firsts[first], IBV_SEND_SIGNALED, 8, 0x7f0012345678ull, 0x7e00fedcba98ull);
            send_one(name, opcode, 3, 0, 8, 8, 16);
            continue;
        }
        for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++)
            send_one(name, opcode, firsts[size % 5], IBV_SEND_SIGNALED, sizes[size], 0x7f0012345678ull + size,
                     0x7e00fedcba98ull + 3 * size);
        for (unsigned flags = 0; flags < 8; flags++)
            send_one(name, opcode, 2, flags, 100, 0xffffffffffff0001ull, 0x8000000000000001ull);
        for (unsigned size = 0; operations[at].has_inline && size < sizeof inline_sizes / sizeof *inline_sizes; size++)
            for (unsigned first = size % 2; first < 5; first += 2)
                send_one(name, opcode, firsts[first], IBV_SEND_SIGNALED | IBV_SEND_INLINE, inline_sizes[size], 0,
                         0x7e00fedcba98ull + size);
    }
    for (unsigned segments = 1; segments <= 4; segments *= 2)
        for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++)
            receive_one(size % 2 ? 65535 + size : size, segments, sizes[size], 0x7f0012345678ull + size);
    return 0;
}
