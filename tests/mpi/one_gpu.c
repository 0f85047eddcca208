// Rank 0 sends from a GPU, rank 1 has none and has begun all its receives before: they end in each of the
// calls that ask about requests.
//
// one_gpu [persistent|probed|at_once]: the receives are persistent requests, which are started again and
// again; `probed`: probes have taken the messages out of the MPI's queue before that; `at_once`: one call
// waits for all of them.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "causeway_comm.h"
#include "gpu.h"

enum { MESSAGES = 16, LONG = 300000, DESCRIPTOR = CAUSEWAY_COMM_DESCRIPTOR, NEVER = 14, LAST = 15 };

// By tag: bytes that are sent, whether from a GPU, and the room of the receive.
static const struct {
    int bytes, on_gpu, room;
} plan[MESSAGES] = {
    {8, 0, 8},       {DESCRIPTOR, 0, 100}, {LONG, 1, LONG}, {LONG, 1, LONG + 5},
    {LONG, 1, LONG}, {40, 1, 60},          {LONG, 1, LONG}, {LONG, 1, LONG},
    {LONG, 1, LONG}, {60, 0, 4},           {LONG, 1, 1000}, {LONG, 1, LONG},
    {3, 0, 3},       {LONG, 1, LONG},      {0, 0, 50},      {0, 0, 0},
};

static int wrong;
static char *received[MESSAGES];
static MPI_Request requests[MESSAGES];

static char byte_at(int tag, int at) {
    return (char)(tag * 31 + at % 251);
}

static void must(bool is_right, const char *what, int tag) {
    if (is_right) return;
    fprintf(stderr, "message %d: %s\n", tag, what);
    wrong++;
}

static bool is_there(int tag) {
    int bytes = plan[tag].bytes;
    for (int at = 0; at < bytes; at++)
        if (received[tag][at] != byte_at(tag, at)) return false;
    return true;
}

static void must_be(int tag, const MPI_Status *status) {
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    must(count == plan[tag].bytes && status->MPI_TAG == tag && status->MPI_SOURCE == 0, "the status is wrong",
         tag);
    must(is_there(tag), "bytes are wrong", tag);
}

static void send_all(void) {
    char *bytes = malloc(LONG);
    for (int tag = 0; tag < MESSAGES; tag++) {
        char *from = gpu_allocate(plan[tag].on_gpu ? DEVICE : HOST, LONG);
        requests[tag] = MPI_REQUEST_NULL;
        if (tag == NEVER || tag == LAST) continue;
        for (int at = 0; at < LONG; at++) bytes[at] = byte_at(tag, at);
        gpu_copy(from, bytes, (size_t)plan[tag].bytes);
        MPI_Isend(from, plan[tag].bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &requests[tag]);
    }
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, 1, LAST, MPI_COMM_WORLD);
}

static void receive_all(void) {
    MPI_Status status, statuses[2];
    int flag = 0, index, ended, indices[2], class;
    MPI_Wait(&requests[0], &status);
    must_be(0, &status);
    while (!flag) MPI_Test(&requests[1], &flag, &status);
    must_be(1, &status);
    for (flag = 0; !flag;) MPI_Request_get_status(requests[2], &flag, &status);
    must_be(2, &status);
    MPI_Wait(&requests[2], &status);
    must_be(2, &status);
    for (int turn = 0; turn < 2; turn++) {
        MPI_Waitany(2, &requests[3], &index, &status);
        must_be(3 + index, &status);
    }
    MPI_Waitsome(1, &requests[5], &ended, indices, &status);
    must_be(5, &status);
    for (flag = 0; !flag;) MPI_Testall(2, &requests[6], &flag, statuses);
    must_be(6, &statuses[0]);
    must_be(7, &statuses[1]);
    MPI_Request_free(&requests[8]);
    for (int tag = 9; tag < 11; tag++) {
        MPI_Error_class(MPI_Wait(&requests[tag], MPI_STATUS_IGNORE), &class);
        must(class == MPI_ERR_TRUNCATE, "it is too long, and that is no error", tag);
    }
    must(received[9][4] == 0x5a, "there are bytes behind the room", 9);
    MPI_Waitall(2, &requests[11], statuses);
    must_be(11, &statuses[0]);
    must_be(12, &statuses[1]);
    for (flag = 0; !flag;) MPI_Testsome(1, &requests[13], &flag, indices, MPI_STATUSES_IGNORE);
    must(is_there(13), "bytes are wrong", 13);
    MPI_Cancel(&requests[NEVER]);
    MPI_Wait(&requests[NEVER], &status);
    MPI_Test_cancelled(&status, &flag);
    must(flag, "it is not cancelled", NEVER);
    MPI_Wait(&requests[LAST], &status);
    // It has been freed, and arrives all the same.
    double start = MPI_Wtime();
    while (!is_there(8) && MPI_Wtime() - start < 20)
        MPI_Iprobe(0, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    must(is_there(8), "bytes are wrong", 8);
}

static void receive_at_once(void) {
    MPI_Status statuses[MESSAGES];
    int class;
    MPI_Error_class(MPI_Waitall(MESSAGES, requests, statuses), &class);
    must(class == MPI_ERR_IN_STATUS, "two are too long, and that is no error", MESSAGES);
    for (int tag = 0; tag < MESSAGES; tag++) {
        bool is_too_long = plan[tag].bytes > plan[tag].room;
        must(requests[tag] == MPI_REQUEST_NULL, "the request is left", tag);
        MPI_Error_class(statuses[tag].MPI_ERROR, &class);
        must(class == (is_too_long ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "the status has another error", tag);
        if (!is_too_long && tag != NEVER) must_be(tag, &statuses[tag]);
    }
    must(received[9][4] == 0x5a, "there are bytes behind the room", 9);
}

static void make(int tag) {
    MPI_Recv_init(received[tag], plan[tag].room, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &requests[tag]);
}

static void start_again(bool is_probed) {
    for (int tag = 0; tag < MESSAGES; tag++) memset(received[tag], 0x5a, LONG + 200);
    // The first of them have word of a GPU's messages; the last one takes all others out.
    for (int tag = 1; is_probed && tag < NEVER; tag += 4) {
        MPI_Status status;
        int count;
        MPI_Probe(0, tag, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        must(count == plan[tag].bytes, "a probe tells of other bytes", tag);
    }
    MPI_Startall(MESSAGES, requests);
}

int main(int argc, char **argv) {
    int rank;
    bool is_at_once = argc > 1 && strcmp(argv[1], "at_once") == 0;
    bool is_persistent = argc > 1 && !is_at_once, is_probed = is_persistent && strcmp(argv[1], "probed") == 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) gpu_start();
    for (int tag = 0; tag < MESSAGES && rank == 1; tag++) {
        received[tag] = malloc(LONG + 200);
        memset(received[tag], 0x5a, LONG + 200);
        requests[tag] = MPI_REQUEST_NULL;
        if (is_persistent)
            make(tag);
        else if (tag != NEVER || !is_at_once)
            MPI_Irecv(received[tag], plan[tag].room, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &requests[tag]);
    }
    for (int round = 0; round < (is_persistent ? 3 : 1); round++) {
        if (rank == 1 && is_persistent && !is_probed) start_again(false);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1 && is_probed) start_again(true);
        if (rank == 0)
            send_all();
        else if (rank == 1)
            is_at_once ? receive_at_once() : receive_all();
        // The program has freed it.
        if (rank == 1 && is_persistent) make(8);
    }
    for (int tag = 0; tag < MESSAGES && rank == 1 && is_persistent; tag++) MPI_Request_free(&requests[tag]);
    if (rank == 1) printf("%d messages are wrong\n", wrong);
    MPI_Finalize();
    return wrong != 0;
}
