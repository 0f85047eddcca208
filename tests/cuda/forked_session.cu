// A program that forks together with its session: the child goes on with the GPU's state, at the same
// addresses, and neither sees what the other does. The parent has memory of random contents, a module's
// variable, streams, events, a graph, a capture, pinned memory and memory of a pool, and a second thread
// that uses CUDA all the time. Each process checks that it has what was there at the fork, changes it in its own way, and
// checks that. One child forks a child of its own and ends before that, one is killed, one ends before it has
// a session, one becomes another program. What cannot be forked is refused, and the program goes on: `refused
// WHY` expects that of every fork, `full` that the child has no memory, `left_out` that it lacks what its session
// has, and `limit COUNT WHY` that there are so many children and no more.
#include "check.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

constexpr unsigned COUNT = 1 << 16;
constexpr size_t BYTES = COUNT * sizeof(unsigned);

__device__ unsigned steps;

__global__ void step(unsigned *data, unsigned add) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * 3 + add;
    if (i == 0) steps++;
}

__global__ void add(unsigned *data) { data[blockIdx.x * blockDim.x + threadIdx.x]++; }

// Takes longer than the server waits for a quiet point at a time.
__global__ void take_long(unsigned *data, unsigned rounds) {
    unsigned value = *data;
    for (unsigned round = 0; round < rounds; round++) value = value * 1664525 + (value >> 7) + 1013904223;
    *data = value;
}

struct State {
    unsigned *data, *pooled, *pinned;
    cudaStream_t stream, other;
    cudaEvent_t event;
    cudaGraphExec_t graph;
    std::vector<unsigned> expected, contents;
    unsigned done;
};

// Works on what is there: in streams that wait for each other, by a graph, from pinned memory.
static void work(State &state, unsigned add, const char *who) {
    for (unsigned round = 0; round < 3; round++) {
        step<<<COUNT / 256, 256, 0, state.stream>>>(state.data, add);
        CHECK_LAUNCH();
        CHECK_CUDA(cudaEventRecord(state.event, state.stream));
        CHECK_CUDA(cudaStreamWaitEvent(state.other, state.event, 0));
        CHECK_CUDA(cudaGraphLaunch(state.graph, state.other));
        CHECK_CUDA(cudaEventRecord(state.event, state.other));
        CHECK_CUDA(cudaStreamWaitEvent(state.stream, state.event, 0));
        for (unsigned &value : state.expected) value = (value * 3 + add) * 3 + 5;
        state.done += 2;
    }
    CHECK_CUDA(cudaMemcpyAsync(state.pinned, state.data, BYTES, cudaMemcpyDeviceToHost, state.stream));
    CHECK_CUDA(cudaStreamSynchronize(state.stream));
    std::vector<unsigned> found(COUNT);
    CHECK_CUDA(cudaMemcpy(found.data(), state.data, BYTES, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < COUNT; i++)
        REQUIRE(found[i] == state.expected[i] && state.pinned[i] == found[i],
                "%s: element %u is %u and %u instead of %u", who, i, found[i], state.pinned[i],
                state.expected[i]);
    unsigned counted;
    CHECK_CUDA(cudaMemcpyFromSymbol(&counted, steps, sizeof counted));
    REQUIRE(counted == state.done, "%s: %u steps instead of %u", who, counted, state.done);
    CHECK_CUDA(cudaMemcpy(found.data(), state.pooled, BYTES, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < COUNT; i++)
        REQUIRE(found[i] == state.contents[i], "%s: element %u of the pool's memory is %u", who, i, found[i]);
    // What is new lies where nothing else does, in each process.
    unsigned *more;
    CHECK_CUDA(cudaMalloc(&more, BYTES));
    CHECK_CUDA(cudaMemset(more, int(add), BYTES));
    CHECK_CUDA(cudaFree(more));
}

// Adds to a capture whose first step adds 7, and launches what it has captured.
static void launch_captured(State &state, cudaStream_t stream, unsigned add) {
    step<<<COUNT / 256, 256, 0, stream>>>(state.data, add);
    cudaGraph_t graph;
    cudaGraphExec_t captured;
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&captured, graph, 0));
    CHECK_CUDA(cudaGraphLaunch(captured, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (unsigned &value : state.expected) value = (value * 3 + 7) * 3 + add;
    state.done += 2;
}

static pid_t (*fork_with_session)(char *, size_t);
static pid_t (*fork_between)(void (*)(), void (*)(), void (*)(), char *, size_t);
static char reason[4096];

static pid_t fork_session() {
    const pid_t child = fork_with_session(reason, sizeof reason);
    REQUIRE(child >= 0, "the session cannot be forked: %s", reason);
    REQUIRE(!*reason, "the child has no session: %s", reason);
    return child;
}

// Another thread of the program, which uses CUDA all the time.
static std::atomic<bool> ends;

static void work_beside(unsigned *data, unsigned *rounds) {
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMemsetAsync(data, 0, BYTES, stream));
    for (*rounds = 0; !ends; ++*rounds) {
        add<<<COUNT / 256, 256, 0, stream>>>(data);
        CHECK_LAUNCH();
        if (*rounds % 8 == 7) CHECK_CUDA(cudaStreamSynchronize(stream));
        unsigned *more;
        CHECK_CUDA(cudaMalloc(&more, 4096));
        CHECK_CUDA(cudaFree(more));
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
}

// From here on the system makes this process no other, but threads.
static void make_no_process() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_VM, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {sizeof filter / sizeof *filter, filter};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
            "no filter");
}

static void must_succeed(pid_t child, const char *who) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0, "%s ended with status %#x", who, status);
}

// A file that parent and child have mapped is registered: kernels of both, and both programs, see each other's writes, as
// without Causeway.
static void fork_with_file() {
    const int file = memfd_create("registered", 0);
    REQUIRE(file >= 0 && ftruncate(file, BYTES) == 0, "no file");
    auto *words = static_cast<unsigned *>(mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    REQUIRE(words != MAP_FAILED, "no mapping");
    close(file);
    unsigned *address;
    CHECK_CUDA(cudaHostRegister(words, BYTES, cudaHostRegisterMapped));
    CHECK_CUDA(cudaHostGetDevicePointer(&address, words, 0));
    const auto step_and_check = [&](unsigned expected, const char *who) {
        add<<<COUNT / 256, 256>>>(address);
        CHECK_CUDA(cudaDeviceSynchronize());
        for (unsigned i = 0; i < COUNT; i++)
            REQUIRE(words[i] == expected, "%s: word %u of the file is %u instead of %u", who, i, words[i], expected);
    };
    step_and_check(1, "before the fork");
    const pid_t child = fork_session();
    if (child == 0) {
        step_and_check(2, "the child");
        exit(0);
    }
    must_succeed(child, "the child with a file");
    step_and_check(3, "the parent");
    CHECK_CUDA(cudaHostUnregister(words));
    munmap(words, BYTES);
}

// Hundreds of pieces of pinned memory, more than a worker keeps descriptors of: all are the child's, and some were freed.
static void fork_with_pieces() {
    constexpr unsigned PIECES = 700, WORDS = 1024;
    std::vector<unsigned *> pieces(PIECES);
    for (unsigned i = 0; i < PIECES; i++) {
        CHECK_CUDA(cudaHostAlloc(&pieces[i], WORDS * sizeof(unsigned), cudaHostAllocMapped));
        std::fill_n(pieces[i], WORDS, i);
    }
    for (unsigned i = 0; i < PIECES; i += 3) CHECK_CUDA(cudaFreeHost(pieces[i]));
    const pid_t child = fork_session();
    const char *who = child == 0 ? "the child with pieces" : "its parent";
    const unsigned extra = child == 0 ? 5 : 9;
    for (unsigned i = 0; i < PIECES; i++) {
        if (i % 3 == 0) continue;
        for (unsigned word = 0; word < WORDS; word++) pieces[i][word] += extra;
        add<<<WORDS / 256, 256>>>(pieces[i]);
    }
    CHECK_CUDA(cudaDeviceSynchronize());
    for (unsigned i = 0; i < PIECES; i++)
        for (unsigned word = 0; i % 3 && word < WORDS; word++)
            REQUIRE(pieces[i][word] == i + extra + 1, "%s: word %u of piece %u is %u", who, word, i, pieces[i][word]);
    if (child == 0) exit(0);
    must_succeed(child, who);
    for (unsigned i = 0; i < PIECES; i++)
        if (i % 3) CHECK_CUDA(cudaFreeHost(pieces[i]));
}

// Memory that kernels reach is copied with the process, and kernels of each process reach its own: pinned, managed, small and
// registered memory. A kernel that nobody has waited for has written there before the fork, and so has the program.
static void fork_with_mirrors() {
    constexpr unsigned LAST = COUNT - 1, SMALL = 256;
    unsigned *host[4], *address[4], counts[4] = {COUNT, COUNT, SMALL, COUNT};
    CHECK_CUDA(cudaHostAlloc(&host[0], BYTES, cudaHostAllocMapped));
    CHECK_CUDA(cudaMallocManaged(&host[1], BYTES));
    CHECK_CUDA(cudaHostAlloc(&host[2], SMALL * sizeof(unsigned), cudaHostAllocMapped));
    REQUIRE(!posix_memalign(reinterpret_cast<void **>(&host[3]), 4096, BYTES), "no memory");
    CHECK_CUDA(cudaHostRegister(host[3], BYTES, cudaHostRegisterMapped));
    const auto must_be = [&](int kind, unsigned at, unsigned value, const char *who) {
        REQUIRE(host[kind][at] == value, "%s: word %u of memory %d is %u instead of %u", who, at, kind, host[kind][at], value);
    };
    for (int kind = 0; kind < 4; kind++) {
        memset(host[kind], 0, counts[kind] * sizeof(unsigned));
        // Managed memory has one address for both.
        address[kind] = host[kind];
        if (kind != 1) CHECK_CUDA(cudaHostGetDevicePointer(&address[kind], host[kind], 0));
        add<<<counts[kind] / 256, 256>>>(address[kind]);
        CHECK_CUDA(cudaDeviceSynchronize());
        host[kind][3] = 1000;
        add<<<counts[kind] / 256, 256>>>(address[kind]);
    }
    const pid_t child = fork_session();
    const char *who = child == 0 ? "the child with mirrors" : "its parent";
    const unsigned mine = child == 0 ? 70 : 900;
    CHECK_CUDA(cudaDeviceSynchronize());
    for (unsigned round = 0; round < 3; round++) {
        for (int kind = 0; kind < 4; kind++) {
            const unsigned last = counts[kind] == SMALL ? SMALL - 1 : LAST;
            must_be(kind, 3, round == 0 ? 1001 : mine + round, who);
            must_be(kind, 5, 2 + round, who);
            must_be(kind, last, 2 + round, who);
            host[kind][3] = mine + round;
            add<<<counts[kind] / 256, 256>>>(address[kind]);
        }
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    if (child == 0) exit(0);
    must_succeed(child, who);
    for (int kind : {0, 2}) CHECK_CUDA(cudaFreeHost(host[kind]));
    CHECK_CUDA(cudaFree(host[1]));
    CHECK_CUDA(cudaHostUnregister(host[3]));
    free(host[3]);
}

int main(int count, char **arguments) {
    const pid_t parent = getpid();
    const char *how = count > 1 ? arguments[1] : "";
    State state;
    CHECK_CUDA(cudaMalloc(&state.data, BYTES));
    if (!strcmp(how, "alone")) return pass();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(driver, "no driver is loaded");
    const auto shares = reinterpret_cast<int (*)()>(dlsym(driver, "causeway_client_shares_memory"));
    const bool shares_memory = shares && shares();
    fork_with_session = reinterpret_cast<decltype(fork_with_session)>(dlsym(driver, "causeway_fork"));
    fork_between = reinterpret_cast<decltype(fork_between)>(dlsym(driver, "causeway_fork_between"));
    REQUIRE(fork_with_session && fork_between, "the driver is not Causeway's");
    CHECK_CUDA(cudaMallocHost(&state.pinned, BYTES));
    CHECK_CUDA(cudaStreamCreate(&state.stream));
    CHECK_CUDA(cudaStreamCreateWithFlags(&state.other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&state.event));
    state.expected.resize(COUNT);
    const unsigned seed = std::random_device()();
    printf("seed %u\n", seed), fflush(stdout);
    std::mt19937 random(seed);
    for (unsigned &value : state.expected) value = random();
    state.contents = state.expected;
    state.done = 0;
    CHECK_CUDA(cudaMallocAsync(&state.pooled, BYTES, state.stream));
    CHECK_CUDA(cudaMemcpy(state.data, state.expected.data(), BYTES, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpyAsync(state.pooled, state.data, BYTES, cudaMemcpyDeviceToDevice, state.stream));
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamBeginCapture(state.other, cudaStreamCaptureModeGlobal));
    step<<<COUNT / 256, 256, 0, state.other>>>(state.data, 5);
    CHECK_CUDA(cudaStreamEndCapture(state.other, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&state.graph, graph, 0));
    work(state, 1, "the parent, before");

    const auto must_be_refused = [&](const char *why) {
        REQUIRE(fork_with_session(reason, sizeof reason) == -1 && strstr(reason, why), "it is forked: %s",
                reason);
        work(state, 2, "the parent");
    };
    if (!strcmp(how, "refused")) {
        if (!strcmp(arguments[2], "MADV_DONTFORK")) {
            // The child would not have what its parent's kernels reach.
            void *memory;
            unsigned *address;
            REQUIRE(!posix_memalign(&memory, 4096, BYTES) && !madvise(memory, BYTES, MADV_DONTFORK), "no memory");
            CHECK_CUDA(cudaHostRegister(memory, BYTES, cudaHostRegisterMapped));
            CHECK_CUDA(cudaHostGetDevicePointer(&address, memory, 0));
        }
        must_be_refused(arguments[2]);
        return pass();
    }
    if (!strcmp(how, "full")) {
        // The child's memory finds no place: it learns that, and its parent goes on.
        const pid_t child = fork_with_session(reason, sizeof reason);
        REQUIRE(child >= 0, "the session cannot be forked: %s", reason);
        if (child == 0) {
            REQUIRE(strstr(reason, "CUDA_ERROR_OUT_OF_MEMORY"),
                    "the child has a session, or none for another reason: %s", reason);
            REQUIRE(cudaMemset(state.data, 0, 4) == cudaErrorInitializationError, "it uses the GPU");
            _exit(0);
        }
        must_succeed(child, "the child");
        work(state, 2, "the parent");
        return pass();
    }
    if (!strcmp(how, "left_out")) {
        // The child does not have memory that its session has: it learns that, and its parent goes on at once.
        REQUIRE(madvise(state.pinned, BYTES, MADV_DONTFORK) == 0, "the advice is refused");
        const pid_t child = fork_with_session(reason, sizeof reason);
        REQUIRE(child >= 0, "the session cannot be forked: %s", reason);
        if (child == 0) {
            REQUIRE(strstr(reason, "cannot be shared"), "the child has a session, or none for another reason: %s", reason);
            REQUIRE(cudaMemset(state.data, 0, 4) == cudaErrorInitializationError, "it uses the GPU");
            pause();
        }
        work(state, 2, "the parent");
        int status;
        REQUIRE(waitpid(child, &status, WNOHANG) == 0, "the child has ended with %#x", status);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return pass();
    }
    if (!strcmp(how, "limit")) {
        // Each child has a session until it ends, and the server has no more of them than it allows.
        const int limit = atoi(arguments[2]);
        for (int round = 0; round < 2; round++) {
            std::vector<pid_t> children;
            int ends_of_pipe[2];
            REQUIRE(pipe(ends_of_pipe) == 0, "no pipe");
            while (int(children.size()) < limit) {
                const pid_t child = fork_with_session(reason, sizeof reason);
                if (child == 0) {
                    REQUIRE(!*reason, "the child has no session: %s", reason);
                    work(state, 30 + children.size(), "a child");
                    char end;
                    close(ends_of_pipe[1]);
                    _exit(read(ends_of_pipe[0], &end, 1) != 0);
                }
                // Those of the round before have their places until their workers have ended.
                REQUIRE(child > 0 || (round > 0 && strstr(reason, arguments[3])), "%s", reason);
                if (child > 0) children.push_back(child);
                else usleep(20000);
            }
            must_be_refused(arguments[3]);
            close(ends_of_pipe[1]), close(ends_of_pipe[0]);
            for (pid_t child : children) must_succeed(child, "a child");
        }
        return pass();
    }
    if (!strcmp(how, "wait")) {
        // Both processes wait for a file. The child goes on when its parent has been killed.
        const pid_t child = fork_session();
        if (child > 0) printf("forked\n"), fflush(stdout);
        while (access(arguments[2], F_OK) != 0 || (child == 0 && getppid() == parent))
            usleep(10000);
        if (child > 0) pause();
        work(state, 21, "the child");
        printf("the child is well\n");
        return pass();
    }
    unsigned *mapped, *address;
    fork_with_mirrors();
    fork_with_pieces();
    if (shares_memory) fork_with_file();
    unsigned *beside, rounds = 0;
    CHECK_CUDA(cudaMalloc(&beside, BYTES));
    // The compiler's code for a first launch has a lock of its own, which a child may find taken.
    add<<<COUNT / 256, 256>>>(beside);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaDeviceSynchronize());
    std::thread worker(work_beside, beside, &rounds);

    // Work is under way when the process forks.
    for (unsigned launch = 0; launch < 100; launch++)
        step<<<COUNT / 256, 256, 0, state.stream>>>(state.data, launch);
    for (unsigned launch = 0; launch < 100; launch++)
        for (unsigned &value : state.expected) value = value * 3 + launch;
    state.done += 100;
    unsigned *slow;
    CHECK_CUDA(cudaMalloc(&slow, sizeof *slow));
    take_long<<<1, 1>>>(slow, shares_memory ? 300000000 : 1000);
    CHECK_LAUNCH();
    int ends_of_pipe[2];
    REQUIRE(pipe(ends_of_pipe) == 0, "no pipe");
    const pid_t first = fork_session();
    if (first == 0) {
        work(state, 11, "the first child");
        // Its own process is gone when the child of the child works.
        if (fork_session() > 0) _exit(0);
        usleep(300000);
        work(state, 12, "the grandchild");
        std::thread also([&] { work(state, 14, "a thread of the grandchild"); });
        also.join();
        // Kernels reach memory of the child that is new.
        CHECK_CUDA(cudaHostAlloc(&mapped, BYTES, cudaHostAllocMapped));
        memset(mapped, 0, BYTES);
        CHECK_CUDA(cudaHostGetDevicePointer(&address, mapped, 0));
        add<<<COUNT / 256, 256>>>(address);
        CHECK_CUDA(cudaDeviceSynchronize());
        mapped[1] = 7;
        add<<<COUNT / 256, 256>>>(address);
        CHECK_CUDA(cudaDeviceSynchronize());
        REQUIRE(mapped[0] == 2 && mapped[1] == 8, "the grandchild has %u and %u", mapped[0], mapped[1]);
        REQUIRE(write(ends_of_pipe[1], "x", 1) == 1, "the pipe has no reader");
        exit(0);
    }
    work(state, 2, "the parent");
    // A capture is in progress, which both go on with. CUDA is refused within the fork.
    cudaStream_t capturing;
    CHECK_CUDA(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
    CHECK_CUDA(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    step<<<COUNT / 256, 256, 0, capturing>>>(state.data, 7);
    static cudaError_t within = cudaSuccess;
    static bool is_called = true;
    REQUIRE(pthread_atfork([] { if (is_called) within = cudaDeviceSynchronize(); }, nullptr, nullptr) == 0,
            "no handler");
    const pid_t second = fork_session();
    is_called = false;
    REQUIRE(within == cudaErrorNotPermitted && cudaGetLastError() == within, "within the fork: error %d",
            within);
    launch_captured(state, capturing, second == 0 ? 8 : 9);
    if (second == 0) {
        work(state, 13, "the second child");
        exit(0);
    }
    work(state, 3, "the parent");
    // The system makes no process for a child, which goes on.
    static int before, after, inside;
    const pid_t limited = fork_session();
    if (limited == 0) {
        make_no_process();
        const pid_t none =
            fork_between([] { before++; }, [] { after++; }, [] { inside++; }, reason, sizeof reason);
        REQUIRE(none == -1 && strstr(reason, "cannot start a process"), "%d: %s", none, reason);
        REQUIRE(before == 1 && after == 1 && inside == 0, "%d %d %d", before, after, inside);
        work(state, 15, "the child that makes no process");
        _exit(0);
    }
    must_succeed(limited, "the child that makes no process");
    // A child that is killed, and one that ends before it comes for its session.
    const pid_t killed = fork_session();
    if (killed == 0) {
        step<<<COUNT / 256, 256, 0, state.stream>>>(state.data, 9);
        raise(SIGKILL);
    }
    int status;
    REQUIRE(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status), "it ended with %#x", status);
    const pid_t early =
        fork_between([] { before++; }, [] { after++; }, [] { _exit(7); }, reason, sizeof reason);
    REQUIRE(early > 0 && before == 1 && after == 1, "%d: %s", early, reason);
    REQUIRE(waitpid(early, &status, 0) == early && WEXITSTATUS(status) == 7, "it ended with %#x", status);
    work(state, 4, "the parent");
    // A function that a stream calls cannot fork.
    static pid_t forked = 0;
    const auto function = [](void *) { forked = fork_with_session(reason, sizeof reason); };
    CHECK_CUDA(cudaLaunchHostFunc(state.stream, function, nullptr));
    CHECK_CUDA(cudaStreamSynchronize(state.stream));
    REQUIRE(forked == -1 && strstr(reason, "outside of that"), "%d: %s", forked, reason);
    // As ever, a child of the system's fork has no session.
    const pid_t third = fork();
    if (third == 0) {
        REQUIRE(fork_with_session(reason, sizeof reason) == -1, "a child without a session has forked it");
        int devices;
        REQUIRE(cudaGetDeviceCount(&devices) != cudaSuccess || cudaFree(state.data) != cudaSuccess,
                "it uses the GPU");
        _exit(0);
    }
    must_succeed(third, "the child without a session");
    const pid_t fourth = fork_session();
    if (fourth == 0) {
        // Another program has no session, and may open its own.
        execl("/proc/self/exe", "forked_session", "alone", nullptr);
        _exit(1);
    }
    must_succeed(fourth, "the child that becomes another program");
    must_succeed(first, "the first child");
    must_succeed(second, "the second child");
    char done;
    close(ends_of_pipe[1]);
    REQUIRE(read(ends_of_pipe[0], &done, 1) == 1, "the grandchild has failed");
    ends = true;
    worker.join();
    std::vector<unsigned> counted(COUNT);
    CHECK_CUDA(cudaMemcpy(counted.data(), beside, BYTES, cudaMemcpyDeviceToHost));
    for (unsigned value : counted)
        REQUIRE(value == rounds, "the thread beside has %u of %u rounds", value, rounds);
    work(state, 6, "the parent, at the end");
    return pass();
}
