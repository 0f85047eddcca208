// Functions of the SHMEM facade that the host calls, and those that both call: the program's life, the heap,
// teams, barriers, and transfers of a PE's own.
#pragma once

namespace causeway::shmem {

CAUSEWAY_SHMEM_BOTH int team_number(nvshmem_team_t which, bool is_count) {
#ifdef __CUDA_ARCH__
    State own = state_of_source;
    int pe = static_cast<int>(own.team.rank), pes = static_cast<int>(own.team.ranks);
    int node_pe = own.node_pe, node_pes = own.node_pes;
#else
    Membership own = job().member;
    int pe = own.pe, pes = own.pes;
    if (!job().is_initialised) ready();
    int node_pe = own.node_pe, node_pes = own.node_pes;
    if (which == NVSHMEM_TEAM_SHARED || which == NVSHMEMX_TEAM_NODE) node_number(node_pe, "a team of a host");
#endif
    if (which == NVSHMEM_TEAM_WORLD) return is_count ? pes : pe;
    if (which == NVSHMEM_TEAM_SHARED || which == NVSHMEMX_TEAM_NODE) return is_count ? node_pes : node_pe;
    return -1;
}

// The task in place of the host's function; for transfers of the host, which return when they are done.
CAUSEWAY_SHMEM_BOTH void put_by_both(void *to, const void *from, size_t bytes, int pe) {
#ifdef __CUDA_ARCH__
    put<Thread, true>(to, from, bytes, pe);
#else
    ready();
    run_and_wait({Task::put, to, from, bytes, nullptr, 0, 0, pe}, "a put of the host");
#endif
}

CAUSEWAY_SHMEM_BOTH void get_by_both(void *to, const void *from, size_t bytes, int pe) {
#ifdef __CUDA_ARCH__
    get<Thread, true>(to, from, bytes, pe);
#else
    ready();
    run_and_wait({Task::get, to, from, bytes, nullptr, 0, 0, pe}, "a get of the host");
#endif
}

template <class T> CAUSEWAY_SHMEM_BOTH void put_value_by_both(T *to, T value, int pe) {
#ifdef __CUDA_ARCH__
    put_value<T>(to, value, pe);
#else
    ready();
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    run_and_wait({Task::put_value, to, nullptr, sizeof value, nullptr, bits, 0, pe}, "a put of the host");
#endif
}

template <class T> CAUSEWAY_SHMEM_BOTH T get_value_by_both(const T *from, int pe) {
#ifdef __CUDA_ARCH__
    return get_value<T>(from, pe);
#else
    T value;
    get_to_host(&value, from, sizeof value, pe);
    return value;
#endif
}

CAUSEWAY_SHMEM_BOTH void barrier_by_both() {
#ifdef __CUDA_ARCH__
    barrier<Thread>();
#else
    ready();
    run_and_wait({Task::barrier, nullptr, nullptr, 0, nullptr, HOSTS_BARRIER, 0, 0}, "nvshmem_barrier_all");
#endif
}

CAUSEWAY_SHMEM_BOTH void quiet_by_both() {
#ifdef __CUDA_ARCH__
    must(causeway::quiet<Thread>(team()));
#else
    ready();
    run_and_wait({Task::quiet, nullptr, nullptr, 0, nullptr, 0, 0, 0}, "nvshmem_quiet");
#endif
}

} // namespace causeway::shmem

// The program's life.

inline int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *id) {
    *id = NVSHMEMX_UNIQUEID_INITIALIZER;
    return causeway::shmem::write_nonce(id->internal) ? NVSHMEMX_SUCCESS : NVSHMEMX_ERROR_INTERNAL;
}

inline int nvshmemx_set_attr_uniqueid_args(int rank, int ranks, const nvshmemx_uniqueid_t *id,
                                           nvshmemx_init_attr_t *attributes) {
    if (rank < 0 || rank >= ranks) return NVSHMEMX_ERROR_INVALID_VALUE;
    attributes->uid_args = {const_cast<nvshmemx_uniqueid_t *>(id), rank, ranks};
    return NVSHMEMX_SUCCESS;
}

inline int nvshmemx_init_attr(unsigned int flags, nvshmemx_init_attr_t *attributes) {
    using namespace causeway::shmem;
    Job &own = job();
    if (own.is_initialised) return NVSHMEMX_SUCCESS;
    if (flags == NVSHMEMX_INIT_WITH_MPI_COMM) {
        if (own.join_by_mpi == nullptr) {
            report("nvshmemx_init_attr: no source of the program includes mpi.h before nvshmem.h");
            return NVSHMEMX_ERROR_NOT_SUPPORTED;
        }
        if (!own.join_by_mpi(attributes->mpi_comm, false, &own.member)) {
            report("nvshmemx_init_attr: MPI_Init has to come before it");
            return NVSHMEMX_ERROR_INVALID_VALUE;
        }
    } else if (flags == NVSHMEMX_INIT_WITH_UNIQUEID) {
        const nvshmemx_uniqueid_t *id = attributes->uid_args.id;
        own.member = {};
        own.member.pe = attributes->uid_args.myrank, own.member.pes = attributes->uid_args.nranks;
        std::memcpy(own.member.nonce, id->internal, 32);
        find_node(&own.member);
    } else {
        report("nvshmemx_init_attr: flags of 0x%x were given: it takes NVSHMEMX_INIT_WITH_MPI_COMM or "
               "NVSHMEMX_INIT_WITH_UNIQUEID",
               flags);
        return NVSHMEMX_ERROR_NOT_SUPPORTED;
    }
    return begin();
}

inline void nvshmem_init() {
    using namespace causeway::shmem;
    Job &own = job();
    if (own.is_initialised) return;
    bool is_joined = own.join_by_mpi != nullptr && own.join_by_mpi(nullptr, false, &own.member);
    if (!is_joined) is_joined = join_by_environment(&own.member);
    if (!is_joined && own.join_by_mpi != nullptr) is_joined = own.join_by_mpi(nullptr, true, &own.member);
    if (!is_joined) {
        report(
            "nvshmem_init: the launcher has started %d PEs, and they have nothing in common by which they "
            "could "
            "prove to be of one job: set CAUSEWAY_DEVICE_NONCE to 32 hexadecimal digits (openssl rand -hex "
            "16), "
            "new ones for each job, or include mpi.h before nvshmem.h",
            own.member.pes);
        end_program(1);
    }
    begin();
}

inline void nvshmem_finalize() { causeway::shmem::finish(); }

[[noreturn]] inline void nvshmem_global_exit(int status) { causeway::shmem::end_program(status); }

inline int nvshmemx_init_status() { return causeway::shmem::job().is_initialised ? 2 : 0; }

inline void nvshmem_info_get_version(int *major, int *minor) { *major = 1, *minor = 3; }

inline void nvshmem_info_get_name(char *name) { std::strcpy(name, "Causeway, by the API of NVSHMEM"); }

// Who is who.

CAUSEWAY_SHMEM_BOTH int nvshmem_my_pe() { return causeway::shmem::team_number(NVSHMEM_TEAM_WORLD, false); }
CAUSEWAY_SHMEM_BOTH int nvshmem_n_pes() { return causeway::shmem::team_number(NVSHMEM_TEAM_WORLD, true); }
CAUSEWAY_SHMEM_BOTH int nvshmem_team_my_pe(nvshmem_team_t team) {
    return causeway::shmem::team_number(team, false);
}
CAUSEWAY_SHMEM_BOTH int nvshmem_team_n_pes(nvshmem_team_t team) {
    return causeway::shmem::team_number(team, true);
}

// The heap.

inline void *nvshmem_malloc(size_t bytes) { return causeway::shmem::allocate(bytes, 256, false); }

inline void *nvshmem_calloc(size_t count, size_t bytes) {
    if (bytes != 0 && count > SIZE_MAX / bytes) return nullptr;
    return causeway::shmem::allocate(count * bytes, 256, true);
}

inline void *nvshmem_align(size_t alignment, size_t bytes) {
    bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
    return is_power ? causeway::shmem::allocate(bytes, alignment, false) : nullptr;
}

inline void nvshmem_free(void *address) { causeway::shmem::release(address); }

// An object as this PE's kernels reach a peer's; null where they do not.
CAUSEWAY_SHMEM_BOTH void *nvshmem_ptr(const void *object, int pe) {
#ifdef __CUDA_ARCH__
    using namespace causeway::shmem;
    if (!is_in_heap(object, 1) || static_cast<causeway::u32>(pe) >= team().ranks) return nullptr;
    return mapped_at(reinterpret_cast<causeway::u64>(object) - heap().base, pe);
#else
    return causeway::shmem::peer_address(object, pe);
#endif
}

// Order and barriers. Those of the host are kernels in a stream of their own, and wait for no other stream.

CAUSEWAY_SHMEM_BOTH void nvshmem_barrier_all() { causeway::shmem::barrier_by_both(); }
CAUSEWAY_SHMEM_BOTH void nvshmem_sync_all() { causeway::shmem::barrier_by_both(); }
CAUSEWAY_SHMEM_BOTH void nvshmem_quiet() { causeway::shmem::quiet_by_both(); }

CAUSEWAY_SHMEM_BOTH void nvshmem_fence() {
#ifdef __CUDA_ARCH__
    causeway::shmem::must(causeway::fence<causeway::Thread>(causeway::shmem::team()));
#else
    causeway::shmem::quiet_by_both();
#endif
}

// Transfers of both. The host's are done when they return, the ones without a wait, too.

CAUSEWAY_SHMEM_BOTH void nvshmem_putmem(void *to, const void *from, size_t bytes, int pe) {
    causeway::shmem::put_by_both(to, from, bytes, pe);
}

CAUSEWAY_SHMEM_BOTH void nvshmem_getmem(void *to, const void *from, size_t bytes, int pe) {
    causeway::shmem::get_by_both(to, from, bytes, pe);
}

#define CAUSEWAY_SHMEM_X(NAME, TYPE)                                                                         \
    CAUSEWAY_SHMEM_BOTH void nvshmem_##NAME##_put(TYPE *to, const TYPE *from, size_t count, int pe) {        \
        causeway::shmem::put_by_both(to, from, count * sizeof(TYPE), pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_BOTH void nvshmem_##NAME##_get(TYPE *to, const TYPE *from, size_t count, int pe) {        \
        causeway::shmem::get_by_both(to, from, count * sizeof(TYPE), pe);                                    \
    }                                                                                                        \
    CAUSEWAY_SHMEM_BOTH void nvshmem_##NAME##_p(TYPE *to, TYPE value, int pe) {                              \
        causeway::shmem::put_value_by_both<TYPE>(to, value, pe);                                             \
    }                                                                                                        \
    CAUSEWAY_SHMEM_BOTH TYPE nvshmem_##NAME##_g(const TYPE *from, int pe) {                                  \
        return causeway::shmem::get_value_by_both<TYPE>(from, pe);                                           \
    }
CAUSEWAY_SHMEM_RMA_TYPES(CAUSEWAY_SHMEM_X)
#undef CAUSEWAY_SHMEM_X
