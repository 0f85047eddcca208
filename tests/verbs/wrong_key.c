// A hostile end, for tests: preloaded into a program or a server, it puts a key that the peer has never given out into every RDMA
// write and read after the first few, or with WRONG=number in the environment a number of no slot into every write that has one.
// Causeway loads libibverbs by dlopen, so that it is dlsym that has to be stood in for; librdmacm, which opens iWARP's devices, calls
// ibv_open_device by its name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

enum { HONEST_WRITES = 3 };

static int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static struct ibv_context *(*open_device)(struct ibv_device *);
static int writes;

static int post_with_wrong_key(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **refused) {
    const char *wrong = getenv("WRONG");
    int is_number = wrong && strcmp(wrong, "number") == 0;
    for (struct ibv_send_wr *one = request; one; one = one->next) {
        int has_number = one->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        if (is_number && has_number && ++writes > HONEST_WRITES)
            one->imm_data ^= htobe32(0x5a5a5a00);
        int has_key = has_number || one->opcode == IBV_WR_RDMA_WRITE || one->opcode == IBV_WR_RDMA_READ;
        if (!is_number && has_key && ++writes > HONEST_WRITES)
            one->wr.rdma.rkey ^= 0x5a5a5a00;
    }
    return post_send(qp, request, refused);
}

static struct ibv_context *open_and_stand_in(struct ibv_device *device) {
    struct ibv_context *context = open_device(device);
    if (context && context->ops.post_send != post_with_wrong_key) {
        post_send = context->ops.post_send;
        context->ops.post_send = post_with_wrong_key;
    }
    return context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (!open_device) {
        void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
        open_device = (struct ibv_context * (*)(struct ibv_device *)) dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1");
    }
    return open_and_stand_in(device);
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = real(handle, name);
    if (found && strcmp(name, "ibv_open_device") == 0) {
        open_device = (struct ibv_context * (*)(struct ibv_device *)) found;
        return (void *)open_and_stand_in;
    }
    return found;
}
