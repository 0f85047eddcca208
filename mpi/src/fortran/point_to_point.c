// Point-to-point messages and requests from Fortran.

#include <stdlib.h>

#include "fortran.h"

// Messages.

#if HAS_FORTRAN

static int detach_buffer(void *address, MPI_Fint *n) {
    int bytes = 0, error = MPI_Buffer_detach(address, &bytes);
    *n = bytes;
    return error;
}
#endif

#ifdef OPEN_MPI

#define SEND_PARAMETERS void *b, MPI_Fint *n, MPI_Fint *t, MPI_Fint *to, MPI_Fint *tag, MPI_Fint *c
#define SEND_ARGUMENTS buffer_of(b), *n, TYPE(t), *to, *tag, COMM(c)

#define SEND(lower, upper) FORTRAN(lower, (SEND_PARAMETERS, MPI_Fint *error), MPI_##upper(SEND_ARGUMENTS))
SEND(send, Send)
SEND(ssend, Ssend)
SEND(rsend, Rsend)
SEND(bsend, Bsend)

// Interfaces older than Fortran 2008 have no place for the address.
static int detach_nameless(void *b, MPI_Fint *n) {
    void *address = b;
    return detach_buffer(&address, n);
}
FORTRAN(buffer_attach, (void *b, MPI_Fint *n, MPI_Fint *error), MPI_Buffer_attach(b, *n))
FORTRAN(buffer_detach, (void *b, MPI_Fint *n, MPI_Fint *error), detach_nameless(b, n))
EXPORT void ompi_buffer_detach_f08(void *b, MPI_Fint *n, MPI_Fint *error);
FORTRAN_BODY(ompi_buffer_detach_f08, (void *b, MPI_Fint *n, MPI_Fint *error), detach_buffer(b, n))

typedef int start(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static int start_one(start *call, void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Fint *q) {
    MPI_Request request = MPI_REQUEST_NULL;
    int error = call(b, n, t, to, tag, c, &request);
    return store_request(error, request, q);
}

#define START(lower, upper)                                         \
    FORTRAN(lower, (SEND_PARAMETERS, MPI_Fint *q, MPI_Fint *error), \
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

// Requests.

#ifdef MPICH
FORTRAN(buffer_detach, (void *b, MPI_Fint *n, MPI_Fint *error), detach_buffer(b, n))
#endif

#if HAS_FORTRAN

static MPI_Request *requests_of(int count, const MPI_Fint *numbers) {
    MPI_Request *requests = malloc(sizeof *requests * (size_t)(count > 0 ? count : 1));
    if (requests == NULL) abort();
    for (int at = 0; at < count; at++) requests[at] = PMPI_Request_f2c(numbers[at]);
    return requests;
}

static MPI_Status *statuses_for(int count, const MPI_Fint *f_status) {
    if (are_ignored(f_status)) return MPI_STATUSES_IGNORE;
    MPI_Status *statuses = calloc((size_t)(count > 0 ? count : 1), sizeof *statuses);
    if (statuses == NULL) abort();
    return statuses;
}

// Tells the state of an array of requests, of which so many statuses have been set.
static void store_all(int count, MPI_Request *requests, MPI_Fint *numbers, int ended, MPI_Status *statuses,
                      MPI_Fint *f_status) {
    for (int at = 0; at < count; at++) numbers[at] = PMPI_Request_c2f(requests[at]);
    free(requests);
    if (statuses == MPI_STATUSES_IGNORE) return;
    for (int at = 0; at < ended; at++)
        PMPI_Status_c2f(&statuses[at], f_status + at * (int)(sizeof(MPI_Status) / sizeof(MPI_Fint)));
    free(statuses);
}

static int wait_one(MPI_Fint *number, MPI_Fint *f_status) {
    MPI_Request request = PMPI_Request_f2c(*number);
    MPI_Status status = {0};
    int error = MPI_Wait(&request, &status);
    *number = PMPI_Request_c2f(request);
    store_status(&status, f_status);
    return error;
}
FORTRAN(wait, (MPI_Fint *q, MPI_Fint *status, MPI_Fint *error), wait_one(q, status))

static int test_one(MPI_Fint *number, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Request request = PMPI_Request_f2c(*number);
    MPI_Status status = {0};
    int has_ended = 0, error = MPI_Test(&request, &has_ended, &status);
    *flag = has_ended != 0;
    *number = PMPI_Request_c2f(request);
    if (has_ended) store_status(&status, f_status);
    return error;
}
FORTRAN(test, (MPI_Fint *q, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error), test_one(q, flag, status))

static int wait_all(int count, MPI_Fint *numbers, MPI_Fint *f_status) {
    MPI_Request *requests = requests_of(count, numbers);
    MPI_Status *statuses = statuses_for(count, f_status);
    int error = MPI_Waitall(count, requests, statuses);
    store_all(count, requests, numbers, count, statuses, f_status);
    return error;
}
FORTRAN(waitall, (MPI_Fint *n, MPI_Fint *q, MPI_Fint *statuses, MPI_Fint *error), wait_all(*n, q, statuses))

static int test_all(int count, MPI_Fint *numbers, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Request *requests = requests_of(count, numbers);
    MPI_Status *statuses = statuses_for(count, f_status);
    int have_ended = 0, error = MPI_Testall(count, requests, &have_ended, statuses);
    *flag = have_ended != 0;
    store_all(count, requests, numbers, have_ended ? count : 0, statuses, f_status);
    return error;
}
FORTRAN(testall, (MPI_Fint *n, MPI_Fint *q, MPI_Fint *flag, MPI_Fint *statuses, MPI_Fint *error),
        test_all(*n, q, flag, statuses))

// Fortran counts from 1.
static void store_index(int from, MPI_Fint *to) {
    *to = from == MPI_UNDEFINED ? MPI_UNDEFINED : from + 1;
}

static int wait_any(int count, MPI_Fint *numbers, MPI_Fint *index, MPI_Fint *f_status) {
    MPI_Request *requests = requests_of(count, numbers);
    MPI_Status status = {0};
    int found = MPI_UNDEFINED, error = MPI_Waitany(count, requests, &found, &status);
    store_index(found, index);
    store_all(count, requests, numbers, 0, MPI_STATUSES_IGNORE, NULL);
    store_status(&status, f_status);
    return error;
}
FORTRAN(waitany, (MPI_Fint *n, MPI_Fint *q, MPI_Fint *index, MPI_Fint *status, MPI_Fint *error),
        wait_any(*n, q, index, status))

static int test_any(int count, MPI_Fint *numbers, MPI_Fint *index, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Request *requests = requests_of(count, numbers);
    MPI_Status status = {0};
    int found = MPI_UNDEFINED, has_ended = 0;
    int error = MPI_Testany(count, requests, &found, &has_ended, &status);
    *flag = has_ended != 0;
    store_index(found, index);
    store_all(count, requests, numbers, 0, MPI_STATUSES_IGNORE, NULL);
    if (has_ended) store_status(&status, f_status);
    return error;
}
FORTRAN(testany,
        (MPI_Fint *n, MPI_Fint *q, MPI_Fint *index, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error),
        test_any(*n, q, index, flag, status))

static int some(int count, MPI_Fint *numbers, MPI_Fint *ended, MPI_Fint *indices, MPI_Fint *f_status,
                bool waits) {
    MPI_Request *requests = requests_of(count, numbers);
    MPI_Status *statuses = statuses_for(count, f_status);
    int many = 0;
    int error = waits ? MPI_Waitsome(count, requests, &many, indices, statuses)
                      : MPI_Testsome(count, requests, &many, indices, statuses);
    *ended = many;
    if (many == MPI_UNDEFINED) many = 0;
    for (int at = 0; at < many; at++) indices[at]++;
    store_all(count, requests, numbers, many, statuses, f_status);
    return error;
}
FORTRAN(waitsome,
        (MPI_Fint *n, MPI_Fint *q, MPI_Fint *ended, MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *error),
        some(*n, q, ended, indices, statuses, true))
FORTRAN(testsome,
        (MPI_Fint *n, MPI_Fint *q, MPI_Fint *ended, MPI_Fint *indices, MPI_Fint *statuses, MPI_Fint *error),
        some(*n, q, ended, indices, statuses, false))

static int look_at(MPI_Fint number, MPI_Fint *flag, MPI_Fint *f_status) {
    MPI_Status status = {0};
    int has_ended = 0, error = MPI_Request_get_status(PMPI_Request_f2c(number), &has_ended, &status);
    *flag = has_ended != 0;
    if (has_ended) store_status(&status, f_status);
    return error;
}
FORTRAN(request_get_status, (MPI_Fint *q, MPI_Fint *flag, MPI_Fint *status, MPI_Fint *error),
        look_at(*q, flag, status))

typedef int on_request(MPI_Request *);

static int on_one(on_request *call, MPI_Fint *number) {
    MPI_Request request = PMPI_Request_f2c(*number);
    int error = call(&request);
    *number = PMPI_Request_c2f(request);
    return error;
}
FORTRAN(request_free, (MPI_Fint *q, MPI_Fint *error), on_one(MPI_Request_free, q))
FORTRAN(cancel, (MPI_Fint *q, MPI_Fint *error), on_one(MPI_Cancel, q))
FORTRAN(start, (MPI_Fint *q, MPI_Fint *error), on_one(MPI_Start, q))

static int start_all(int count, MPI_Fint *numbers) {
    MPI_Request *requests = requests_of(count, numbers);
    int error = MPI_Startall(count, requests);
    store_all(count, requests, numbers, 0, MPI_STATUSES_IGNORE, NULL);
    return error;
}
FORTRAN(startall, (MPI_Fint *n, MPI_Fint *q, MPI_Fint *error), start_all(*n, q))

#if HAS_MPI_4
// Partitions are counted from zero in Fortran, too.
FORTRAN(pready, (MPI_Fint *partition, MPI_Fint *q, MPI_Fint *error),
        MPI_Pready(*partition, PMPI_Request_f2c(*q)))
FORTRAN(pready_range, (MPI_Fint *low, MPI_Fint *high, MPI_Fint *q, MPI_Fint *error),
        MPI_Pready_range(*low, *high, PMPI_Request_f2c(*q)))
FORTRAN(pready_list, (MPI_Fint *n, MPI_Fint *partitions, MPI_Fint *q, MPI_Fint *error),
        MPI_Pready_list(*n, partitions, PMPI_Request_f2c(*q)))

static int has_arrived(MPI_Fint number, int partition, MPI_Fint *flag) {
    int arrived = 0, error = MPI_Parrived(PMPI_Request_f2c(number), partition, &arrived);
    *flag = arrived != 0;
    return error;
}
FORTRAN(parrived, (MPI_Fint *q, MPI_Fint *partition, MPI_Fint *flag, MPI_Fint *error),
        has_arrived(*q, *partition, flag))
#endif

#endif
