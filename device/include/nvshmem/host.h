// Host's side of the SHMEM facade: how a program becomes a PE, and the symmetric heap.
//
// A PE is a rank of a team of processes (causeway/team.h), and its heap one window. The team is made when it
// is first needed, if no CUDA context is current before: programs choose their GPU after nvshmem_init. What
// cannot be done is printed, with the reason, and the program ends where the published function has no
// result.
#pragma once

#include "state.h"

#include <causeway/team.h>
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <sys/random.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

// How long a kernel waits at most: PEs may compute for long before others come.
#ifndef CAUSEWAY_SHMEM_LIMIT_MILLISECONDS
#define CAUSEWAY_SHMEM_LIMIT_MILLISECONDS 600000
#endif

typedef struct {
    int version;
    char internal[124];
} nvshmemx_uniqueid_t;

typedef struct {
    int version;
    void *mpi_comm; // an MPI_Comm's address
    struct {
        nvshmemx_uniqueid_t *id;
        int myrank;
        int nranks;
    } uid_args;
} nvshmemx_init_attr_t;

#define NVSHMEMX_UNIQUEID_INITIALIZER {1, {0}}
#define NVSHMEMX_INIT_ATTR_INITIALIZER {1, nullptr, {nullptr, 0, 0}}

enum { NVSHMEMX_INIT_WITH_MPI_COMM = 1 << 1, NVSHMEMX_INIT_WITH_UNIQUEID = 1 << 3 };

namespace causeway::shmem {

// The barriers of the host's calls and of its streams, which may run at the same time.
constexpr u32 HOSTS_BARRIER = 1;
constexpr u32 STREAMS_BARRIER = 2;

// What a kernel does for the host.
struct Task {
    enum Kind {
        barrier,
        agree,
        put,
        get,
        put_value,
        put_signal,
        signal,
        wait,
        quiet,
        broadcast,
        collect,
        exchange,
    } kind;
    void *to;
    const void *from;
    u64 bytes;
    u64 *word;
    u64 value;
    int operation; // of a signal, or a comparison
    int pe;
};

// Of a source that nvcc has compiled: how its kernels learn of the state, and how one does a task.
struct Source {
    cudaError_t (*write_state)(const State &state);
    cudaError_t (*run)(const Task &task, cudaStream_t stream);
    bool is_written;
};

// What a bootstrap says: who this PE is, and the team's nonce.
struct Membership {
    int pe, pes, node_pe, node_pes;
    char nonce[33];
};

// Free and used ranges of the heap. All PEs do the same in the same order, so that objects lie at the same
// offset.
class Ranges {
  public:
    void begin(u64 from, u64 to) {
        free_.clear(), used_.clear();
        free_[from] = to - from;
    }

    // 0 where there is no room.
    u64 take(u64 bytes, u64 alignment) {
        for (auto &[start, length] : free_) {
            u64 at = (start + alignment - 1) / alignment * alignment, end = start + length;
            if (at > end || bytes > end - at) continue;
            u64 from = start;
            free_.erase(from);
            if (at > from) free_[from] = at - from;
            if (at + bytes < end) free_[at + bytes] = end - at - bytes;
            used_[at] = bytes;
            return at;
        }
        return 0;
    }

    bool give_up(u64 at) {
        auto used = used_.find(at);
        if (used == used_.end()) return false;
        u64 bytes = used->second;
        used_.erase(used);
        auto next = free_.upper_bound(at);
        if (next != free_.end() && next->first == at + bytes) {
            bytes += next->second;
            next = free_.erase(next);
        }
        if (next != free_.begin()) {
            auto before = std::prev(next);
            if (before->first + before->second == at) {
                before->second += bytes;
                return true;
            }
        }
        free_[at] = bytes;
        return true;
    }

  private:
    std::map<u64, u64> free_, used_;
};

// This process's PE.
struct Job {
    bool is_initialised = false;
    Membership member = {};
    unsigned long joined = 0; // teams of the environment's nonce so far
    causeway_team *team = nullptr;
    u32 window = 0;
    State state = {};
    WindowState heap = {}; // where it lies at every peer
    Ranges ranges;
    u64 agreements = 0;
    cudaStream_t stream = nullptr;
    std::vector<Source> sources;
    // Of a source that includes mpi.h first.
    bool (*join_by_mpi)(void *communicator, bool may_initialize, Membership *member) = nullptr;
};

inline Job &job() {
    static Job job;
    return job;
}

__attribute__((format(printf, 1, 2))) inline void report(const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::fprintf(stderr, "causeway: PE %d: ", job().member.pe);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
}

[[noreturn]] inline void end_program(int status) {
    if (job().team != nullptr) causeway_team_abort(job().team);
    std::fflush(nullptr);
    // Destructors could wait for kernels that never end.
    std::_Exit(status);
}

// A call of the runtime that has to succeed. Why a kernel has ended the team says more than the driver.
inline void must_succeed(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    bool has_ended = job().team != nullptr && causeway_team_check(job().team) != 0;
    report("%s: %s", what, has_ended ? causeway_comm_error() : cudaGetErrorString(status));
    end_program(1);
}

inline bool write_nonce(char *nonce) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return false;
    for (int at = 0; at < 16; at++) std::snprintf(nonce + 2 * at, 3, "%02x", bytes[at]);
    return true;
}

inline bool number_of(const char *const *names, int *number) {
    for (; *names != nullptr; names++) {
        const char *text = std::getenv(*names);
        if (text == nullptr || *text == '\0') continue;
        char *end = nullptr;
        long value = std::strtol(text, &end, 10);
        if (*end != '\0' || value < 0 || value > 1 << 20) continue;
        *number = static_cast<int>(value);
        return true;
    }
    return false;
}

// Who this PE is among those of its host, as its launcher says; where the job has one host all are.
inline void find_node(Membership *member) {
    static const char *const RANKS[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
                                        nullptr};
    static const char *const SIZES[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", nullptr};
    member->node_pe = member->node_pes = -1;
    const char *hosts = std::getenv("CAUSEWAY_COMM_HOSTS");
    if (hosts == nullptr || std::strchr(hosts, ',') == nullptr) {
        member->node_pe = member->pe, member->node_pes = member->pes;
    } else if (!number_of(RANKS, &member->node_pe) || !number_of(SIZES, &member->node_pes)) {
        member->node_pe = member->node_pes = -1;
    }
}

// By what a launcher of processes sets.
inline bool join_by_environment(Membership *member) {
    static const char *const RANKS[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID",
                                        nullptr};
    static const char *const SIZES[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", nullptr};
    if (!number_of(RANKS, &member->pe) || !number_of(SIZES, &member->pes)) member->pe = 0, member->pes = 1;
    find_node(member);
    if (member->pes == 1) return write_nonce(member->nonce);
    const char *nonce = std::getenv("CAUSEWAY_DEVICE_NONCE");
    if (nonce == nullptr || std::strlen(nonce) != 32) return false;
    std::memcpy(member->nonce, nonce, 33);
    // Another team of the same PEs needs another nonce.
    unsigned long tail = std::strtoul(nonce + 24, nullptr, 16) + job().joined++;
    std::snprintf(member->nonce + 24, 9, "%08lx", tail & 0xffffffff);
    return true;
}

inline u64 heap_bytes() {
    const char *text = std::getenv("NVSHMEM_SYMMETRIC_SIZE");
    double size = 1 << 30;
    if (text != nullptr && *text != '\0') {
        char *unit = nullptr;
        size = std::strtod(text, &unit);
        const char *units = "kmgt", *found = *unit == '\0' ? nullptr : std::strchr(units, *unit | 0x20);
        for (long power = found == nullptr ? 0 : found - units + 1; power > 0; power--) size *= 1024;
        bool is_size = size >= 1 && size < static_cast<double>(MAX_WINDOW_BYTES);
        if (!is_size || (*unit != '\0' && found == nullptr)) {
            report(
                "NVSHMEM_SYMMETRIC_SIZE=%s is no size from 1 to 64G: write a number, and K, M or G behind it",
                text);
            end_program(1);
        }
    }
    return (static_cast<u64>(size) + HEAP_AT + 4095) / 4096 * 4096;
}

inline bool has_context() {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *context = nullptr;
    if (driver == nullptr) return false;
    auto current = reinterpret_cast<int (*)(void **)>(dlsym(driver, "cuCtxGetCurrent"));
    bool is_there = current != nullptr && current(&context) == 0 && context != nullptr;
    dlclose(driver);
    return is_there;
}

inline void run(const Task &task, cudaStream_t stream, const char *what) {
    must_succeed(job().sources[0].run(task, stream), what);
}

inline void run_and_wait(const Task &task, const char *what) {
    run(task, job().stream, what);
    must_succeed(cudaStreamSynchronize(job().stream), what);
}

// Whether all PEs say the same; a barrier as well.
inline bool agree(u64 value, const char *what) {
    Job &own = job();
    Task task = {};
    task.kind = Task::agree;
    task.value = value;
    // Rows in turn: a PE that has come out early writes the next one.
    task.bytes = own.agreements++ % 2;
    run_and_wait(task, what);
    u64 result = 0;
    must_succeed(cudaMemcpyAsync(&result, reinterpret_cast<void *>(own.state.heap.base + RESULT_AT),
                                 sizeof result, cudaMemcpyDeviceToHost, own.stream),
                 what);
    must_succeed(cudaStreamSynchronize(own.stream), what);
    return result == 1;
}

inline void write_states() {
    for (Source &source : job().sources) {
        if (source.is_written) continue;
        must_succeed(source.write_state(job().state), "a source's state");
        source.is_written = true;
    }
}

inline void make_team() {
    Job &own = job();
    // A context of the GPU that the program has chosen.
    must_succeed(cudaFree(nullptr), "a CUDA context");
    if (own.sources.empty()) {
        report(
            "a kernel is needed for what the host asks: have a source that nvcc compiles include nvshmem.h");
        end_program(1);
    }
    causeway_team_options options = {};
    options.limit_milliseconds = CAUSEWAY_SHMEM_LIMIT_MILLISECONDS;
    own.team = causeway_team_join(own.member.nonce, static_cast<u32>(own.member.pe),
                                  static_cast<u32>(own.member.pes), &options);
    if (own.team == nullptr) {
        report("the PEs have not met: %s", causeway_comm_error());
        end_program(1);
    }
    u64 bytes = heap_bytes();
    int window = causeway_window_create(own.team, CAUSEWAY_ON_DEVICE, bytes);
    own.window = static_cast<u32>(window);
    State &state = own.state;
    if (window < 0 || causeway_team_handle(own.team, static_cast<u32>(own.member.pe), &state.team) != 0 ||
        causeway_window_handle(own.team, own.window, static_cast<u32>(own.member.pe), &state.heap) != 0) {
        report("there is no symmetric heap of %llu bytes (NVSHMEM_SYMMETRIC_SIZE): %s", bytes,
               causeway_comm_error());
        end_program(1);
    }
    state.node_pe = own.member.node_pe, state.node_pes = own.member.node_pes;
    must_succeed(cudaMemcpy(&own.heap, state.heap.state, sizeof own.heap, cudaMemcpyDeviceToHost),
                 "the heap's state");
    own.ranges.begin(HEAP_AT, bytes);
    own.agreements = 0;
    must_succeed(cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking), "a stream");
    write_states();
    // The kernels are loaded now, and not while another one waits.
    Task task = {};
    task.kind = Task::quiet;
    run_and_wait(task, "the first kernel");
    agree(0, "the first barrier");
}

// To be called before all that needs the team.
inline Job &ready() {
    Job &own = job();
    if (!own.is_initialised) {
        report("a function was called that needs nvshmem_init or nvshmemx_init_attr before it");
        end_program(1);
    }
    if (own.team == nullptr) make_team();
    else write_states();
    return own;
}

inline int begin() {
    job().is_initialised = true;
    if (has_context()) make_team();
    return 0;
}

// The same memory at all PEs; null where there is none, or PEs ask for different things.
inline void *allocate(u64 bytes, u64 alignment, bool is_zeroed) {
    Job &own = ready();
    if (!agree(bytes * 31 + alignment, "an allocation")) {
        report(
            "%llu bytes at a multiple of %llu were asked for, and something else at another PE: all have to "
            "ask for the same",
            bytes, alignment);
        return nullptr;
    }
    if (bytes == 0) return nullptr;
    if (alignment < 256) alignment = 256;
    // The heap begins at a multiple of what the driver maps, which is all that a greater alignment can count on.
    u64 at = bytes <= ~255ull ? own.ranges.take((bytes + 255) / 256 * 256, alignment) : 0;
    if (at != 0 && (own.state.heap.base + at) % alignment != 0) {
        own.ranges.give_up(at);
        report("no memory of the symmetric heap lies at a multiple of %llu at all PEs", alignment);
        return nullptr;
    }
    if (at == 0) {
        report("the symmetric heap has no %llu bytes left: set NVSHMEM_SYMMETRIC_SIZE higher", bytes);
        return nullptr;
    }
    void *address = reinterpret_cast<void *>(own.state.heap.base + at);
    if (is_zeroed) {
        must_succeed(cudaMemsetAsync(address, 0, bytes, own.stream), "zeroes");
        must_succeed(cudaStreamSynchronize(own.stream), "zeroes");
        agree(0, "an allocation");
    }
    return address;
}

inline void release(void *address) {
    if (address == nullptr) return;
    Job &own = ready();
    u64 at = reinterpret_cast<u64>(address) - own.state.heap.base;
    if (!agree(at, "nvshmem_free") || !own.ranges.give_up(at)) {
        report("nvshmem_free: %p is no object that all PEs have allocated and not freed", address);
        end_program(1);
    }
}

inline void finish() {
    Job &own = job();
    if (!own.is_initialised) return;
    own.is_initialised = false;
    if (own.team == nullptr) return;
    agree(0, "nvshmem_finalize");
    must_succeed(cudaStreamDestroy(own.stream), "a stream");
    causeway_window_free(own.team, own.window);
    causeway_team_destroy(own.team);
    own.team = nullptr, own.state = {};
    for (Source &source : own.sources) source.is_written = false;
}

// An object of the heap as this PE's kernels reach a peer's; null where they do not.
inline void *peer_address(const void *object, int pe) {
    Job &own = ready();
    u64 offset = reinterpret_cast<u64>(object) - own.state.heap.base;
    bool is_there = offset < own.state.heap.bytes && pe >= 0 && pe < own.member.pes;
    if (!is_there || own.heap.peers[pe] == 0) return nullptr;
    return reinterpret_cast<void *>(own.heap.peers[pe] + offset);
}

// A value of a peer's that a kernel fetches for the host.
inline void get_to_host(void *value, const void *from, u64 bytes, int pe) {
    Job &own = ready();
    void *here = reinterpret_cast<void *>(own.state.heap.base + RESULT_AT + 8);
    run_and_wait({Task::get, here, from, bytes, nullptr, 0, 0, pe}, "a get of the host");
    must_succeed(cudaMemcpyAsync(value, here, bytes, cudaMemcpyDeviceToHost, own.stream),
                 "a get of the host");
    must_succeed(cudaStreamSynchronize(own.stream), "a get of the host");
}

// How many PEs a team has, and who this one is there: of the host's teams as far as known.
inline int node_number(int number, const char *what) {
    if (number >= 0) return number;
    report("%s: which PEs share this host is not known without MPI, nor from a launcher's variables", what);
    end_program(1);
}

} // namespace causeway::shmem
