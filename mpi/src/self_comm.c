// A communicator of this rank alone: for requests of the interposer, for queries of the MPI, and for errors
// of calls that have no communicator.
//
// A program that uses only sessions has no MPI_COMM_SELF. There the communicator is made from a session of
// the interposer, which ends with the program's last one: until then the MPI is not finalized.

#include <stdlib.h>

#include "interposer.h"

static MPI_Comm own = MPI_COMM_NULL;

static bool has_world(void) {
    int is_initialized = 0, is_finalized = 0;
    PMPI_Initialized(&is_initialized);
    if (is_initialized) PMPI_Finalized(&is_finalized);
    return is_initialized && !is_finalized;
}

MPI_Comm error_comm(void) {
    if (!has_world()) return self_comm();
    return MPI_VERSION >= 4 ? MPI_COMM_SELF : MPI_COMM_WORLD;
}

#if HAS_MPI_4

static MPI_Session session = MPI_SESSION_NULL;
static int session_count;

static void make_of_session(void) {
    MPI_Group group;
    if (PMPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS) return;
    if (PMPI_Group_from_session_pset(session, "mpi://SELF", &group) != MPI_SUCCESS) return;
    PMPI_Comm_create_from_group(group, "causeway", MPI_INFO_NULL, MPI_ERRORS_RETURN, &own);
    PMPI_Group_free(&group);
}

void free_self_comm(void) {
    if (own != MPI_COMM_NULL) PMPI_Comm_free(&own);
    if (session != MPI_SESSION_NULL) PMPI_Session_finalize(&session);
}

EXPORT int MPI_Session_init(MPI_Info info, MPI_Errhandler handler, MPI_Session *made) {
    make_mpi_visible(__builtin_return_address(0));
    int error = PMPI_Session_init(info, handler, made);
    if (error != MPI_SUCCESS) return error;
    // Each session may have its own threads.
    expect_threads();
    lock();
    session_count++;
    unlock();
    return error;
}

EXPORT int MPI_Session_finalize(MPI_Session *ended) {
    lock();
    if (--session_count == 0 && !has_world()) free_self_comm();
    unlock();
    return PMPI_Session_finalize(ended);
}

#else

static void make_of_session(void) {}

void free_self_comm(void) {
    if (own != MPI_COMM_NULL) PMPI_Comm_free(&own);
}

#endif

MPI_Comm self_comm(void) {
    lock();
    if (own == MPI_COMM_NULL) {
        // A communicator made by a split has none of the program's attributes.
        if (has_world())
            PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &own);
        else
            make_of_session();
        if (own != MPI_COMM_NULL) PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    }
    unlock();
    return own;
}

bool can_reduce(MPI_Op op, MPI_Datatype element) {
    enum { MAX_EXTENT = 64 };
    char from[MAX_EXTENT] = {0}, into[MAX_EXTENT];
    MPI_Aint lower, extent;
    if (PMPI_Type_get_extent(element, &lower, &extent) != MPI_SUCCESS || extent > MAX_EXTENT) return false;
    // Of several threads one makes a collective call of a communicator.
    lock();
    int error = PMPI_Allreduce(from, into, 1, element, op, self_comm());
    unlock();
    return error == MPI_SUCCESS;
}
