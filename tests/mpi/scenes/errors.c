// Errors of messages, and calls that do not support memory on a GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenes.h"

static int class_of(int error) {
    int class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    return class;
}

// Errors come back as the standard says, and what comes after them goes on.
void errors(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, LONG, 4);
    MPI_Status statuses[2];
    MPI_Request requests[2];
    if (rank == 0) {
        for (int at = 0; at < 4; at++) MPI_Send(memory, LONG, MPI_BYTE, 1, at, MPI_COMM_WORLD);
    } else if (rank == 1) {
        char *in = filled(DEVICE, LONG, 9);
        int error = MPI_Recv(in, LONG - 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(class_of(error) == MPI_ERR_TRUNCATE, "a message that is too long gives class %d",
             class_of(error));
        MPI_Irecv(in, LONG - 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in, LONG, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[1]);
        error = MPI_Waitall(2, requests, statuses);
        must(class_of(error) == MPI_ERR_IN_STATUS, "MPI_Waitall gives class %d", class_of(error));
        must(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE, "the first status says otherwise");
        must(statuses[1].MPI_ERROR == MPI_SUCCESS, "the second status says otherwise");
        must_hold(in, LONG, 4);
        // Memory that is freed before the message comes.
        char *gone = filled(DEVICE, LONG, 9);
        MPI_Irecv(gone, LONG, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &requests[0]);
        gpu_free(DEVICE, gone, LONG);
        error = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        must(class_of(error) != MPI_SUCCESS, "freed memory is received into");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request never;
    MPI_Irecv(memory, LONG, MPI_BYTE, 0, 77, MPI_COMM_WORLD, &never);
    MPI_Cancel(&never);
    MPI_Wait(&never, &statuses[0]);
    int cancelled = 0;
    MPI_Test_cancelled(&statuses[0], &cancelled);
    must(cancelled, "a receive is not cancelled");
}

static void must_be_refused(int error, const char *call) {
    char text[MPI_MAX_ERROR_STRING], wanted[64];
    int length;
    must(error != MPI_SUCCESS, "%s takes memory on a GPU", call);
    MPI_Error_string(error, text, &length);
    snprintf(wanted, sizeof wanted, "%s: ", call);
    must(strncmp(text, wanted, strlen(wanted)) == 0, "the error of %s says %s", call, text);
    must(class_of(error) == MPI_ERR_OTHER, "the error of %s has class %d", call, class_of(error));
}

#define REFUSED(call, ...) must_be_refused(call(__VA_ARGS__), #call)

// Windows of memory on a GPU that no other process opens.
static void windows_refuse(char *gpu, char *host) {
    MPI_Win window, dynamic;
    // All ranks hear of what one of them gives; nothing is nowhere.
    REFUSED(MPI_Win_create, rank == 0 ? gpu : host, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_create(gpu, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_free(&window);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    REFUSED(MPI_Win_attach, dynamic, gpu, 64);
    MPI_Win_free(&dynamic);
}

// Calls that do not take such memory say so, and which they are.
void refused(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    char *gpu = filled(DEVICE, 64, 4), host[64] = "";
    char *pool = filled(POOL, 64, 4);
    windows_refuse(pool, host);
    gpu_free(POOL, pool, 64);
    must_hold(gpu, 64, 4);
}

// Wrong arguments of receives and of sends from a GPU are errors, as they are of the MPI.
void arguments(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *gpu = filled(DEVICE, 64, 4), host[640] = "";
    MPI_Request request;
    MPI_Datatype raw;
    int peer = rank ^ 1;
    MPI_Type_vector(3, 1, 2, MPI_INT, &raw);
    for (int at = 0; at < 2; at++) {
        char *memory = at ? gpu : host;
        int errors[] = {
            MPI_Irecv(memory, -1, MPI_INT, peer, 2, MPI_COMM_WORLD, &request),
            MPI_Irecv(memory, 1, raw, peer, 2, MPI_COMM_WORLD, &request),
            MPI_Irecv(memory, 1, MPI_INT, 99, 2, MPI_COMM_WORLD, &request),
            MPI_Recv_init(memory, -1, MPI_INT, peer, 2, MPI_COMM_WORLD, &request),
            MPI_Recv_init(memory, 1, raw, peer, 2, MPI_COMM_WORLD, &request),
            MPI_Recv_init(memory, 1, MPI_INT, peer, -7, MPI_COMM_WORLD, &request),
            MPI_Recv_init(memory, 1, MPI_INT, 99, 7, MPI_COMM_WORLD, &request),
            MPI_Send_init(memory, 1, MPI_INT, 99, 7, MPI_COMM_WORLD, &request),
            MPI_Send(memory, -1, MPI_INT, peer, 2, MPI_COMM_WORLD),
            MPI_Send(memory, 1, raw, peer, 2, MPI_COMM_WORLD),
            MPI_Send(memory, 1, MPI_INT, 99, 2, MPI_COMM_WORLD),
            MPI_Sendrecv_replace(memory, -1, MPI_INT, peer, 2, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
        };
        for (size_t call = 0; call < sizeof errors / sizeof *errors; call++)
            must(errors[call] != MPI_SUCCESS, "call %zu of memory %d takes what is wrong", call, at);
    }
    MPI_Type_free(&raw);
}
