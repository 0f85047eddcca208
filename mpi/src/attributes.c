// What the interposer keeps with communicators: attributes of them. Calls that free communicators.
//
// They are deleted in the call by which the program frees the communicator, and not when the last message of
// it is complete. MPICH 4.0.2 frees it then from inside its progress, where it would make the call that
// deletes an attribute without its lock: another thread could enter the progress of UCX
// ("worker->inprogress"), or find its queues half changed. The same is done for datatypes (datatype/pack.c).

#include <stdlib.h>

#include "operation/operation.h"

// Those that have been made.
enum { MAX_KEYS = 8 };
static int keys[MAX_KEYS];
static int key_count;

bool find_attribute(MPI_Comm comm, int *key, MPI_Comm_delete_attr_function *delete, void *value) {
    int is_known = 0;
    lock();
    if (*key == MPI_KEYVAL_INVALID) {
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, key, NULL);
        if (key_count == MAX_KEYS) abort();
        keys[key_count++] = *key;
    }
    PMPI_Comm_get_attr(comm, *key, value, &is_known);
    unlock();
    return is_known;
}

static void delete_attribute(MPI_Comm comm, int key) {
    void *value;
    int is_known = 0;
    // Deleting one that does not exist is an error.
    PMPI_Comm_get_attr(comm, key, &value, &is_known);
    if (is_known) PMPI_Comm_delete_attr(comm, key);
}

void delete_world_attribute(int key) {
    if (key != MPI_KEYVAL_INVALID) delete_attribute(MPI_COMM_WORLD, key);
}

// The program frees the communicator. Those that it may not free keep theirs.
static void delete_attributes(const MPI_Comm *comm) {
    if (comm == NULL || *comm == MPI_COMM_NULL || *comm == MPI_COMM_WORLD || *comm == MPI_COMM_SELF) return;
    lock();
    int count = key_count;
    unlock();
    // Without the lock, which is not held in calls of the MPI that may wait.
    for (int at = 0; at < count; at++) delete_attribute(*comm, keys[at]);
}

EXPORT int MPI_Comm_free(MPI_Comm *comm) {
    delete_attributes(comm);
    return PMPI_Comm_free(comm);
}

EXPORT int MPI_Comm_disconnect(MPI_Comm *comm) {
    bool has_entered = enter_mpi();
    delete_attributes(comm);
    return leave_mpi(has_entered, PMPI_Comm_disconnect(comm));
}
