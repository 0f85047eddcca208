// Errors of messages, and calls that do not take memory on a GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        gpu_give_back(DEVICE, gone, LONG);
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
}

#define REFUSED(call, ...) must_be_refused(call(__VA_ARGS__), #call)

// One-sided calls, whose memory here is on a GPU in one or the other place.
static void windows_refuse(char *gpu, char *host) {
    MPI_Win window, dynamic;
    MPI_Request request;
    REFUSED(MPI_Win_create, gpu, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    REFUSED(MPI_Win_attach, dynamic, gpu, 64);
    MPI_Win_free(&dynamic);
    MPI_Win_create(host, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Win_fence(0, window);
    REFUSED(MPI_Put, gpu, 64, MPI_BYTE, 0, 0, 64, MPI_BYTE, window);
    REFUSED(MPI_Get, gpu, 64, MPI_BYTE, 0, 0, 64, MPI_BYTE, window);
    REFUSED(MPI_Accumulate, gpu, 8, MPI_INT, 0, 0, 8, MPI_INT, MPI_SUM, window);
    REFUSED(MPI_Get_accumulate, host, 8, MPI_INT, gpu, 8, MPI_INT, 0, 0, 8, MPI_INT, MPI_SUM, window);
    REFUSED(MPI_Get_accumulate, gpu, 8, MPI_INT, host, 8, MPI_INT, 0, 0, 8, MPI_INT, MPI_SUM, window);
    REFUSED(MPI_Fetch_and_op, host, gpu, MPI_INT, 0, 0, MPI_SUM, window);
    REFUSED(MPI_Compare_and_swap, host, gpu, host, MPI_INT, 0, 0, window);
    REFUSED(MPI_Rput, gpu, 64, MPI_BYTE, 0, 0, 64, MPI_BYTE, window, &request);
    REFUSED(MPI_Rget, gpu, 64, MPI_BYTE, 0, 0, 64, MPI_BYTE, window, &request);
    REFUSED(MPI_Raccumulate, gpu, 8, MPI_INT, 0, 0, 8, MPI_INT, MPI_SUM, window, &request);
    REFUSED(MPI_Rget_accumulate, host, 8, MPI_INT, gpu, 8, MPI_INT, 0, 0, 8, MPI_INT, MPI_SUM, window,
            &request);
#if MPI_VERSION >= 4
    REFUSED(MPI_Put_c, gpu, 64, MPI_BYTE, 0, 0, 64, MPI_BYTE, window);
#endif
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

// Files, in all forms of their calls.
static void files_refuse(char *gpu) {
    char name[] = "/tmp/causeway-scenes-XXXXXX";
    MPI_File file;
    MPI_Request request;
    close(mkstemp(name));
    int mode = MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    must(MPI_File_open(MPI_COMM_SELF, name, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS, "no file opens");
    REFUSED(MPI_File_read, file, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_write_all, file, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_write_at, file, 0, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_read_at_all, file, 0, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_write_shared, file, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_read_ordered, file, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    REFUSED(MPI_File_iread, file, gpu, 64, MPI_BYTE, &request);
    REFUSED(MPI_File_iwrite_all, file, gpu, 64, MPI_BYTE, &request);
    REFUSED(MPI_File_iread_at, file, 0, gpu, 64, MPI_BYTE, &request);
    REFUSED(MPI_File_iwrite_at_all, file, 0, gpu, 64, MPI_BYTE, &request);
    REFUSED(MPI_File_write_all_begin, file, gpu, 64, MPI_BYTE);
    REFUSED(MPI_File_read_at_all_begin, file, 0, gpu, 64, MPI_BYTE);
    REFUSED(MPI_File_write_ordered_begin, file, gpu, 64, MPI_BYTE);
#if MPI_VERSION >= 4
    REFUSED(MPI_File_read_c, file, gpu, 64, MPI_BYTE, MPI_STATUS_IGNORE);
#endif
    // The file is as good as before.
    char out[64] = "bytes of the host", in[64] = "";
    MPI_File_write_at(file, 0, out, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 0, in, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    must(memcmp(in, out, 64) == 0, "the file holds other bytes");
    MPI_File_close(&file);
}

// Calls that do not take such memory say so, and which they are.
void refused(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    char *gpu = filled(DEVICE, 64, 4), host[64] = "";
    windows_refuse(gpu, host);
    files_refuse(gpu);
    MPI_Aint at = 0;
    REFUSED(MPI_Pack_external, "external32", gpu, 4, MPI_INT, host, 64, &at);
    REFUSED(MPI_Unpack_external, "external32", host, 64, &at, gpu, 4, MPI_INT);
    // Open MPI 5 has them, and calls itself MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    MPI_Request request;
    REFUSED(MPI_Psend_init, gpu, 4, 16, MPI_BYTE, rank ^ 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    REFUSED(MPI_Precv_init, gpu, 4, 16, MPI_BYTE, rank ^ 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#endif
    must_hold(gpu, 64, 4);
}
