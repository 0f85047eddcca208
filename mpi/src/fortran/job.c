// The beginning and the end of a job, and probes, from Fortran: calls without a buffer.

#include "fortran.h"

#if HAS_FORTRAN

FORTRAN(init, (MPI_Fint * error), MPI_Init(NULL, NULL))
FORTRAN(finalize, (MPI_Fint * error), MPI_Finalize())

static int init_thread(MPI_Fint required, MPI_Fint *provided) {
    int got = 0, error = MPI_Init_thread(NULL, NULL, required, &got);
    *provided = got;
    return error;
}
FORTRAN(init_thread, (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *error),
        init_thread(*required, provided))

static int probe(int from, int tag, MPI_Comm c, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int error = MPI_Probe(from, tag, c, &status);
    store_status(&status, f_status);
    return error;
}
FORTRAN(probe, (MPI_Fint * from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *status, MPI_Fint *error),
        probe(*from, *tag, COMM(c), status))

static int probe_once(int from, int tag, MPI_Comm c, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int found = 0, error = MPI_Iprobe(from, tag, c, &found, &status);
    *flag = found != 0;
    if (found) store_status(&status, f_status);
    return error;
}
FORTRAN(iprobe,
        (MPI_Fint * from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error),
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
        (MPI_Fint * from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *message, MPI_Fint *status, MPI_Fint *error),
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
        (MPI_Fint * from, MPI_Fint *tag, MPI_Fint *c, MPI_Fint *flag, MPI_Fint *message, MPI_Fint *status,
         MPI_Fint *error),
        probe_message_once(*from, *tag, COMM(c), flag, message, status))

#endif
