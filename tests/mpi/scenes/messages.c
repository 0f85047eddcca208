// Messages of one rank to another: while ranks wait elsewhere, from any source, exchanged, probed.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "causeway_comm.h"
#include "scenes.h"

// A sends from a GPU and sits in a receive of the host's memory, which B answers only after it has received.
void while_blocked(void) {
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
void while_in_barrier(int synchronous) {
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
    gpu_free(DEVICE, out, LONG);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must_hold(in, LONG, from);
}

// A sends without waiting to B, which waits for each message; then B waits for each send, and A for none of
// its receives.
void traffic(void) {
    enum { COUNT = 20, BYTES = 100000 };
    MPI_Request requests[COUNT];
    char *memory[COUNT];
    for (int at = 0; at < COUNT && rank < 2; at++) {
        memory[at] = filled(DEVICE, BYTES, rank == 0 ? at : 99);
        if (rank == 0) MPI_Isend(memory[at], BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &requests[at]);
        if (rank == 1) MPI_Recv(memory[at], BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < COUNT && rank < 2; at++) {
        if (rank == 0) MPI_Irecv(memory[at], BYTES, MPI_BYTE, 1, 6, MPI_COMM_WORLD, &requests[at]);
        if (rank == 1) MPI_Send(memory[at], BYTES, MPI_BYTE, 0, 6, MPI_COMM_WORLD);
    }
    if (rank == 0) MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < COUNT && rank < 2; at++) must_hold(memory[at], BYTES, at);
}

// Messages of all ranks, to one that does not know which comes first.
void any_source(void) {
    if (rank > 0) {
        for (int at = 0; at < 5; at++) {
            char *out = filled(EXPORTABLE, 100000, rank * 10 + at);
            MPI_Send(out, 100000, MPI_BYTE, 0, at, MPI_COMM_WORLD);
            gpu_free(EXPORTABLE, out, 100000);
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

// Memory of the host with gaps receives what comes from a GPU, short and long.
void gaps(void) {
    MPI_Datatype every_other;
    for (int count = 5; count <= 5000; count *= 10) {
        MPI_Type_vector(count, 1, 2, MPI_INT, &every_other);
        MPI_Type_commit(&every_other);
        size_t bytes = (size_t)count * sizeof(int);
        int *host = calloc((size_t)count * 2, sizeof(int)), *packed = malloc(bytes);
        if (rank == 0) {
            for (int at = 0; at < count; at++) packed[at] = at * 7 + 1;
            char *out = gpu_allocate(DEVICE, bytes);
            gpu_copy(out, packed, bytes);
            MPI_Send(out, count, MPI_INT, 1, 0, MPI_COMM_WORLD);
            gpu_free(DEVICE, out, bytes);
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

// A number, one of 8 bytes and some bytes, with gaps between them.
struct record {
    int number;
    double wide;
    char bytes[5];
};

static struct record record_of(int at) {
    return (struct record){at * 7 + 1, at * 0.5, {(char)at, 1, 2, 3, 4}};
}

// Long messages of structures, whose pieces under way end anywhere, from the host and from a GPU into the
// host's memory, by every way to receive: also where the processes are not of the job. A buffered one is sent
// as bytes.
void structures(void) {
    enum { COUNT = 9001, WAYS = 6, KINDS = 3 };
    static const enum memory from[KINDS] = {HOST, DEVICE, DEVICE};
    int lengths[] = {1, 1, 5};
    MPI_Aint offsets[] = {offsetof(struct record, number), offsetof(struct record, wide),
                          offsetof(struct record, bytes)};
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR}, packed, type;
    MPI_Type_create_struct(3, lengths, offsets, types, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(struct record), &type);
    MPI_Type_commit(&type);
    size_t bytes = COUNT * sizeof(struct record);
    struct record *host = malloc(bytes);
    MPI_Request request;
    MPI_Message message;
    static char buffer[(COUNT * sizeof(struct record) + MPI_BSEND_OVERHEAD) * WAYS];
    MPI_Buffer_attach(buffer, (int)sizeof buffer);
    for (int at = 0; at < COUNT; at++) host[at] = record_of(at);
    for (int turn = 0; rank == 0 && turn < KINDS * WAYS; turn++) {
        char *out = gpu_allocate(from[turn / WAYS], bytes);
        gpu_copy(out, host, bytes);
        (turn / WAYS == 2 ? MPI_Bsend : MPI_Send)(out, COUNT, type, 1, turn, MPI_COMM_WORLD);
        gpu_free(from[turn / WAYS], out, bytes);
    }
    for (int turn = 0; rank == 1 && turn < KINDS * WAYS; turn++) {
        MPI_Status status;
        int count = 0;
        memset(host, 0x5a, bytes);
        if (turn % WAYS > 3) MPI_Mprobe(0, turn, MPI_COMM_WORLD, &message, &status);
        switch (turn % WAYS) {
        case 0: MPI_Recv(host, COUNT, type, 0, turn, MPI_COMM_WORLD, &status); break;
        case 1: MPI_Irecv(host, COUNT, type, 0, turn, MPI_COMM_WORLD, &request); break;
        case 2:
            MPI_Recv_init(host, COUNT, type, 0, turn, MPI_COMM_WORLD, &request);
            MPI_Start(&request);
            break;
        case 3:
            MPI_Sendrecv(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, host, COUNT, type, 0, turn, MPI_COMM_WORLD,
                         &status);
            break;
        case 4: MPI_Mrecv(host, COUNT, type, &message, &status); break;
        default: MPI_Imrecv(host, COUNT, type, &message, &request);
        }
        if (turn % WAYS == 1 || turn % WAYS == 2 || turn % WAYS == 5) MPI_Wait(&request, &status);
        if (turn % WAYS == 2) MPI_Request_free(&request);
        MPI_Get_count(&status, type, &count);
        must(count == COUNT, "message %d has %d structures", turn, count);
        for (int at = 0; at < COUNT; at++) {
            struct record wanted = record_of(at), *found = &host[at];
            must(found->number == wanted.number && found->wide == wanted.wide &&
                     memcmp(found->bytes, wanted.bytes, sizeof wanted.bytes) == 0,
                 "structure %d of message %d is wrong", at, turn);
        }
    }
    void *returned;
    int returned_bytes;
    MPI_Buffer_detach(&returned, &returned_bytes);
    free(host);
    MPI_Type_free(&type);
    MPI_Type_free(&packed);
}

// Ranks exchange, and replace what they send.
void exchange(void) {
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int memory = HOST; memory < MEMORIES; memory++) {
        char *out = filled((enum memory)memory, 200000, rank), *in = filled(DEVICE, 200000, 99);
        MPI_Sendrecv(out, 200000, MPI_BYTE, to, 0, in, 200000, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        must_hold(in, 200000, from);
        MPI_Sendrecv_replace(out, 200000, MPI_BYTE, to, 0, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        must_hold(out, 200000, from);
        gpu_free((enum memory)memory, out, 200000);
        gpu_free(DEVICE, in, 200000);
    }
}

// Matched probes take a message out, which nobody else gets.
void matched(void) {
    static const size_t bytes[] = {CAUSEWAY_COMM_DESCRIPTOR, 10, LONG, 5000, CAUSEWAY_COMM_DESCRIPTOR};
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

// Messages of any rank are probed and received while others come: from GPUs, and from the host of the last
// rank.
void any_probe(void) {
    enum { MESSAGES = 300, SHORT = 1000, LONGER = 65536 };
    char *own = filled(rank == ranks - 1 ? HOST : DEVICE, LONGER, rank);
    int bytes = rank == ranks - 1 ? SHORT : LONGER;
    for (int number = 0; rank > 0 && number < MESSAGES; number++)
        MPI_Send(own, bytes, MPI_BYTE, 0, rank, MPI_COMM_WORLD);
    for (int number = 0; rank == 0 && number < MESSAGES * (ranks - 1); number++) {
        MPI_Message message;
        MPI_Status status;
        int count;
        MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        MPI_Mrecv(own, LONGER, MPI_BYTE, &message, &status);
        must(count == (status.MPI_TAG == ranks - 1 ? SHORT : LONGER), "message %d of rank %d has %d bytes",
             number, status.MPI_SOURCE, count);
        if (number % 50 == 0) must_hold(own, (size_t)count, status.MPI_TAG);
    }
}

// More bytes than an int counts: to a rank itself, in place of what it sends.
void large(void) {
    size_t count = ((size_t)1 << 28) + 1;
    double *numbers = calloc(count, sizeof *numbers);
    must(numbers != NULL, "there is no memory");
    numbers[0] = 1;
    numbers[count - 1] = 2;
    MPI_Sendrecv_replace(numbers, (int)count, MPI_DOUBLE, rank, 0, rank, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    must(numbers[0] == 1 && numbers[count - 1] == 2, "the bytes are others");
    // Without gaps, but not made of copies of one type. Open MPI 4.1.4 takes more bytes than an int counts
    // for fewer than none, and counts numbers right.
    int lengths[] = {1 << 27, (1 << 27) + 1};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_DOUBLE}, type;
    MPI_Type_create_struct(2, lengths, (MPI_Aint[]){0, 1 << 30}, types, &type);
    MPI_Type_commit(&type);
    MPI_Request request;
    double *in = calloc(count, sizeof *in);
    MPI_Irecv(in, 1, type, rank, 0, MPI_COMM_WORLD, &request);
    MPI_Send(numbers, 1, type, rank, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must(in[0] == 1 && in[count - 1] == 2, "the bytes of a structure are others");
    MPI_Type_free(&type);
    free(numbers);
    free(in);
}

// A message is sent with what copies in the default stream, which have been begun and not ended, bring into
// its memory, and received over what they have brought there.
void default_stream(void) {
    enum { BYTES = 1 << 16, FILLING = 48 << 20, COPIES = 6 };
    int peer = rank ^ 1;
    char *filling = gpu_allocate(DEVICE, FILLING), *other = gpu_allocate(DEVICE, FILLING),
         *in = filled(DEVICE, BYTES, 99);
    for (int round = 0; round < 6; round++) {
        // Of memory that is sent for the second time the driver keeps the order of what it copies at once.
        char *out = filled(DEVICE, BYTES, 50 + round), *next = filled(DEVICE, BYTES, round + rank);
        if (round % 2)
            MPI_Sendrecv(out, BYTES, MPI_BYTE, peer, 0, in, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        for (int copy = 0; copy < COPIES; copy++) gpu_begin_copy(other, filling, FILLING);
        gpu_begin_copy(out, next, BYTES);
        gpu_begin_copy(in, filling, BYTES);
        if (round < 4) {
            MPI_Sendrecv(out, BYTES, MPI_BYTE, peer, 0, in, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        } else {
            MPI_Request request;
            MPI_Ialltoall(out, BYTES / ranks, MPI_BYTE, in, BYTES / ranks, MPI_BYTE, MPI_COMM_WORLD,
                          &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        gpu_wait();
        if (round < 4) must_hold(in, BYTES, round + peer);
        // The first part of what rank 0 has.
        if (round >= 4 && rank == 0) must_hold(in, (size_t)(BYTES / ranks), round);
        gpu_free(DEVICE, out, BYTES);
        gpu_free(DEVICE, next, BYTES);
    }
    gpu_free(DEVICE, filling, FILLING);
    gpu_free(DEVICE, other, FILLING);
    gpu_free(DEVICE, in, BYTES);
}
