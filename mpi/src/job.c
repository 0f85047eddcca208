// This process in the job, and what all files need: initialization, the lock, attributes of communicators,
// and errors.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collective/two_level.h"
#include "operation/operation.h"

bool in_job;

// Several threads use this state: a program may start with one, and open a session for several.
bool has_threads;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static MPI_Group job_group = MPI_GROUP_NULL;

void expect_threads(void) {
    has_threads = true;
}

void lock_mutex(void) {
    pthread_mutex_lock(&mutex);
}

void unlock_mutex(void) {
    pthread_mutex_unlock(&mutex);
}

// Spawned processes are another MPI_COMM_WORLD, with ranks of the same numbers: they get all bytes with the
// MPI.
static bool is_spawned(void) {
    MPI_Comm parent = MPI_COMM_NULL;
    PMPI_Comm_get_parent(&parent);
    return parent != MPI_COMM_NULL;
}

void join_job(void) {
    int threads = MPI_THREAD_SINGLE, rank = 0, ranks = 1;
    PMPI_Query_thread(&threads);
    if (threads == MPI_THREAD_MULTIPLE) expect_threads();
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *nonce = getenv("CAUSEWAY_COMM_JOB");
    if (nonce == NULL || *nonce == 0 || is_spawned()) return;
    if (causeway_comm_join(nonce, (uint32_t)rank, (uint32_t)ranks) != 0) {
        fprintf(stderr, "causeway: rank %d cannot join the job: %s\n", rank, causeway_comm_error());
        // MPICH's launcher drops a rank's output that it has not read when that rank aborts: the reason was
        // lost now and then (4.0.2, 2026-11-25).
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    PMPI_Comm_group(MPI_COMM_WORLD, &job_group);
    in_job = true;
}

void leave_job(void) {
    in_job = false;
    PMPI_Group_free(&job_group);
}

int job_rank(MPI_Comm comm, int rank) {
    if (!in_job) return -1;
    int is_inter = 0, found = MPI_UNDEFINED, size = 0;
    MPI_Group group;
    PMPI_Comm_test_inter(comm, &is_inter);
    int error = is_inter ? PMPI_Comm_remote_group(comm, &group) : PMPI_Comm_group(comm, &group);
    if (error != MPI_SUCCESS) return -1;
    PMPI_Group_size(group, &size);
    // Open MPI 4.1 reads past the end of its table for a rank that the group does not have.
    if (rank >= 0 && rank < size) PMPI_Group_translate_ranks(group, 1, &rank, job_group, &found);
    PMPI_Group_free(&group);
    return found == MPI_UNDEFINED ? -1 : found;
}

uint64_t comm_id(MPI_Comm comm) {
#ifdef MPI_ABI_VERSION
    return (uint64_t)(uint32_t)PMPI_Comm_toint(comm);
#else
    return (uint64_t)(uint32_t)PMPI_Comm_c2f(comm);
#endif
}

// Programs know the class MPI_ERR_OTHER. MPICH 4.0.2 has no texts for codes of its own classes: there the
// class is one of ours, and programs get the other one.
static int error_class = MPI_ERR_OTHER;

#ifdef OPEN_MPI

static int new_class(void) {
    return MPI_ERR_OTHER;
}

#else

static int new_class(void) {
    int class = MPI_ERR_OTHER;
    PMPI_Add_error_class(&class);
    return class;
}

EXPORT int MPI_Error_class(int code, int *class) {
    int error = PMPI_Error_class(code, class);
    if (error == MPI_SUCCESS && *class == error_class) *class = MPI_ERR_OTHER;
    return error;
}

#endif

// Messages and their codes. An MPI has few codes, so the last of these is reused for new messages.
int error_code(const char *call, const char *message) {
    enum { MAX_CODES = 64 };
    static struct {
        char text[MPI_MAX_ERROR_STRING];
        int code;
    } known[MAX_CODES];
    static int count;
    char text[MPI_MAX_ERROR_STRING];
    snprintf(text, sizeof text, "%s: %s", call, message);
    lock();
    int at = 0;
    while (at < count && strcmp(known[at].text, text) != 0) at++;
    if (at == count) {
        if (count == 0) error_class = new_class();
        if (count < MAX_CODES) PMPI_Add_error_code(error_class, &known[count++].code);
        at = count - 1;
        memcpy(known[at].text, text, sizeof text);
        PMPI_Add_error_string(known[at].code, text);
    }
    int code = known[at].code;
    unlock();
    return code;
}

int raise_error(MPI_Comm comm, const char *call, const char *message) {
    fprintf(stderr, "causeway: %s: %s\n", call, message);
    int code = error_code(call, message);
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

// Initialization and finalization.

// `causeway mpirun` reads this in the file: under another MPI the program would end in its first call.
#if defined(MPI_ABI_VERSION)
#define BUILT_FOR "the standard ABI"
#elif defined(OPEN_MPI)
#define BUILT_FOR "Open MPI"
#elif defined(MPICH_VERSION)
#define BUILT_FOR "MPICH"
#else
#define BUILT_FOR "an MPI"
#endif
EXPORT const char causeway_mpi_built_for[] = "causeway interposer for " BUILT_FOR ".";

static void join(void) {
    join_job();
    if (in_job) start_checking();
}

EXPORT int MPI_Init(int *argc, char ***argv) {
    make_mpi_visible(__builtin_return_address(0));
    int error = PMPI_Init(argc, argv);
    if (error == MPI_SUCCESS) join();
    return error;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    make_mpi_visible(__builtin_return_address(0));
    int error = PMPI_Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS) join();
    return error;
}

EXPORT int MPI_Finalize(void) {
    if (!in_job) {
        free_self_comm();
        return PMPI_Finalize();
    }
    finish_all();
    stop_checking();
    free_world_node_groups();
    free_world_control();
    free_self_comm();
    leave_job();
    int error = PMPI_Finalize();
    // Now all ranks have entered this call: they have joined the job before, and received what this one has
    // sent.
    causeway_comm_leave();
    return error;
}
