// Collective calls from Fortran.

#include <stdlib.h>

#include "../collective/calls.h"
#include "fortran.h"

#ifdef OPEN_MPI

// The parameters of collective/calls.h as Fortran hands them over, and as C gets them.

#define F_BUFFER_ROOT void *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *root
#define C_BUFFER_ROOT buffer_of(r), *n, TYPE(t), *root
#define F_REDUCTION void *s, void *r, MPI_Fint *n, MPI_Fint *t, MPI_Fint *o
#define C_REDUCTION buffer_of(s), buffer_of(r), *n, TYPE(t), OP(o)
#define F_REDUCTION_ROOT F_REDUCTION, MPI_Fint *root
#define C_REDUCTION_ROOT C_REDUCTION, *root
#define F_REDUCTION_COUNTS F_REDUCTION
#define C_REDUCTION_COUNTS buffer_of(s), buffer_of(r), n, TYPE(t), OP(o)
#define F_EQUAL void *s, MPI_Fint *n, MPI_Fint *t, void *r, MPI_Fint *m, MPI_Fint *u
#define C_EQUAL buffer_of(s), *n, TYPE(t), buffer_of(r), *m, TYPE(u)
#define F_EQUAL_ROOT F_EQUAL, MPI_Fint *root
#define C_EQUAL_ROOT C_EQUAL, *root
#define F_COUNTS_IN void *s, MPI_Fint *n, MPI_Fint *t, void *r, MPI_Fint *m, MPI_Fint *e, MPI_Fint *u
#define C_COUNTS_IN buffer_of(s), *n, TYPE(t), buffer_of(r), m, e, TYPE(u)
#define F_COUNTS_IN_ROOT F_COUNTS_IN, MPI_Fint *root
#define C_COUNTS_IN_ROOT C_COUNTS_IN, *root
#define F_COUNTS_OUT_ROOT \
    void *s, MPI_Fint *n, MPI_Fint *d, MPI_Fint *t, void *r, MPI_Fint *m, MPI_Fint *u, MPI_Fint *root
#define C_COUNTS_OUT_ROOT buffer_of(s), n, d, TYPE(t), buffer_of(r), *m, TYPE(u), *root
#define F_COUNTS_BOTH \
    void *s, MPI_Fint *n, MPI_Fint *d, MPI_Fint *t, void *r, MPI_Fint *m, MPI_Fint *e, MPI_Fint *u
#define C_COUNTS_BOTH buffer_of(s), n, d, TYPE(t), buffer_of(r), m, e, TYPE(u)

// The same, passed on.
#define ARGUMENTS_BUFFER_ROOT r, n, t, root
#define ARGUMENTS_REDUCTION s, r, n, t, o
#define ARGUMENTS_REDUCTION_ROOT s, r, n, t, o, root
#define ARGUMENTS_REDUCTION_COUNTS s, r, n, t, o
#define ARGUMENTS_EQUAL s, n, t, r, m, u
#define ARGUMENTS_EQUAL_ROOT s, n, t, r, m, u, root
#define ARGUMENTS_COUNTS_IN s, n, t, r, m, e, u
#define ARGUMENTS_COUNTS_IN_ROOT s, n, t, r, m, e, u, root
#define ARGUMENTS_COUNTS_OUT_ROOT s, n, d, t, r, m, u, root
#define ARGUMENTS_COUNTS_BOTH s, n, d, t, r, m, e, u

#define CALLS(name, lower, parameters, ...)                                                             \
    static int start_##lower(F_##parameters, MPI_Fint *c, MPI_Fint *q) {                                \
        MPI_Request request = MPI_REQUEST_NULL;                                                         \
        int result = MPI_I##lower(C_##parameters, COMM(c), &request);                                   \
        return store_request(result, request, q);                                                       \
    }                                                                                                   \
    FORTRAN(lower, (F_##parameters, MPI_Fint *c, MPI_Fint *error), MPI_##name(C_##parameters, COMM(c))) \
    FORTRAN(i##lower, (F_##parameters, MPI_Fint *c, MPI_Fint *q, MPI_Fint *error),                      \
            start_##lower(ARGUMENTS_##parameters, c, q))

CALLS_OF_ONE_TYPE(CALLS)

FORTRAN(reduce_local, (F_REDUCTION, MPI_Fint *error), MPI_Reduce_local(C_REDUCTION))

// Types of blocks are an array of numbers. A non-blocking call may look at them until its end, which nobody
// tells of here: it goes to the MPI as it is (docs/src/guides/mpi-containers.md).
static MPI_Datatype *types_of(int count, const MPI_Fint *numbers) {
    MPI_Datatype *types = malloc(sizeof *types * (size_t)(count > 0 ? count : 1));
    if (types == NULL) abort();
    for (int at = 0; at < count; at++) types[at] = PMPI_Type_f2c(numbers[at]);
    return types;
}

static int all_to_all(void *s, MPI_Fint *n, MPI_Fint *d, MPI_Fint *t, void *r, MPI_Fint *m, MPI_Fint *e,
                      MPI_Fint *u, MPI_Comm c) {
    int peers = 0, is_inter = 0;
    PMPI_Comm_test_inter(c, &is_inter);
    int error = is_inter ? PMPI_Comm_remote_size(c, &peers) : PMPI_Comm_size(c, &peers);
    if (error != MPI_SUCCESS) return error;
    // In place nobody looks at them.
    MPI_Datatype *out = types_of(s == MPI_IN_PLACE ? 0 : peers, t), *in = types_of(peers, u);
    error = MPI_Alltoallw(s, n, d, out, r, m, e, in, c);
    free(out);
    free(in);
    return error;
}
FORTRAN(alltoallw, (F_COUNTS_BOTH, MPI_Fint *c, MPI_Fint *error),
        all_to_all(buffer_of(s), n, d, t, buffer_of(r), m, e, u, COMM(c)))

#endif
