// Bootstrap of the SHMEM facade by MPI, for sources that include mpi.h before nvshmem.h: ranks, those of this
// host, and a nonce that rank 0 draws.
#pragma once

#include "host.h"

#ifdef MPI_VERSION

namespace causeway::shmem {

static bool join_by_this_mpi(void *communicator, bool may_initialize, Membership *member) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (!is_initialized && !may_initialize) return false;
    if (!is_initialized) MPI_Init(nullptr, nullptr);
    MPI_Comm all = communicator == nullptr ? MPI_COMM_WORLD : *static_cast<MPI_Comm *>(communicator), node;
    MPI_Comm_rank(all, &member->pe);
    MPI_Comm_size(all, &member->pes);
    MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, member->pe, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &member->node_pe);
    MPI_Comm_size(node, &member->node_pes);
    MPI_Comm_free(&node);
    bool is_drawn = member->pe != 0 || write_nonce(member->nonce);
    MPI_Bcast(member->nonce, sizeof member->nonce, MPI_CHAR, 0, all);
    return is_drawn;
}

namespace {

struct MpiRegistration {
    MpiRegistration() { job().join_by_mpi = join_by_this_mpi; }
};

[[maybe_unused]] const MpiRegistration mpi_registration;

} // namespace

} // namespace causeway::shmem

#endif
