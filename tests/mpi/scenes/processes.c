// Messages in flight while ranks connect to each other and start processes, and messages of those; and what a
// process holds for its peers.
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "scenes.h"

enum { HUGE = 96 << 20 };

// Rank 1 sends to rank 0, and calls on only when the message has gone; rank 0 is in the other call by then.
static char *begin(MPI_Request *request) {
    char *memory = filled(DEVICE, HUGE, rank);
    int flag;
    if (rank == 0) {
        MPI_Irecv(memory, HUGE, MPI_BYTE, 1, 0, MPI_COMM_WORLD, request);
        MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    } else {
        MPI_Isend(memory, HUGE, MPI_BYTE, 0, 0, MPI_COMM_WORLD, request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    return memory;
}

static void end(char *memory, MPI_Request *request) {
    MPI_Wait(request, MPI_STATUS_IGNORE);
    must_hold(memory, HUGE, 1);
    gpu_free(DEVICE, memory, HUGE);
}

// Sends over an intercommunicator, to its only rank or from it.
static void pass(MPI_Comm other, int sends) {
    char *memory = filled(DEVICE, LONG, sends ? 7 : 8);
    if (sends)
        MPI_Send(memory, LONG, MPI_BYTE, 0, 1, other);
    else
        MPI_Recv(memory, LONG, MPI_BYTE, 0, 1, other, MPI_STATUS_IGNORE);
    must_hold(memory, LONG, 7);
    gpu_free(DEVICE, memory, LONG);
}

void connection(void) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Request request;
    MPI_Comm other;
    if (rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    char *memory = begin(&request);
    if (rank == 0)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
    pass(other, rank == 1);
    end(memory, &request);
    MPI_Comm_disconnect(&other);
    if (rank == 0) MPI_Close_port(port);
}

void spawned(void) {
    char *arguments[] = {"child", NULL}, program[4096];
    MPI_Request request;
    MPI_Comm children;
    must(realpath("/proc/self/exe", program) != NULL, "the program has no path");
    char *memory = begin(&request);
    MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    if (rank == 0) pass(children, 0);
    end(memory, &request);
    MPI_Comm_disconnect(&children);
}

// What `spawned` starts.
void child(void) {
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    must(parent != MPI_COMM_NULL, "nobody has started this process");
    pass(parent, 1);
    MPI_Comm_disconnect(&parent);
}

// File descriptors of this process.
static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    must(folder != NULL, "the process cannot read its descriptors");
    int count = 0;
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

// There must be no more of them soon: threads of the driver open some for moments.
static void must_have(int most, const char *what) {
    enum { TRIES = 200, PAUSE = 10000 };
    int count = count_descriptors();
    for (int tries = 0; count > most && tries < TRIES; tries++) {
        usleep(PAUSE);
        count = count_descriptors();
    }
    must(count <= most, "%s: %d descriptors, not %d", what, count, most);
    // Other ranks would reach this one meanwhile.
    MPI_Barrier(MPI_COMM_WORLD);
}

// Each rank sends to each, and receives from each.
static void cross(char *from, char *to, size_t bytes, int peers) {
    for (int distance = 1; distance <= peers; distance++)
        MPI_Sendrecv(from, (int)bytes, MPI_BYTE, (rank + distance) % ranks, 0, to, (int)bytes, MPI_BYTE,
                     (rank + ranks - distance) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

// A rank has no descriptors for peers that it has sent no GPU memory, and two for each of the others: one in
// each direction.
void descriptors(void) {
    enum { PER_PEER = 2 };
    char *host = calloc(2, LONG), *from = filled(DEVICE, LONG, rank), *to = gpu_allocate(DEVICE, LONG);
    must(host != NULL, "there is no memory");
    // What the MPI itself needs, and the GPU's driver.
    cross(host, host + LONG, LONG, ranks - 1);
    gpu_copy(to, from, LONG);
    int before = count_descriptors();
    cross(host, host + LONG, LONG, ranks - 1);
    must_have(before, "host memory was sent");
    for (int peers = 1; peers < ranks; peers++) {
        // Channels differ by length.
        for (size_t bytes = LONG; bytes >= LONG / 48; bytes /= 3) cross(from, to, bytes, peers);
        // Those behind this rank, too.
        int reached = 2 * peers < ranks - 1 ? 2 * peers : ranks - 1;
        must_have(before + PER_PEER * reached, "GPU memory was sent");
    }
    free(host);
    gpu_free(DEVICE, from, LONG);
    gpu_free(DEVICE, to, LONG);
}
