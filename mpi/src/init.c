// Where this process begins and ends its part in the job.

#include "shim.h"

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
    if (!in_job) return PMPI_Finalize();
    // Requests that the program has freed come to their end here.
    for (int turn = 0; under_way > 0; turn++) {
        pause_for(turn);
        progress();
    }
    stop_checking();
    forget_places_of_world();
    forget_mail_of_world();
    leave_job();
    int error = PMPI_Finalize();
    // Now all ranks have come to this call: they have joined the job before, and received what this one has
    // sent.
    causeway_comm_leave();
    return error;
}
