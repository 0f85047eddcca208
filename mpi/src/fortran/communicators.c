// Communicators from Fortran: calls in which ranks wait for each other, and sessions. Types that are freed.

#include "fortran.h"

#if HAS_FORTRAN

#define GROUP(handle) PMPI_Group_f2c(*(handle))
#define INFO(handle) PMPI_Info_f2c(*(handle))

FORTRAN(barrier, (MPI_Fint *c, MPI_Fint *error), MPI_Barrier(COMM(c)))

static int start_barrier(MPI_Comm c, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Ibarrier(c, &request);
    return store_request(error, request, q);
}
FORTRAN(ibarrier, (MPI_Fint *c, MPI_Fint *q, MPI_Fint *error), start_barrier(COMM(c), q))

// Calls that make a communicator, whose parameter is the last one before the error.
#define MAKES(name, parameters, call, ...)                      \
    static int make_##name(parameters, MPI_Fint *made) {        \
        MPI_Comm comm = MPI_COMM_NULL;                          \
        int result = MPI_##call(__VA_ARGS__, &comm);            \
        if (result == MPI_SUCCESS) *made = PMPI_Comm_c2f(comm); \
        return result;                                          \
    }
#define LIST(...) __VA_ARGS__

MAKES(comm_dup, LIST(MPI_Fint *c), Comm_dup, COMM(c))
FORTRAN(comm_dup, (MPI_Fint *c, MPI_Fint *made, MPI_Fint *error), make_comm_dup(c, made))
MAKES(comm_dup_with_info, LIST(MPI_Fint *c, MPI_Fint *i), Comm_dup_with_info, COMM(c), INFO(i))
FORTRAN(comm_dup_with_info, (MPI_Fint *c, MPI_Fint *i, MPI_Fint *made, MPI_Fint *error),
        make_comm_dup_with_info(c, i, made))
MAKES(comm_split, LIST(MPI_Fint *c, MPI_Fint *color, MPI_Fint *key), Comm_split, COMM(c), *color, *key)
FORTRAN(comm_split, (MPI_Fint *c, MPI_Fint *color, MPI_Fint *key, MPI_Fint *made, MPI_Fint *error),
        make_comm_split(c, color, key, made))
MAKES(comm_split_type, LIST(MPI_Fint *c, MPI_Fint *type, MPI_Fint *key, MPI_Fint *i), Comm_split_type,
      COMM(c), *type, *key, INFO(i))
FORTRAN(comm_split_type,
        (MPI_Fint *c, MPI_Fint *type, MPI_Fint *key, MPI_Fint *i, MPI_Fint *made, MPI_Fint *error),
        make_comm_split_type(c, type, key, i, made))
MAKES(comm_create, LIST(MPI_Fint *c, MPI_Fint *g), Comm_create, COMM(c), GROUP(g))
FORTRAN(comm_create, (MPI_Fint *c, MPI_Fint *g, MPI_Fint *made, MPI_Fint *error),
        make_comm_create(c, g, made))
MAKES(comm_create_group, LIST(MPI_Fint *c, MPI_Fint *g, MPI_Fint *tag), Comm_create_group, COMM(c), GROUP(g),
      *tag)
FORTRAN(comm_create_group, (MPI_Fint *c, MPI_Fint *g, MPI_Fint *tag, MPI_Fint *made, MPI_Fint *error),
        make_comm_create_group(c, g, tag, made))
MAKES(intercomm_create, LIST(MPI_Fint *c, MPI_Fint *own, MPI_Fint *peers, MPI_Fint *other, MPI_Fint *tag),
      Intercomm_create, COMM(c), *own, COMM(peers), *other, *tag)
FORTRAN(intercomm_create,
        (MPI_Fint *c, MPI_Fint *own, MPI_Fint *peers, MPI_Fint *other, MPI_Fint *tag, MPI_Fint *made,
         MPI_Fint *error),
        make_intercomm_create(c, own, peers, other, tag, made))
MAKES(intercomm_merge, LIST(MPI_Fint *c, MPI_Fint *is_high), Intercomm_merge, COMM(c), *is_high != 0)
FORTRAN(intercomm_merge, (MPI_Fint *c, MPI_Fint *is_high, MPI_Fint *made, MPI_Fint *error),
        make_intercomm_merge(c, is_high, made))

static int free_comm(MPI_Fint *c) {
    MPI_Comm comm = COMM(c);
    int error = MPI_Comm_free(&comm);
    *c = PMPI_Comm_c2f(comm);
    return error;
}
FORTRAN(comm_free, (MPI_Fint *c, MPI_Fint *error), free_comm(c))

static int disconnect(MPI_Fint *c) {
    MPI_Comm comm = COMM(c);
    int error = MPI_Comm_disconnect(&comm);
    *c = PMPI_Comm_c2f(comm);
    return error;
}
FORTRAN(comm_disconnect, (MPI_Fint *c, MPI_Fint *error), disconnect(c))

static int release_type(MPI_Fint *t) {
    MPI_Datatype type = TYPE(t);
    int error = MPI_Type_free(&type);
    *t = PMPI_Type_c2f(type);
    return error;
}
FORTRAN(type_free, (MPI_Fint *t, MPI_Fint *error), release_type(t))

#if MPI_VERSION >= 4

static int open_session(MPI_Fint *i, MPI_Fint *handler, MPI_Fint *made) {
    MPI_Session session = MPI_SESSION_NULL;
    int error = MPI_Session_init(INFO(i), PMPI_Errhandler_f2c(*handler), &session);
    if (error == MPI_SUCCESS) *made = PMPI_Session_c2f(session);
    return error;
}
FORTRAN(session_init, (MPI_Fint *i, MPI_Fint *handler, MPI_Fint *made, MPI_Fint *error),
        open_session(i, handler, made))

static int close_session(MPI_Fint *number) {
    MPI_Session session = PMPI_Session_f2c(*number);
    int error = MPI_Session_finalize(&session);
    *number = PMPI_Session_c2f(session);
    return error;
}
FORTRAN(session_finalize, (MPI_Fint *number, MPI_Fint *error), close_session(number))

#endif
#ifndef OPEN_MPI

static int class_of(int code, MPI_Fint *to) {
    int class = MPI_SUCCESS, error = MPI_Error_class(code, &class);
    *to = class;
    return error;
}
FORTRAN(error_class, (MPI_Fint *code, MPI_Fint *class, MPI_Fint *error), class_of(*code, class))

#endif
#endif
