// Which ranks of the job are a communicator's?

#include <stdlib.h>

#include "collective.h"

static int forget_members(MPI_Comm comm, int key, void *members, void *unused) {
    (void)comm, (void)key, (void)unused;
    free(members);
    return MPI_SUCCESS;
}

static struct members *find_members(MPI_Comm comm) {
    int is_inter = 1, rank = 0, count = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &count);
    struct members *members = calloc(1, sizeof *members + (size_t)count * sizeof *members->ranks);
    if (members == NULL) abort();
    members->is_supported = !is_inter && count > 1;
    members->rank = (uint32_t)rank;
    members->count = (uint32_t)count;
    for (int at = 0; at < count && members->is_supported; at++) {
        int of_job = job_rank(comm, at);
        members->ranks[at] = (uint32_t)of_job;
        members->is_supported = of_job >= 0;
    }
    return members;
}

struct members *members_of(MPI_Comm comm) {
    static int key = MPI_KEYVAL_INVALID;
    struct members *members = NULL;
    lock();
    if (!find_attribute(comm, &key, forget_members, &members)) {
        members = find_members(comm);
        PMPI_Comm_set_attr(comm, key, members);
    }
    unlock();
    return members;
}
