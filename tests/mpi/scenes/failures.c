// Failures: ranks that exit while others wait for them, and ranks that make different calls.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scenes.h"

// A rank ends while others wait for what it has sent word of. It becomes another program, so that the
// launcher does not end the others before they have said what they saw.
void death(void) {
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
void death_in_transfer(void) {
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
void checked(void) {
    enum { COUNT = 50000 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, COUNT, 4);
    MPI_Request request;
    int error =
        rank == 0 ? MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD) : MPI_Barrier(MPI_COMM_WORLD);
    must_say(error, rank == 0 ? "rank 1 of the communicator calls MPI_Barrier"
                              : "rank 0 of the communicator calls MPI_Bcast");
    error = MPI_Bcast(memory, COUNT, MPI_BYTE, rank == 0 ? 1 : 0, MPI_COMM_WORLD);
    must_say(error, "passes root");
    error = MPI_Allreduce(MPI_IN_PLACE, memory, rank == 0 ? COUNT : COUNT / 2, MPI_SIGNED_CHAR, MPI_MAX,
                          MPI_COMM_WORLD);
    must_say(error, rank == 0 ? "passes 25000 bytes, and this rank 50000"
                              : "passes 50000 bytes, and this rank 25000");
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
        must_say(MPI_Barrier(MPI_COMM_WORLD), "for 8 s, no call on this communicator from rank 0");
    printf("%s: ok\n", scene);
    fflush(stdout);
    // A launcher ends all ranks once one has ended without MPI_Finalize: rank 0, which is last here, goes
    // first.
    sleep(rank == 0 ? 1 : 6);
    _exit(0);
}

// Ranks that give different lengths in a call that goes from GPU to GPU hear it without being asked to look.
void lengths(void) {
    enum { COUNT = 500000 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char *memory = filled(DEVICE, COUNT, 4);
    int error = MPI_Bcast(memory, rank == 0 ? COUNT : COUNT - 1, MPI_BYTE, 0, MPI_COMM_WORLD);
    must_say(error, "all ranks must pass the same number");
    error = MPI_Bcast(memory, COUNT, MPI_BYTE, 0, MPI_COMM_WORLD);
    must(error == MPI_SUCCESS, "a call that all ranks make is an error");
    must_hold(memory, COUNT, 4);
}

// A rank ends in front of a call that goes from GPU to GPU: the others are not left waiting.
void death_in_call(void) {
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

// One message as it should be.
static void right_message(int number) {
    char *memory = filled(DEVICE, LONG, rank == 0 ? number : 99);
    if (rank == 0) MPI_Send(memory, LONG, MPI_BYTE, 1, number, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(memory, LONG, MPI_BYTE, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    must_hold(memory, LONG, number);
    MPI_Barrier(MPI_COMM_WORLD);
    gpu_free(DEVICE, memory, LONG);
}

// What goes wrong is forgiven: memory that the program has freed too early, more often than a channel may
// fail, and contexts that end.
void recovery(void) {
    enum { MISTAKES = 5, RESETS = 3 };
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int at = 0; at < MISTAKES; at++) {
        char *memory = filled(DEVICE, LONG, 1);
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank == 0) {
            MPI_Isend(memory, LONG, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
            gpu_free(DEVICE, memory, LONG);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        int error = rank == 0 ? MPI_Wait(&request, MPI_STATUS_IGNORE)
                              : MPI_Recv(memory, LONG, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must(error != MPI_SUCCESS, "memory that was freed is handed over");
        if (rank == 1) gpu_free(DEVICE, memory, LONG);
    }
    right_message(1);
    for (int at = 0; at < RESETS; at++) {
        gpu_reset();
        right_message(2 + at);
    }
}
