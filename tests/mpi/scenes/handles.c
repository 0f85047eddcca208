// Handles that stand for nobody or for all, that the program has freed, and that it leaves at the end.
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "scenes.h"

enum { WORDS = 1000, BYTES = WORDS * sizeof(int) };

static int class_of(int error) {
    int class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    return class;
}

// MPI_PROC_NULL is a negative number, as those of "any" and "all" are.
static void nobody(int peer) {
    char *memory = filled(DEVICE, LONG, rank);
    MPI_Request request;
    MPI_Status status;
    int flag = 0, count = -1;
    MPI_Isend(memory, LONG, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &request);
    // So the message is an unexpected one.
    MPI_Probe(peer, 5, MPI_COMM_WORLD, &status);
    MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    must(flag && status.MPI_SOURCE == MPI_PROC_NULL && count == 0,
         "a probe of nobody finds %d bytes of rank %d", count, status.MPI_SOURCE);
    MPI_Recv(memory, LONG, MPI_BYTE, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win window;
    char *words = filled(DEVICE, BYTES, 0), *host = filled(HOST, BYTES, 3 + rank);
    MPI_Win_create(words, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, window);
    MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, window);
    MPI_Win_unlock(MPI_PROC_NULL, window);
    int error = MPI_Put(host, BYTES, MPI_BYTE, peer, 0, BYTES, MPI_BYTE, window);
    must(error == MPI_SUCCESS, "a lock is forgotten with that of nobody: class %d", class_of(error));
    MPI_Win_unlock(peer, window);
    MPI_Barrier(MPI_COMM_WORLD);
    must_hold(words, BYTES, 3 + peer);
    // An operation that the type lacks is an error of the window.
    MPI_Win_fence(0, window);
    double one = 1;
    error = MPI_Accumulate(&one, 1, MPI_DOUBLE, peer, 0, 1, MPI_DOUBLE, MPI_BAND, window);
    must(class_of(error) == MPI_ERR_OP, "an update without a meaning gives class %d", class_of(error));
    error = MPI_Accumulate(&one, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, 1, MPI_DOUBLE, MPI_SUM, window);
    must(error == MPI_SUCCESS, "an update of nobody gives class %d", class_of(error));
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

// The program frees a communicator that requests and windows still need.
static void freed_communicators(int peer) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    char *out = filled(DEVICE, BYTES, rank), *in = filled(DEVICE, BYTES, 9),
         *in_host = filled(HOST, BYTES, 9);
    MPI_Request requests[4];
    MPI_Send_init(out, BYTES, MPI_BYTE, peer, 0, copy, &requests[0]);
    MPI_Recv_init(in, BYTES, MPI_BYTE, peer, 0, copy, &requests[1]);
    MPI_Send_init(out, BYTES, MPI_BYTE, peer, 1, copy, &requests[2]);
    MPI_Recv_init(in_host, BYTES, MPI_BYTE, peer, 1, copy, &requests[3]);
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, copy, &window);
    MPI_Comm_free(&copy);
    // Memory of the communicator is used again.
    void *used[64];
    for (int at = 0; at < 64; at++) {
        used[at] = malloc(16 + (size_t)at % 8 * 8);
        for (int byte = 0; byte < 16; byte++) ((char *)used[at])[byte] = 0x5a;
    }
    for (int turn = 0; turn < 3; turn++) {
        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        must_hold(in, BYTES, peer);
        must_hold(in_host, BYTES, peer);
    }
    for (int at = 0; at < 4; at++) MPI_Request_free(&requests[at]);
    MPI_Aint own, others;
    MPI_Win_attach(window, in, BYTES);
    MPI_Get_address(in, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, peer, 0, &others, 1, MPI_AINT, peer, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    char *from = filled(HOST, BYTES, 20 + rank);
    MPI_Win_fence(0, window);
    MPI_Put(from, BYTES, MPI_BYTE, peer, others, BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    must_hold(in, BYTES, 20 + peer);
    MPI_Win_detach(window, in);
    MPI_Win_free(&window);
    for (int at = 0; at < 64; at++) free(used[at]);
}

// Accesses to host memory of a dynamic window do not wait for a call of the target, which comes only when a
// file is gone.
static void quiet_target(int peer) {
    enum { TIMES = 100 };
    char name[] = "/tmp/causeway-scene-XXXXXX", *host = filled(HOST, BYTES, rank);
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, host, BYTES);
    MPI_Aint own, others;
    MPI_Get_address(host, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, peer, 0, &others, 1, MPI_AINT, peer, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 0) {
        int file = mkstemp(name);
        must(file >= 0, "cannot create a file");
        close(file);
    }
    MPI_Bcast(name, sizeof name, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Win_fence(0, window);
    for (int at = 0; rank == 0 && at < TIMES; at++) {
        char *from = filled(HOST, BYTES, at);
        MPI_Put(from, 4, MPI_BYTE, peer, others + 4 * at, 4, MPI_BYTE, window);
    }
    if (rank == 0) unlink(name);
    while (access(name, F_OK) == 0) usleep(1000);
    MPI_Win_fence(0, window);
    for (int at = 0; rank == 1 && at < TIMES; at++) must_hold(host + 4 * at, 4, at);
    MPI_Win_detach(window, host);
    MPI_Win_free(&window);
}

// The error of a matched message is that of its own communicator: the others' end the job.
static void matched_error(int peer) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    char host[16] = "", *in = filled(DEVICE, BYTES, 9);
    MPI_Message message;
    MPI_Request request;
    for (int turn = 0; turn < 2; turn++) {
        MPI_Isend(host, sizeof host, MPI_BYTE, peer, 5, copy, &request);
        MPI_Mprobe(peer, 5, copy, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        int error = turn == 0 ? MPI_Mrecv(in, 4, MPI_BYTE, &message, MPI_STATUS_IGNORE)
                              : MPI_Imrecv(in, 4, MPI_BYTE, &message, &request);
        if (turn == 1 && error == MPI_SUCCESS) error = MPI_Wait(&request, MPI_STATUS_IGNORE);
        must(class_of(error) == MPI_ERR_TRUNCATE, "a matched message that is too long gives class %d",
             class_of(error));
    }
    MPI_Comm_free(&copy);
}

// One half of a request is over when the program frees it, or wants it cancelled.
static void halves(int peer) {
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    static char in[BYTES];
    for (int turn = 0; turn < 20; turn++) {
        char *out = filled(DEVICE, LONG, rank), small[100] = "";
        MPI_Request request;
        MPI_Status status;
        int flag;
        MPI_Isendrecv(out, LONG, MPI_BYTE, peer, 1, in, sizeof small, MPI_BYTE, peer, 2, MPI_COMM_WORLD,
                      &request);
        MPI_Send(small, sizeof small, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
        for (int poll = 0; poll < 1000; poll++) MPI_Iprobe(peer, 9, MPI_COMM_WORLD, &flag, &status);
        if (turn % 2) MPI_Cancel(&request);
        MPI_Request_free(&request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(out, LONG, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
#else
    (void)peer;
#endif
}

void handles(void) {
    int peer = rank ^ 1;
    nobody(peer);
    freed_communicators(peer);
    quiet_target(peer);
    matched_error(peer);
    halves(peer);
    // Receives that nobody sends to are left when the MPI ends.
    static char never[2][BYTES];
    MPI_Request requests[3];
    MPI_Irecv(never[0], BYTES, MPI_BYTE, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(filled(DEVICE, BYTES, 0), BYTES, MPI_BYTE, peer, 98, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv_init(never[1], BYTES, MPI_BYTE, peer, 97, MPI_COMM_WORLD, &requests[2]);
    MPI_Start(&requests[2]);
}
