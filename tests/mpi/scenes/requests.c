// Requests of messages: mixed with the MPI's own, and persistent ones.
#include <stdlib.h>

#include "causeway_comm.h"
#include "scenes.h"

// Requests of the MPI's and of messages from GPUs in one array, in all forms of waiting.
void mixed_requests(void) {
    enum { COUNT = 8 };
    MPI_Request requests[2 * COUNT];
    char *in[COUNT], *out[COUNT];
    int peer = rank ^ 1;
    for (int form = 0; form < 6; form++) {
        for (int at = 0; at < COUNT; at++) {
            enum memory memory = at % 2 ? HOST : DEVICE;
            out[at] = filled(memory, 50000, rank + at);
            in[at] = filled(at % 4 < 2 ? HOST : DEVICE, 50000, 99);
            MPI_Irecv(in[at], 50000, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[2 * at]);
            MPI_Isend(out[at], 50000, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[2 * at + 1]);
        }
        MPI_Status statuses[2 * COUNT];
        int indices[2 * COUNT], ended = 0, flag = 0, index;
        if (form == 0) MPI_Waitall(2 * COUNT, requests, statuses);
        if (form == 1)
            while (!flag) MPI_Testall(2 * COUNT, requests, &flag, statuses);
        for (int at = 0; form == 2 && at < 2 * COUNT; at++) {
            MPI_Waitany(2 * COUNT, requests, &index, &statuses[at]);
            must(index >= 0 && index < 2 * COUNT, "MPI_Waitany gives %d", index);
        }
        for (int all = 0; form == 3 && all < 2 * COUNT; all += ended)
            MPI_Waitsome(2 * COUNT, requests, &ended, indices, statuses);
        for (int at = 0; form == 4 && at < 2 * COUNT; at++) {
            for (flag = 0; !flag;) MPI_Request_get_status(requests[at], &flag, &statuses[at]);
            MPI_Wait(&requests[at], &statuses[at]);
        }
        for (int at = 0; form == 5 && at < 2 * COUNT;) {
            MPI_Testany(2 * COUNT, requests, &index, &flag, &statuses[at]);
            at += flag;
        }
        for (int at = 0; at < 2 * COUNT; at++)
            must(requests[at] == MPI_REQUEST_NULL, "request %d is left", at);
        for (int at = 0; at < COUNT; at++) {
            int count;
            MPI_Get_count(&statuses[2 * at], MPI_INT, &count);
            if (form == 0)
                must(count == 12500 && statuses[2 * at].MPI_TAG == at, "status %d says %d", at, count);
            must_hold(in[at], 50000, peer + at);
            gpu_free(at % 2 ? HOST : DEVICE, out[at], 50000);
            gpu_free(at % 4 < 2 ? HOST : DEVICE, in[at], 50000);
        }
    }
}

// Requests that are started again and again.
void persistent(void) {
    enum { COUNT = 4 };
    static const size_t bytes[COUNT] = {100, CAUSEWAY_COMM_DESCRIPTOR, 70000, LONG};
    MPI_Request requests[2 * COUNT];
    char *in[COUNT], *out[COUNT];
    int peer = rank ^ 1;
    for (int at = 0; at < COUNT; at++) {
        in[at] = filled(at % 2 ? DEVICE : HOST, bytes[at], 99);
        out[at] = gpu_allocate(at == 2 ? HOST : DEVICE, bytes[at]);
        MPI_Recv_init(in[at], (int)bytes[at], MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[2 * at]);
        if (at == 3)
            MPI_Ssend_init(out[at], (int)bytes[at], MPI_BYTE, peer, at, MPI_COMM_WORLD,
                           &requests[2 * at + 1]);
        else
            MPI_Send_init(out[at], (int)bytes[at], MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[2 * at + 1]);
    }
    for (int round = 0; round < 5; round++) {
        for (int at = 0; at < COUNT; at++) {
            char *filling = filled(DEVICE, bytes[at], 10 * round + rank + at);
            gpu_copy(out[at], filling, bytes[at]);
            gpu_free(DEVICE, filling, bytes[at]);
        }
        MPI_Status statuses[2 * COUNT];
        MPI_Startall(2 * COUNT, requests);
        if (round % 2) MPI_Waitall(2 * COUNT, requests, statuses);
        for (int at = 0; round % 2 == 0 && at < 2 * COUNT; at++) MPI_Wait(&requests[at], &statuses[at]);
        for (int at = 0; at < COUNT; at++) {
            int count;
            MPI_Get_count(&statuses[2 * at], MPI_BYTE, &count);
            must(count == (int)bytes[at], "a status says %d for %zu bytes", count, bytes[at]);
            must(statuses[2 * at].MPI_SOURCE == peer && statuses[2 * at].MPI_TAG == at,
                 "a status is another's");
            must_hold(in[at], bytes[at], 10 * round + peer + at);
        }
    }
    // One that never gets anything.
    MPI_Request never;
    MPI_Status status;
    int cancelled = 0;
    MPI_Recv_init(in[1], CAUSEWAY_COMM_DESCRIPTOR, MPI_BYTE, peer, 1234, MPI_COMM_WORLD, &never);
    MPI_Start(&never);
    MPI_Cancel(&never);
    MPI_Wait(&never, &status);
    MPI_Test_cancelled(&status, &cancelled);
    must(cancelled, "a persistent receive is not cancelled");
    MPI_Request_free(&never);
    for (int at = 0; at < 2 * COUNT; at++) MPI_Request_free(&requests[at]);
}

// As many requests as a program has that keeps one for each border of each block; half of them are made anew.
void many_persistent(void) {
    enum { COUNT = 600 };
    MPI_Request requests[2 * COUNT];
    int peer = rank ^ 1, *memory = (int *)gpu_allocate(DEVICE, 2 * COUNT * sizeof(int)), host[2 * COUNT];
    for (int round = 0; round < 3; round++) {
        for (int at = 0; at < COUNT; at++) {
            host[at] = round * 10000 + rank * 1000 + at;
            host[COUNT + at] = -1;
            if (round > 0 && at % 2) continue;
            if (round > 0) MPI_Request_free(&requests[2 * at]);
            if (round > 0) MPI_Request_free(&requests[2 * at + 1]);
            MPI_Recv_init(memory + COUNT + at, 1, MPI_INT, peer, at, MPI_COMM_WORLD, &requests[2 * at]);
            MPI_Send_init(memory + at, 1, MPI_INT, peer, at, MPI_COMM_WORLD, &requests[2 * at + 1]);
        }
        gpu_copy(memory, host, sizeof host);
        MPI_Startall(2 * COUNT, requests);
        MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
        gpu_copy(host, memory, sizeof host);
        for (int at = 0; at < COUNT; at++)
            must(host[COUNT + at] == round * 10000 + peer * 1000 + at, "number %d is %d", at,
                 host[COUNT + at]);
    }
    for (int at = 0; at < 2 * COUNT; at++) MPI_Request_free(&requests[at]);
}
