// Scenes of messages between GPUs, one a run: scenes NAME. Every rank prints "NAME: ok" or what is wrong.
#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

enum { LONG = 3 << 20 };

static int rank, ranks;
static const char *scene;

static void must(int is_right, const char *what, ...) {
    if (is_right) return;
    va_list arguments;
    va_start(arguments, what);
    printf("%s: rank %d: ", scene, rank);
    vprintf(what, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Memory on a GPU, full of bytes that follow from a number.
static char *filled(enum memory memory, size_t bytes, int number) {
    char *host = malloc(bytes), *gpu = gpu_take(memory, bytes);
    for (size_t at = 0; at < bytes; at++) host[at] = (char)(at * 31 + at / 251 + (size_t)number);
    gpu_copy(gpu, host, bytes);
    free(host);
    return gpu;
}

static void must_hold(const char *address, size_t bytes, int number) {
    char *host = malloc(bytes);
    gpu_copy(host, address, bytes);
    for (size_t at = 0; at < bytes; at++) {
        if (host[at] == (char)(at * 31 + at / 251 + (size_t)number)) continue;
        must(0, "byte %zu of %zu is wrong for message %d", at, bytes, number);
    }
    free(host);
}

// A sends from a GPU and sits in a receive of the host's memory, which B answers only after it has received.
static void while_blocked(void) {
    int word = rank;
    if (rank == 0) {
        MPI_Request request;
        char *out = filled(DEVICE, LONG, 1);
        MPI_Isend(out, LONG, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
        MPI_Recv(&word, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(word == 1, "the answer is %d", word);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        char *in = filled(DEVICE, LONG, 9);
        MPI_Recv(in, LONG, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must_hold(in, LONG, 1);
        MPI_Send(&word, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
    }
}

// B posts a receive and sits in a barrier, which A comes to only after its send.
static void while_in_barrier(int synchronous) {
    char *in = filled(DEVICE, LONG, 9), *out = filled(DEVICE, LONG, rank);
    int from = (rank + ranks - 1) % ranks, to = (rank + 1) % ranks;
    MPI_Request request;
    MPI_Irecv(in, LONG, MPI_BYTE, from, 5, MPI_COMM_WORLD, &request);
    // One after the other: those who have sent, or have still to, are in the barrier.
    for (int turn = 0; turn < ranks; turn++) {
        if (turn == rank && synchronous) MPI_Ssend(out, LONG, MPI_BYTE, to, 5, MPI_COMM_WORLD);
        if (turn == rank && !synchronous) MPI_Send(out, LONG, MPI_BYTE, to, 5, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    // The memory is the program's again.
    gpu_give_back(DEVICE, out, LONG);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must_hold(in, LONG, from);
}

// Requests of the MPI's and of messages from GPUs in one array, in all forms of waiting.
static void mixed_requests(void) {
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
            gpu_give_back(at % 2 ? HOST : DEVICE, out[at], 50000);
            gpu_give_back(at % 4 < 2 ? HOST : DEVICE, in[at], 50000);
        }
    }
}

// Messages of all ranks, to one that does not know which comes first.
static void any_source(void) {
    if (rank > 0) {
        for (int at = 0; at < 5; at++) {
            char *out = filled(EXPORTABLE, 100000, rank * 10 + at);
            MPI_Send(out, 100000, MPI_BYTE, 0, at, MPI_COMM_WORLD);
            gpu_give_back(EXPORTABLE, out, 100000);
        }
        return;
    }
    int next[64] = {0};
    char *in = filled(DEVICE, 100000, 0);
    for (int at = 0; at < 5 * (ranks - 1); at++) {
        MPI_Status status, probed;
        if (at % 2) MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &probed);
        int from = at % 2 ? probed.MPI_SOURCE : MPI_ANY_SOURCE;
        MPI_Recv(in, 100000, MPI_BYTE, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        must(status.MPI_TAG == next[status.MPI_SOURCE]++, "rank %d overtakes itself", status.MPI_SOURCE);
        must_hold(in, 100000, status.MPI_SOURCE * 10 + status.MPI_TAG);
    }
}

static int class_of(int error) {
    int class = MPI_SUCCESS;
    if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
    return class;
}

// Errors come back as the standard says, and what comes after them goes on.
static void errors(void) {
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
static void refused(void) {
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

// Memory of the host with gaps receives what comes from a GPU, short and long.
static void gaps(void) {
    MPI_Datatype every_other;
    for (int count = 5; count <= 5000; count *= 10) {
        MPI_Type_vector(count, 1, 2, MPI_INT, &every_other);
        MPI_Type_commit(&every_other);
        size_t bytes = (size_t)count * sizeof(int);
        int *host = calloc((size_t)count * 2, sizeof(int)), *packed = malloc(bytes);
        if (rank == 0) {
            for (int at = 0; at < count; at++) packed[at] = at * 7 + 1;
            char *out = gpu_take(DEVICE, bytes);
            gpu_copy(out, packed, bytes);
            MPI_Send(out, count, MPI_INT, 1, 0, MPI_COMM_WORLD);
            gpu_give_back(DEVICE, out, bytes);
        } else if (rank == 1) {
            MPI_Recv(host, 1, every_other, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 0; at < count; at++) {
                must(host[2 * at] == at * 7 + 1 && host[2 * at + 1] == 0, "element %d of %d is wrong", at,
                     count);
            }
        }
        free(host);
        free(packed);
        MPI_Type_free(&every_other);
    }
}

// Ranks exchange, and replace what they send.
static void exchange(void) {
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int memory = HOST; memory < MEMORIES; memory++) {
        char *out = filled((enum memory)memory, 200000, rank), *in = filled(DEVICE, 200000, 99);
        MPI_Sendrecv(out, 200000, MPI_BYTE, to, 0, in, 200000, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        must_hold(in, 200000, from);
        MPI_Sendrecv_replace(out, 200000, MPI_BYTE, to, 0, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must_hold(out, 200000, from);
        gpu_give_back((enum memory)memory, out, 200000);
        gpu_give_back(DEVICE, in, 200000);
    }
}

// Requests that are started again and again.
static void persistent(void) {
    enum { COUNT = 4 };
    static const size_t bytes[COUNT] = {100, 79, 70000, LONG};
    MPI_Request requests[2 * COUNT];
    char *in[COUNT], *out[COUNT];
    int peer = rank ^ 1;
    for (int at = 0; at < COUNT; at++) {
        in[at] = filled(at % 2 ? DEVICE : HOST, bytes[at], 99);
        out[at] = gpu_take(at == 2 ? HOST : DEVICE, bytes[at]);
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
            gpu_give_back(DEVICE, filling, bytes[at]);
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
    MPI_Recv_init(in[1], 79, MPI_BYTE, peer, 1234, MPI_COMM_WORLD, &never);
    MPI_Start(&never);
    MPI_Cancel(&never);
    MPI_Wait(&never, &status);
    MPI_Test_cancelled(&status, &cancelled);
    must(cancelled, "a persistent receive is not cancelled");
    MPI_Request_free(&never);
    for (int at = 0; at < 2 * COUNT; at++) MPI_Request_free(&requests[at]);
}

// Matched probes take a message out, which nobody else gets.
static void matched(void) {
    static const size_t bytes[] = {79, 10, LONG, 5000, 79};
    static const enum memory from[] = {HOST, DEVICE, DEVICE, HOST, DEVICE};
    for (int into = 0; into < 2; into++) {
        if (rank == 0) {
            MPI_Request requests[5];
            char *out[5];
            for (int at = 0; at < 5; at++) {
                out[at] = filled(from[at], bytes[at], at);
                MPI_Isend(out[at], (int)bytes[at], MPI_BYTE, 1, at, MPI_COMM_WORLD, &requests[at]);
            }
            MPI_Waitall(5, requests, MPI_STATUSES_IGNORE);
        } else if (rank == 1) {
            MPI_Message messages[5];
            MPI_Status statuses[5];
            char *in = filled(into ? DEVICE : HOST, LONG, 99);
            // The third one first: what came before it stays in order.
            MPI_Mprobe(0, 2, MPI_COMM_WORLD, &messages[2], &statuses[2]);
            for (int at = 0; at < 5; at++) {
                if (at == 2) continue;
                MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &messages[at], &statuses[at]);
            }
            for (int at = 4; at >= 0; at--) {
                int count;
                MPI_Status status;
                MPI_Get_count(&statuses[at], MPI_BYTE, &count);
                must(statuses[at].MPI_TAG == at && count == (int)bytes[at],
                     "probe %d finds %d bytes of message %d", at, count, statuses[at].MPI_TAG);
                MPI_Mrecv(in, LONG, MPI_BYTE, &messages[at], &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                must(count == (int)bytes[at] && status.MPI_TAG == at, "receive %d gets %d bytes", at, count);
                must(messages[at] == MPI_MESSAGE_NULL, "a message that was received is left");
                must_hold(in, bytes[at], at);
            }
        }
    }
}

// A rank ends while others wait for what it has sent word of. It becomes another program, so that the
// launcher does not end the others before they have said what they saw.
static void death(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, LONG, 4);
    MPI_Request request;
    if (rank == 0) {
        MPI_Isend(memory, LONG, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        unsetenv("LD_PRELOAD");
        execlp("sleep", "sleep", "5", (char *)NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    sleep(1);
    int error = MPI_Recv(memory, LONG, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    must(error != MPI_SUCCESS, "a rank that has ended hands a message over");
    printf("%s: ok\n", scene);
    fflush(stdout);
    _exit(0);
}

static void become_another(int signal) {
    (void)signal;
    execl("/bin/sleep", "sleep", "12", (char *)NULL);
}

// A rank ends in the middle of a transfer, when it has sent word of all its messages. The other one has some
// of them then, and no more.
static void death_in_transfer(void) {
    enum { COUNT = 64, BYTES = 4 << 20, FIRST = 3 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, BYTES, 4);
    int process = getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    // Over a network ranks find each other while first messages go with the MPI.
    for (int at = 0; at < 25; at++) {
        if (rank == 0) MPI_Send(memory, BYTES, MPI_BYTE, 1, at, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(memory, BYTES, MPI_BYTE, 0, at, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        usleep(20000);
    }
    if (rank == 0) {
        MPI_Request requests[COUNT];
        unsetenv("LD_PRELOAD");
        signal(SIGUSR1, become_another);
        for (int at = 0; at < COUNT; at++)
            MPI_Isend(memory, BYTES, MPI_BYTE, 1, at, MPI_COMM_WORLD, &requests[at]);
        MPI_Barrier(MPI_COMM_WORLD);
        // Its messages are fetched while it calls nothing.
        for (;;) pause();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int error = MPI_SUCCESS, come = 0;
    for (; come < COUNT && error == MPI_SUCCESS; come++) {
        if (come == FIRST) kill(process, SIGUSR1);
        error = MPI_Recv(memory, BYTES, MPI_BYTE, 0, come, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    must(come > FIRST, "message %d does not come", come);
    must(error != MPI_SUCCESS, "a rank that has ended hands all messages over");
    printf("%s: ok\n", scene);
    fflush(stdout);
    _exit(0);
}

static void must_say(int error, const char *words) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    must(error != MPI_SUCCESS, "a call succeeds of which the ranks make different ones");
    MPI_Error_string(error, text, &length);
    must(strstr(text, words) != NULL, "the error says %s", text);
}

// Ranks that do not make the same collective call are told, where that is looked at.
static void checked(void) {
    enum { COUNT = 50000 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, COUNT, 4);
    MPI_Request request;
    int error =
        rank == 0 ? MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD) : MPI_Barrier(MPI_COMM_WORLD);
    must_say(error, rank == 0 ? "rank 1 of the communicator calls MPI_Barrier"
                              : "rank 0 of the communicator calls MPI_Bcast");
    error = MPI_Bcast(memory, COUNT, MPI_BYTE, rank == 0 ? 1 : 0, MPI_COMM_WORLD);
    must_say(error, "gives the root");
    error = MPI_Allreduce(MPI_IN_PLACE, memory, rank == 0 ? COUNT : COUNT / 2, MPI_SIGNED_CHAR, MPI_MAX,
                          MPI_COMM_WORLD);
    must_say(error,
             rank == 0 ? "gives 25000 bytes, and this rank 50000" : "gives 50000 bytes, and this rank 25000");
    error = rank == 0 ? MPI_Ibarrier(MPI_COMM_WORLD, &request) : MPI_Barrier(MPI_COMM_WORLD);
    must_say(error, "calls MPI_Barrier");
    // The same calls go on as if nothing had been.
    error = MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD);
    must(error == MPI_SUCCESS, "a call that all ranks make is an error");
    must_hold(memory, COUNT, 4);
    // One does not come.
    if (rank == 0)
        sleep(12);
    else
        must_say(MPI_Barrier(MPI_COMM_WORLD), "no call on this communicator has come for 8 s from rank 0");
    printf("%s: ok\n", scene);
    fflush(stdout);
    // A launcher ends all ranks once one has ended without MPI_Finalize: rank 0, which is last here, goes first.
    sleep(rank == 0 ? 1 : 6);
    _exit(0);
}

// Ranks that give different lengths in a call that goes from GPU to GPU hear it without being asked to look.
static void lengths(void) {
    enum { COUNT = 500000 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, COUNT, 4);
    int error = MPI_Bcast(memory, rank == 0 ? COUNT : COUNT - 1, MPI_BYTE, 0, MPI_COMM_WORLD);
    must_say(error, "all of them must give the same");
    error = MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD);
    must(error == MPI_SUCCESS, "a call that all ranks make is an error");
    must_hold(memory, COUNT, 4);
}

// A rank ends in front of a call that goes from GPU to GPU: the others are not left waiting.
static void death_in_call(void) {
    enum { COUNT = 500000 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, COUNT, 4);
    MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        unsetenv("LD_PRELOAD");
        execlp("sleep", "sleep", "12", (char *)NULL);
    }
    int error = MPI_Bcast(memory, COUNT, MPI_BYTE, 1, MPI_COMM_WORLD);
    must_say(error, "from rank 0");
    printf("%s: ok\n", scene);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    scene = argc > 1 ? argv[1] : "";
    gpu_start_on(rank);
    // So that all have joined the job.
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(scene, "while_blocked") == 0)
        while_blocked();
    else if (strcmp(scene, "barrier") == 0)
        while_in_barrier(0);
    else if (strcmp(scene, "synchronous") == 0)
        while_in_barrier(1);
    else if (strcmp(scene, "mixed_requests") == 0)
        mixed_requests();
    else if (strcmp(scene, "any_source") == 0)
        any_source();
    else if (strcmp(scene, "errors") == 0)
        errors();
    else if (strcmp(scene, "refused") == 0)
        refused();
    else if (strcmp(scene, "gaps") == 0)
        gaps();
    else if (strcmp(scene, "exchange") == 0)
        exchange();
    else if (strcmp(scene, "persistent") == 0)
        persistent();
    else if (strcmp(scene, "matched") == 0)
        matched();
    else if (strcmp(scene, "death") == 0)
        death();
    else if (strcmp(scene, "death_in_transfer") == 0)
        death_in_transfer();
    else if (strcmp(scene, "checked") == 0)
        checked();
    else if (strcmp(scene, "lengths") == 0)
        lengths();
    else if (strcmp(scene, "death_in_call") == 0)
        death_in_call();
    else
        must(0, "there is no such scene");
    MPI_Finalize();
    printf("%s: ok\n", scene);
    return 0;
}
