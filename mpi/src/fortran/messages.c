// Messages from Fortran.

#include "fortran.h"

#ifdef OPEN_MPI

#define SEND_PARAMETERS void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *to, MPI_Fint *tag, MPI_Fint *c
#define SEND_ARGUMENTS buffer_of(b), *n, TYPE(t), *to, *tag, COMM(c)

#define SEND(lower, upper) FORTRAN(lower, (SEND_PARAMETERS, MPI_Fint * error), MPI_##upper(SEND_ARGUMENTS))
SEND(send, Send)
SEND(ssend, Ssend)
SEND(rsend, Rsend)
SEND(bsend, Bsend)

typedef int start(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static int start_one(start *call, void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = call(b, n, t, to, tag, c, &request);
    return store_request(error, request, q);
}

#define START(lower, upper)                                           \
    FORTRAN(lower, (SEND_PARAMETERS, MPI_Fint * q, MPI_Fint * error), \
            start_one((start *)MPI_##upper, SEND_ARGUMENTS, q))
START(isend, Isend)
START(issend, Issend)
START(irsend, Irsend)
START(ibsend, Ibsend)
START(send_init, Send_init)
START(ssend_init, Ssend_init)
START(rsend_init, Rsend_init)
START(bsend_init, Bsend_init)

static int receive_later(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Irecv(b, n, t, from, tag, c, &request);
    return store_request(error, request, q);
}
FORTRAN(irecv, (SEND_PARAMETERS, MPI_Fint *q, MPI_Fint *error), receive_later(SEND_ARGUMENTS, q))

static int receive_often(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Recv_init(b, n, t, from, tag, c, &request);
    return store_request(error, request, q);
}
FORTRAN(recv_init, (SEND_PARAMETERS, MPI_Fint *q, MPI_Fint *error), receive_often(SEND_ARGUMENTS, q))

static int receive(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Fint *to) {
    MPI_Status status = {0};
    int error = MPI_Recv(b, n, t, from, tag, c, &status);
    store_status(&status, to);
    return error;
}
FORTRAN(recv, (SEND_PARAMETERS, MPI_Fint *status, MPI_Fint *error), receive(SEND_ARGUMENTS, status))

static int exchange(void *b, int n, MPI_Datatype t, int to, int tag, void *r, int m, MPI_Datatype u, int from,
                    int other, MPI_Comm c, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int error = MPI_Sendrecv(b, n, t, to, tag, r, m, u, from, other, c, &status);
    store_status(&status, f_status);
    return error;
}
FORTRAN(sendrecv,
        (void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *to, MPI_Fint *tag, void *r, MPI_Fint *m, MPI_Fint *u,
         MPI_Fint *from, MPI_Fint *other, MPI_Fint *c, MPI_Fint *status, MPI_Fint *error),
        exchange(buffer_of(b), *n, TYPE(t), *to, *tag, buffer_of(r), *m, TYPE(u), *from, *other, COMM(c),
                 status))

static int replace(void *b, int n, MPI_Datatype t, int to, int tag, int from, int other, MPI_Comm c,
                   MPI_Fint *f_status) {
    MPI_Status status = {0};
    int error = MPI_Sendrecv_replace(b, n, t, to, tag, from, other, c, &status);
    store_status(&status, f_status);
    return error;
}
FORTRAN(sendrecv_replace,
        (void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *to, MPI_Fint *tag, MPI_Fint *from, MPI_Fint *other,
         MPI_Fint *c, MPI_Fint *status, MPI_Fint *error),
        replace(buffer_of(b), *n, TYPE(t), *to, *tag, *from, *other, COMM(c), status))

static int receive_message(void *b, int n, MPI_Datatype t, MPI_Fint *message, MPI_Fint *f_status) {
    MPI_Status status = {0};
    MPI_Message handle = PMPI_Message_f2c(*message);
    int error = MPI_Mrecv(b, n, t, &handle, &status);
    *message = PMPI_Message_c2f(handle);
    store_status(&status, f_status);
    return error;
}
FORTRAN(mrecv, (void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *message, MPI_Fint *status, MPI_Fint *error),
        receive_message(buffer_of(b), *n, TYPE(t), message, status))

static int receive_message_later(void *b, int n, MPI_Datatype t, MPI_Fint *message, MPI_Fint *q) {
    MPI_Message handle = PMPI_Message_f2c(*message);
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Imrecv(b, n, t, &handle, &request);
    *message = PMPI_Message_c2f(handle);
    return store_request(error, request, q);
}
FORTRAN(imrecv, (void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *message, MPI_Fint *q, MPI_Fint *error),
        receive_message_later(buffer_of(b), *n, TYPE(t), message, q))

// Packing: positions are the MPI's int.

FORTRAN(pack,
        (void *b, MPI_Fint *n, MPI_Fint *t, void *to, MPI_Fint *size, MPI_Fint *position, MPI_Fint *c,
         MPI_Fint *error),
        MPI_Pack(buffer_of(b), *n, TYPE(t), to, *size, position, COMM(c)))
FORTRAN(unpack,
        (void *from, MPI_Fint *size, MPI_Fint *position, void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *c,
         MPI_Fint *error),
        MPI_Unpack(from, *size, position, buffer_of(b), *n, TYPE(t), COMM(c)))

#endif
