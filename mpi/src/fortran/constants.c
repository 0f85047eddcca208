// Fortran's constants: the addresses of variables, which the program and its MPI share.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "fortran.h"

#if HAS_FORTRAN

// Looking names up takes longer than a short message: the variables stay where they are.
struct variable {
    const char *name, *other;
    const void *addresses[2];
    bool is_known;
};

static bool is_the(struct variable *variable, const void *address) {
    if (!__atomic_load_n(&variable->is_known, __ATOMIC_ACQUIRE)) {
        variable->addresses[0] = dlsym(RTLD_DEFAULT, variable->name);
        variable->addresses[1] = dlsym(RTLD_DEFAULT, variable->other);
        __atomic_store_n(&variable->is_known, true, __ATOMIC_RELEASE);
    }
    return address != NULL && (address == variable->addresses[0] || address == variable->addresses[1]);
}

#ifdef OPEN_MPI
#define VARIABLE(word, other_name) {.name = "mpi_fortran_" word "_", .other = "mpi_fortran_" word}

void *buffer_of(const void *address) {
    static struct variable bottom = VARIABLE("bottom", ), in_place = VARIABLE("in_place", );
    if (is_the(&in_place, address)) return MPI_IN_PLACE;
    return is_the(&bottom, address) ? MPI_BOTTOM : (void *)address;
}
#else
#define VARIABLE(word, other_name) \
    {.name = "MPIR_F08_MPI_" other_name "_OBJ", .other = "MPIR_F08_MPI_" other_name}
#endif

bool is_ignored(const MPI_Fint *status) {
    static struct variable ignored = VARIABLE("status_ignore", "STATUS_IGNORE");
    return is_the(&ignored, status);
}

bool are_ignored(const MPI_Fint *statuses) {
    static struct variable ignored = VARIABLE("statuses_ignore", "STATUSES_IGNORE");
    return is_the(&ignored, statuses);
}

void store_status(const MPI_Status *from, MPI_Fint *to) {
    if (is_ignored(to)) return;
    MPI_Status status;
    PMPI_Status_f2c(to, &status);
    copy_status(from, &status);
    PMPI_Status_c2f(&status, to);
}

int store_request(int error, MPI_Request request, MPI_Fint *to) {
    if (error == MPI_SUCCESS) *to = PMPI_Request_c2f(request);
    return error;
}

#endif
