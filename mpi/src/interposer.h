// Interposer: the interface between its files.
//
// The interposer defines the program's MPI calls (MPI_*) and calls its MPI (PMPI_*). A call with host memory,
// while no operation in flight could need progress, calls the MPI at once.
#ifndef CAUSEWAY_INTERPOSER_H
#define CAUSEWAY_INTERPOSER_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "../causeway_comm.h"

#define EXPORT __attribute__((visibility("default")))

// What MPI 4 has, and Open MPI 5, which calls itself MPI 3.1: sessions, persistent collective calls,
// partitioned messages, MPI_Isendrecv.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_MPI_4 1
#else
#define HAS_MPI_4 0
#endif

// job.c: this process, and what all files need.

// Whether descriptors may be received: this process has joined a job.
extern bool in_job;
// visible.c: makes the MPI's functions visible to the interposer, before the first of them is called. The
// caller is an address in the program, or in its library.
void make_mpi_visible(const void *caller);
// After the MPI is initialized, and before it is finalized.
void join_job(void);
void leave_job(void);
// From now on several threads may call.
void expect_threads(void);
// Whether several threads may call.
extern bool has_threads;
static inline bool may_have_threads(void) {
    return has_threads;
}
// Acquired where threads may call concurrently. It is recursive.
void lock_mutex(void);
void unlock_mutex(void);
static inline void lock(void) {
    if (has_threads) lock_mutex();
}
static inline void unlock(void) {
    if (has_threads) unlock_mutex();
}
// The rank in the job of a communicator's rank, or -1 if it is in another one.
int job_rank(MPI_Comm comm, int rank);
// A number that no two communicators have.
uint64_t comm_id(MPI_Comm comm);
// A communicator for the errors of calls that have none (self_comm.c).
MPI_Comm error_comm(void);
// Calls the communicator's error handler for an error of the interposer with this message, and returns the
// error code.
int raise_error(MPI_Comm comm, const char *call, const char *message);
// Returns the code alone.
int error_code(const char *call, const char *message);

// attributes.c

// Finds an attribute of a communicator, by a key that is made at the first call; `delete` frees the value,
// in the call that frees the communicator.
bool find_attribute(MPI_Comm comm, int *key, MPI_Comm_delete_attr_function *forget, void *unexpected);
// Deletes an attribute of MPI_COMM_WORLD, if there is one.
void delete_world_attribute(int key);

// support.c

// Whether the MPI itself supports memory on a GPU.
bool mpi_is_gpu_aware(void);

// self_comm.c: a communicator of this rank alone, which is the interposer's.

MPI_Comm self_comm(void);
// Whether a predefined operation is for elements of a predefined type: the MPI is asked, and calls no error
// handler of the program's.
bool can_reduce(MPI_Op op, MPI_Datatype element);
// Frees it before the MPI, or its last session, ends.
void free_self_comm(void);

#endif
