// Posts to a network card: what one takes and how many there are in a second, in the form that was published first (one
// thread of each block, under a mutex) and by many threads, with rings in the host's memory and in the GPU's.
//
// The card only counts, so none is needed: it looks at doorbells, as a card does at its registers, and writes the
// completions that are due. It is a thread of the host where the rings are the host's, and else a block of the GPU,
// which no card is: what reading requests out of a GPU's memory costs a card is not in these figures.
#include <atomic>
#include <memory>
#include <thread>

#include <causeway/verbs.cuh>

#include "harness.h"

namespace verbs = causeway::verbs;
using verbs::CompletionQueue;
using verbs::QueuePair;
using verbs::SendRequest;

namespace bench {

constexpr u32 SLOTS = 1024, ENTRIES = 64, NUMBER = 0x100;

// One queue pair, as the card sees it.
struct Counted {
    const u64 *doorbell;
    unsigned char *entries;
    u64 rung;     // what was last seen of the doorbell
    u64 requests; // as it says
    u64 produced; // completions
};

// Looks at a doorbell, and completes the last request of each quarter of the ring that it has passed: those that have
// a completion (SEND_SPARSE). Whether there was anything.
__host__ __device__ static bool count_requests(Counted &counted, u32 number) {
    u64 rung = *reinterpret_cast<const volatile u64 *>(counted.doorbell);
    if (rung == counted.rung) return false;
    counted.rung = rung;
    u32 last = causeway_mlx5_be32(static_cast<u32>(rung)) >> 8 & 0xffff;
    u64 now = counted.requests + ((last + 1 - counted.requests) & 0xffff);
    for (u64 end = counted.requests / (SLOTS / 4) * (SLOTS / 4) + SLOTS / 4; end <= now; end += SLOTS / 4) {
        auto *fields = reinterpret_cast<volatile u32 *>(counted.entries + counted.produced % ENTRIES * 64);
        u32 slot = (end - 1) & 0xffff, owner = counted.produced / ENTRIES % 2;
        fields[14] = causeway_mlx5_be32(CAUSEWAY_MLX5_RDMA_WRITE << 24 | number);
#ifdef __CUDA_ARCH__
        __threadfence_system();
#else
        std::atomic_thread_fence(std::memory_order_release);
#endif
        fields[15] = (slot >> 8 | (slot & 0xff) << 8) | owner << 24;
        counted.produced++;
    }
    counted.requests = now;
    return true;
}

// The card as a block of the GPU, a thread for each queue pair.
__global__ void counting_nic(Counted *counted, const u32 *stop) {
    Counted &own = counted[threadIdx.x];
    for (bool is_over = false; !is_over;) {
        // Before the doorbell, which no kernel rings afterwards.
        is_over = *reinterpret_cast<const volatile u32 *>(stop) != 0;
        __threadfence_system();
        if (count_requests(own, NUMBER + threadIdx.x)) is_over = false;
    }
}

// Each posting thread posts so many, to the queue pair of its block.
template <class Form>
__global__ void post_often(QueuePair *qps, CompletionQueue *cqs, u32 count, SendRequest request, u32 times,
                           u64 *nanoseconds, u32 *wrong) {
    if (Form::HAS_MUTEX && threadIdx.x != 0) return;
    QueuePair *qp = &qps[blockIdx.x % count];
    u64 start = causeway::order::now();
    for (u32 time = 0; time < times;) {
        verbs::Status status = verbs::try_post_send<Form>(qp, request);
        verbs::WorkCompletion done[4];
        if (status == verbs::Status::ok) time++;
        else if (status == verbs::Status::again) verbs::poll_cq(&cqs[blockIdx.x % count], 4, done);
        else {
            atomicAdd(wrong, 1u);
            return;
        }
    }
    atomicMax(nanoseconds, causeway::order::now() - start);
}

// Queue pairs that kernels post to, with their rings in one kind of memory, and the card.
class CountedQueues {
  public:
    CountedQueues(u32 count, bool is_on_device) : count(count), is_on_device(is_on_device) {
        rings = allocate(count * u64{SLOTS} * 64);
        entries = allocate(count * u64{ENTRIES} * 64);
        records = allocate(count * u64{64});
        // The register of a real card is across the bus, too.
        CHECK(cudaMallocHost(&doorbells, count * u64{64}));
        CHECK(cudaMallocHost(&control, 64));
        CHECK(cudaMalloc(&slots, count * u64{SLOTS} * sizeof(verbs::Slot)));
        CHECK(cudaMalloc(&qps, count * sizeof(QueuePair)));
        CHECK(cudaMalloc(&cqs, count * sizeof(CompletionQueue)));
        CHECK(cudaMalloc(&outcome, 16));
        if (is_on_device) CHECK(cudaMalloc(&of_device, count * sizeof(Counted)));
        CHECK(cudaStreamCreateWithFlags(&posting, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&serving, cudaStreamNonBlocking));
    }

    CountedQueues(const CountedQueues &) = delete;

    ~CountedQueues() {
        for (void *memory : {rings, entries, records}) is_on_device ? cudaFree(memory) : cudaFreeHost(memory);
        for (void *memory : {static_cast<void *>(doorbells), static_cast<void *>(control)}) cudaFreeHost(memory);
        for (void *memory : {slots, static_cast<void *>(qps), static_cast<void *>(cqs), outcome,
                             static_cast<void *>(of_device)})
            cudaFree(memory);
        cudaStreamDestroy(posting);
        cudaStreamDestroy(serving);
    }

    struct Taken {
        double seconds;     // of the whole kernel
        double nanoseconds; // of the thread that took longest, for all its posts
    };

    // Runs a kernel whose `posters` post so often each.
    template <class Form> Taken run(u32 blocks, u32 threads, u32 posters, u32 times) {
        reset();
        std::vector<Counted> counted = as_seen_by_nic();
        std::atomic<bool> is_over{false};
        std::thread nic;
        *control = 0;
        if (is_on_device) {
            CHECK(cudaMemcpy(of_device, counted.data(), count * sizeof(Counted), cudaMemcpyHostToDevice));
            counting_nic<<<1, count, 0, serving>>>(of_device, control);
            CHECK(cudaGetLastError());
        } else {
            nic = std::thread([&] {
                for (bool is_at_end = false; !is_at_end;) {
                    is_at_end = is_over;
                    for (u32 at = 0; at < count; at++)
                        if (count_requests(counted[at], NUMBER + at)) is_at_end = false;
                }
            });
        }
        double start = now();
        auto *values = static_cast<u64 *>(outcome);
        post_often<Form><<<blocks, threads, 0, posting>>>(qps, cqs, count, request(), times, values,
                                                          reinterpret_cast<u32 *>(values + 1));
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(posting));
        double seconds = now() - start;
        is_over = true;
        *reinterpret_cast<volatile u32 *>(control) = 1;
        if (nic.joinable()) nic.join();
        CHECK(cudaStreamSynchronize(serving));
        if (is_on_device)
            CHECK(cudaMemcpy(counted.data(), of_device, count * sizeof(Counted), cudaMemcpyDeviceToHost));
        u64 found[2], all = 0;
        CHECK(cudaMemcpy(found, outcome, sizeof found, cudaMemcpyDeviceToHost));
        for (const Counted &one : counted) all += one.requests;
        REQUIRE(static_cast<u32>(found[1]) == 0, "%u posts were refused", static_cast<u32>(found[1]));
        REQUIRE(all == u64{posters} * times, "the card has counted %llu requests, and %llu were posted", all,
                u64{posters} * times);
        must_hold_requests(counted);
        return {seconds, static_cast<double>(found[0])};
    }

  private:
    void *allocate(u64 bytes) const {
        void *memory;
        if (is_on_device) CHECK(cudaMalloc(&memory, bytes));
        else CHECK(cudaMallocHost(&memory, bytes));
        return memory;
    }

    // Of which a card would move 8 bytes.
    static SendRequest request() {
        SendRequest request = {};
        request.operation = verbs::Operation::rdma_write;
        request.flags = verbs::SEND_SPARSE;
        request.address = 0x1000;
        request.bytes = 8;
        request.lkey = 1;
        request.remote_address = 0x2000;
        request.rkey = 2;
        return request;
    }

    template <class T> static T *part(void *memory, u64 bytes) {
        return reinterpret_cast<T *>(static_cast<char *>(memory) + bytes);
    }

    void reset() {
        CHECK(cudaMemset(rings, 0, count * u64{SLOTS} * 64));
        // What the card has never written says so in its last byte.
        CHECK(cudaMemset(entries, 0xf1, count * u64{ENTRIES} * 64));
        CHECK(cudaMemset(records, 0, count * u64{64}));
        CHECK(cudaMemset(slots, 0, count * u64{SLOTS} * sizeof(verbs::Slot)));
        CHECK(cudaMemset(outcome, 0, 16));
        memset(doorbells, 0, count * u64{64});
        std::vector<QueuePair> of_qps(count);
        std::vector<CompletionQueue> of_cqs(count);
        for (u32 at = 0; at < count; at++) {
            QueuePair &qp = of_qps[at] = {};
            qp.number = NUMBER + at;
            qp.abort = control + 8;
            qp.limit = 10'000'000'000;
            qp.send.buffer = reinterpret_cast<u64>(part<char>(rings, at * u64{SLOTS} * 64));
            qp.send.count = SLOTS;
            qp.send.slot_bytes = 64;
            qp.send.doorbell_record = part<u32>(records, at * u64{64});
            qp.send.doorbell = doorbells + at * u64{8};
            qp.send.slots = part<verbs::Slot>(slots, at * u64{SLOTS} * sizeof(verbs::Slot));
            CompletionQueue &cq = of_cqs[at] = {};
            cq.buffer = reinterpret_cast<u64>(part<char>(entries, at * u64{ENTRIES} * 64));
            cq.count = ENTRIES;
            cq.entry_bytes = 64;
            cq.doorbell_record = part<u32>(records, at * u64{64} + 16);
            cq.abort = control + 8;
            cq.limit = qp.limit;
            cq.queue_pair_count = 1;
            cq.queue_pairs[0] = qps + at;
        }
        CHECK(cudaMemcpy(qps, of_qps.data(), count * sizeof(QueuePair), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(cqs, of_cqs.data(), count * sizeof(CompletionQueue), cudaMemcpyHostToDevice));
        CHECK(cudaDeviceSynchronize());
    }

    std::vector<Counted> as_seen_by_nic() const {
        std::vector<Counted> counted(count);
        for (u32 at = 0; at < count; at++)
            counted[at] = {doorbells + at * u64{8}, part<unsigned char>(entries, at * u64{ENTRIES} * 64), 0, 0, 0};
        return counted;
    }

    // Every slot of the last round holds a whole request, which names its own number.
    void must_hold_requests(const std::vector<Counted> &counted) const {
        std::vector<u64> found(count * u64{SLOTS} * 8);
        CHECK(cudaMemcpy(found.data(), rings, found.size() * 8, cudaMemcpyDefault));
        for (u32 at = 0; at < count; at++) {
            u64 all = counted[at].requests;
            for (u64 of = all < SLOTS ? 0 : all - SLOTS; of < all; of++) {
                auto expected = causeway_mlx5_control_segment(NUMBER + at, of & 0xffff, CAUSEWAY_MLX5_RDMA_WRITE, 3, 0, 0);
                REQUIRE(found[(at * u64{SLOTS} + of % SLOTS) * 8] == expected.words[0],
                        "slot %llu of queue pair %u holds another request", of % SLOTS, at);
            }
        }
    }

    u32 count;
    bool is_on_device;
    void *rings, *entries, *records, *slots, *outcome;
    u64 *doorbells;
    u32 *control;
    QueuePair *qps;
    CompletionQueue *cqs;
    Counted *of_device = nullptr;
    cudaStream_t posting, serving;
};

template <class Form>
static void add_posts(Cases &cases, const std::shared_ptr<CountedQueues> &queues, const std::string &way, u32 blocks,
                      u32 threads, u32 times) {
    u32 posters = Form::HAS_MUTEX ? blocks : blocks * threads;
    cases.add("verbs_post", way, 8, posters, "ns",
              [=] { return queues->run<Form>(blocks, threads, posters, times).nanoseconds / times; });
    cases.add("verbs_rate", way, 8, posters, "M/s",
              [=] { return posters * (times / queues->run<Form>(blocks, threads, posters, times).seconds) / 1e6; });
}

void measure_verbs(const Settings &settings) {
    Cases cases(settings);
    for (bool is_on_device : {false, true}) {
        // The software GPU runs one kernel beside the card's, and that for ever.
        if (is_on_device && settings.is_quick) {
            skip("verbs_post", "with rings in GPU memory a block of the GPU is the card, for which `quick` has no room");
            continue;
        }
        std::string where = is_on_device ? "rings in GPU memory" : "rings in host memory";
        auto one = std::make_shared<CountedQueues>(1, is_on_device);
        u32 times = settings.is_quick ? 8 : 256, max_blocks = settings.is_quick ? 1 : 64;
        for (u32 threads : {1u, 32u, 256u}) add_posts<verbs::ManyThreads>(cases, one, "threads, " + where, 1, threads, times);
        for (u32 blocks = 4; blocks <= max_blocks; blocks *= 4)
            add_posts<verbs::ManyThreads>(cases, one, "threads, " + where, blocks, 256, times);
        for (u32 blocks = 1; blocks <= max_blocks; blocks *= 4)
            add_posts<verbs::OneAtATime>(cases, one, "mutex, " + where, blocks, 32, times);
        if (settings.is_quick) continue;
        // One multiprocessor is left for the card.
        u32 all = settings.processors > 1 ? settings.processors - 1 : 1;
        auto each = std::make_shared<CountedQueues>(all, is_on_device);
        for (u32 threads : {32u, 256u})
            add_posts<verbs::ManyThreads>(cases, each, "queue pair a block, " + where, all, threads, times);
    }
    cases.measure();
}

} // namespace bench
