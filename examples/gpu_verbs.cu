// A kernel that writes work requests of a network card itself. Two queue pairs of one card, joined with each other:
// the kernel of one writes into memory of the other, adds to a number there, and meets an error.
//
// `gpu_verbs` does that. `gpu_verbs rate` says how long posts take: of 1 to 16384 threads, and of one thread of each
// block under a mutex, the form that was published first. `-b` behind them has a thread of the host ring the
// doorbell, also where kernels could.
#include <causeway/verbs.cuh>
#include <causeway/verbs.h>
#include <cstdio>
#include <cstring>

using namespace causeway::verbs;

constexpr int COUNT = 1000;

// One thread posts a request, and waits until it is done.
__global__ void post_one(QueuePair *qp, CompletionQueue *cq, SendRequest request, WorkCompletion *completion,
                         Status *status) {
    *status = post_send(qp, request);
    if (*status == Status::ok) *status = wait_cq(cq, completion);
}

// Every thread posts so many requests (in the published form the first one of each block), one in 16 and the last of which have a completion; the nanoseconds that took.
// Threads begin with different ones of the 16: a queue full of requests without completions would never empty.
template <class Form>
__global__ void post_many(QueuePair *qp, CompletionQueue *cq, SendRequest request, unsigned each,
                          unsigned long long *nanoseconds, unsigned *wrong) {
    if (Form::HAS_MUTEX && threadIdx.x != 0) return;
    unsigned long long begin = causeway::order::now();
    for (unsigned at = 0; at < each; at++) {
        request.flags = (at + blockIdx.x + threadIdx.x) % 16 == 15 || at + 1 == each ? SEND_SIGNALED : 0;
        for (;;) {
            Status status = try_post_send<Form>(qp, request);
            if (status == Status::ok) break;
            WorkCompletion completions[8];
            unsigned found = status == Status::again ? poll_cq(cq, 8, completions) : 0;
            for (unsigned of = 0; of < found; of++)
                if (completions[of].syndrome != 0) atomicAdd(wrong, 1u);
            if (status != Status::again) {
                atomicAdd(wrong, 1u);
                return;
            }
        }
    }
    atomicMax(nanoseconds, causeway::order::now() - begin);
}

static int fail(const char *what) {
    printf("%s: %s\n", what, causeway_comm_error());
    return 1;
}

struct End {
    causeway_cq *cq;
    causeway_qp *qp;
    causeway_mr *mr;
    unsigned lkey, rkey;
    int *numbers;
};

static bool make(const causeway_nic *nic, End *end) {
    causeway_qp_options options = {4096, 16, 0, CAUSEWAY_IN_HOST};
    cudaMallocHost(&end->numbers, sizeof(int) * COUNT);
    end->cq = causeway_cq_create(nic, 8192, CAUSEWAY_IN_HOST);
    if (end->cq == nullptr) return false;
    end->qp = causeway_qp_create(nic, end->cq, end->cq, &options);
    end->mr = causeway_mr_register(nic, end->numbers, sizeof(int) * COUNT,
                                   CAUSEWAY_REMOTE_WRITE | CAUSEWAY_REMOTE_ATOMIC, &end->lkey, &end->rkey);
    return end->qp != nullptr && end->mr != nullptr;
}

static bool connect(const End &one, const End &other) {
    char addresses[2][CAUSEWAY_QP_ADDRESS_BYTES];
    causeway_qp_address(one.qp, addresses[0]);
    causeway_qp_address(other.qp, addresses[1]);
    return causeway_qp_connect(one.qp, addresses[1]) == 0 && causeway_qp_connect(other.qp, addresses[0]) == 0;
}

static QueuePair *queue_pair(const End &end) {
    return reinterpret_cast<QueuePair *>(causeway_qp_handle(end.qp));
}

static CompletionQueue *completion_queue(const End &end) {
    return reinterpret_cast<CompletionQueue *>(causeway_cq_handle(end.cq));
}

// Posts a request from a kernel, and says what came of it.
static void post(const char *what, const End &end, const SendRequest &request) {
    struct Answer {
        WorkCompletion completion;
        Status status;
    } *answer;
    cudaMallocHost(&answer, sizeof *answer);
    post_one<<<1, 1>>>(queue_pair(end), completion_queue(end), request, &answer->completion, &answer->status);
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) printf("%s: %s\n", what, cudaGetErrorString(error));
    else if (answer->status != Status::ok) printf("%s: status %u\n", what, static_cast<unsigned>(answer->status));
    else printf("%s: %s\n", what, causeway_syndrome_text(answer->completion.syndrome));
    cudaFreeHost(answer);
}

// Posts of so many blocks, of which `posting` threads post: whether all have succeeded.
template <class Form>
static bool measure(const End &end, SendRequest request, unsigned blocks, unsigned threads, unsigned posting) {
    static struct Answer {
        unsigned long long nanoseconds;
        unsigned wrong;
    } *answer;
    if (answer == nullptr) cudaMallocHost(&answer, sizeof *answer);
    memset(answer, 0, sizeof *answer);
    unsigned each = posting == 1 ? 4096 : 256;
    post_many<Form><<<blocks, threads>>>(queue_pair(end), completion_queue(end), request, each, &answer->nanoseconds,
                                         &answer->wrong);
    cudaError_t error = cudaDeviceSynchronize();
    bool is_well = error == cudaSuccess && answer->wrong == 0;
    double posts = static_cast<double>(posting) * each, us = answer->nanoseconds / 1000.0;
    const char *who = Form::HAS_MUTEX ? "blocks, a thread of each, under a mutex" : "threads";
    if (is_well) printf("%5u %s: %.3f us a post of a thread, %.2f million posts/s\n", posting, who, us / each, posts / us);
    else printf("%u %s: %s, %u wrong\n", posting, who, cudaGetErrorString(error), answer->wrong);
    fflush(stdout);
    return is_well;
}

static bool rate(const End &end, SendRequest request) {
    request.bytes = 8;
    bool is_well = true;
    for (unsigned threads = 1; is_well && threads <= 16384; threads *= 4) {
        unsigned blocks = threads <= 256 ? 1 : threads / 256;
        is_well = measure<ManyThreads>(end, request, blocks, threads / blocks, threads);
    }
    for (unsigned blocks = 1; is_well && blocks <= 64; blocks *= 4)
        is_well = measure<OneAtATime>(end, request, blocks, 32, blocks);
    return is_well;
}

int main(int count, char **arguments) {
    bool is_rate = count > 1 && strcmp(arguments[1], "rate") == 0;
    bool is_assisted = count > 1 && strcmp(arguments[count - 1], "-b") == 0;
    causeway_nic_options options = {};
    options.doorbell = is_assisted ? CAUSEWAY_DOORBELL_ASSISTED : CAUSEWAY_DOORBELL_AUTO;
    if (cudaFree(nullptr) != cudaSuccess) return printf("there is no GPU\n"), 1;
    causeway_nic *nic = causeway_nic_open(nullptr, &options);
    if (nic == nullptr) return fail("the network card");
    End one = {}, other = {};
    if (!make(nic, &one) || !make(nic, &other) || !connect(one, other)) return fail("a queue pair");
    bool is_direct = causeway_qp_doorbell(one.qp) == CAUSEWAY_DOORBELL_DIRECT;
    printf("doorbell: %s\n", is_direct ? "rung by kernels" : "rung by a thread of the host");
    SendRequest write = {};
    write.operation = Operation::rdma_write;
    write.flags = SEND_SIGNALED;
    write.address = reinterpret_cast<unsigned long long>(one.numbers);
    write.bytes = sizeof(int) * COUNT;
    write.lkey = one.lkey;
    write.remote_address = reinterpret_cast<unsigned long long>(other.numbers);
    write.rkey = other.rkey;
    fflush(stdout);
    if (is_rate) {
        if (!rate(one, write)) return 1;
    } else {
        for (int at = 0; at < COUNT; at++) one.numbers[at] = 3 * at, other.numbers[at] = 0;
        post("write", one, write);
        printf("the peer has %s\n", memcmp(one.numbers, other.numbers, write.bytes) == 0 ? "all of it" : "other bytes");
        SendRequest add = write;
        add.operation = Operation::fetch_and_add;
        add.bytes = 8;
        add.compare_add = 41;
        memset(other.numbers, 0, 8);
        other.numbers[0] = 1;
        post("fetch and add", one, add);
        printf("%d before, %d after\n", one.numbers[0], other.numbers[0]);
        SendRequest wrong = write;
        wrong.rkey ^= 0x100;
        post("write with a wrong key", one, wrong);
        post("write after that", one, write);
        if (causeway_qp_reset(one.qp) != 0 || causeway_qp_reset(other.qp) != 0 || !connect(one, other))
            return fail("reset");
        post("write after a reset", one, write);
    }
    for (End *end : {&one, &other}) {
        causeway_qp_destroy(end->qp);
        causeway_cq_destroy(end->cq);
        causeway_mr_deregister(end->mr);
        cudaFreeHost(end->numbers);
    }
    causeway_nic_close(nic);
}
