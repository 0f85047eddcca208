// Initialization, finalization and probes from Fortran, and the constants of Fortran: the addresses of
// variables that the program and its MPI share.

#define _GNU_SOURCE
#include <dlfcn.h>

#include "../probe.h"
#include "fortran.h"

// Constants.

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

// Calls without a buffer.

#if HAS_FORTRAN

FORTRAN(init, (MPI_Fint *error), MPI_Init(NULL, NULL))
FORTRAN(finalize, (MPI_Fint *error), MPI_Finalize())

static int init_thread(MPI_Fint required, MPI_Fint *provided) {
    int got = 0, error = MPI_Init_thread(NULL, NULL, required, &got);
    *provided = got;
    return error;
}
FORTRAN(init_thread, (MPI_Fint *required, MPI_Fint *provided, MPI_Fint *error),
        init_thread(*required, provided))

static int probe(int from, int tag, MPI_Comm c, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int error = MPI_Probe(from, tag, c, &status);
    store_status(&status, f_status);
    return error;
}
FORTRAN(probe, (MPI_Fint *from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *status, MPI_Fint *error),
        probe(*from, *tag, COMM(c), status))

static int probe_once(int from, int tag, MPI_Comm c, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int found = 0, error = MPI_Iprobe(from, tag, c, &found, &status);
    *flag = found != 0;
    if (found) store_status(&status, f_status);
    return error;
}
FORTRAN(iprobe,
        (MPI_Fint *from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error),
        probe_once(*from, *tag, COMM(c), flag, status))

static int probe_message(int from, int tag, MPI_Comm c, MPI_Fint *message, MPI_Fint *f_status) {
    MPI_Status status = {0};
    MPI_Message found = MPI_MESSAGE_NULL;
    int error = MPI_Mprobe(from, tag, c, &found, &status);
    if (error == MPI_SUCCESS) *message = PMPI_Message_c2f(found);
    store_status(&status, f_status);
    return error;
}
FORTRAN(mprobe,
        (MPI_Fint *from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *message, MPI_Fint *status, MPI_Fint *error),
        probe_message(*from, *tag, COMM(c), message, status))

static int probe_message_once(int from, int tag, MPI_Comm c, MPI_Fint *flag, MPI_Fint *message,
                              MPI_Fint *f_status) {
    MPI_Status status = {0};
    MPI_Message found = MPI_MESSAGE_NULL;
    int has_found = 0, error = MPI_Improbe(from, tag, c, &has_found, &found, &status);
    *flag = has_found != 0;
    if (!has_found) return error;
    *message = PMPI_Message_c2f(found);
    store_status(&status, f_status);
    return error;
}
FORTRAN(improbe,
        (MPI_Fint *from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *flag, MPI_Fint *message, MPI_Fint *status,
         MPI_Fint *error),
        probe_message_once(*from, *tag, COMM(c), flag, message, status))

#endif
