// Where this process begins and ends its part in the job.

#include "shim.h"

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
    int error = PMPI_Init(argc, argv);
    if (error == MPI_SUCCESS) join();
    return error;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int error = PMPI_Init_thread(argc, argv, required, provided);
    if (error == MPI_SUCCESS) join();
    return error;
}

EXPORT int MPI_Finalize(void) {
    if (!in_job) {
        free_self_comm();
        return PMPI_Finalize();
    }
    // Requests that the program has freed come to their end here.
    for (int round = 0; in_flight > 0; round++) {
        pause_for(round);
        progress();
    }
    stop_checking();
    free_world_node_groups();
    free_world_control();
    free_self_comm();
    leave_job();
    int error = PMPI_Finalize();
    // Now all ranks have come to this call: they have joined the job before, and received what this one has
    // sent.
    causeway_comm_leave();
    return error;
}
