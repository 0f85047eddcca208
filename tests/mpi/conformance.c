// What the standard promises of messages that are under way when other calls are made, and of details that
// programs seldom look at: random sizes, types and kinds of memory.
//
// conformance SEED ROUNDS: all ranks make the same calls, which follow from the seed.
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "split_mix.h"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_ISENDRECV 1
#else
#define HAS_ISENDRECV 0
#endif

static uint64_t common_state, own_state;
static int rank, ranks, wrong;

static int common(int limit) {
    return (int)(split_mix(&common_state) % (uint64_t)limit);
}

static int own(int limit) {
    return (int)(split_mix(&own_state) % (uint64_t)limit);
}

static void must(int is_right, const char *what, ...) {
    if (is_right) return;
    va_list arguments;
    va_start(arguments, what);
    fprintf(stderr, "rank %d: ", rank);
    vfprintf(stderr, what, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    wrong = 1;
}

// Numbers in memory of some kind.
struct buffer {
    enum memory kind;
    int count;
    int *address;
};

static int number(int from, int message, int at) {
    return from * 1000003 + message * 7919 + at;
}

static struct buffer take(int count, int from, int message) {
    struct buffer buffer = {own(2) ? DEVICE : (enum memory)own(MEMORIES), count, NULL};
    size_t bytes = (size_t)count * sizeof(int);
    int *host = malloc(bytes + 1);
    for (int at = 0; at < count; at++) host[at] = number(from, message, at);
    buffer.address = gpu_allocate(buffer.kind, bytes);
    gpu_copy(buffer.address, host, bytes);
    free(host);
    return buffer;
}

// Holds the numbers of a rank from there on, summed up over so many ranks that follow it.
static void must_hold(const struct buffer *buffer, int start, int count, int from, int sum, int message,
                      const char *what) {
    size_t bytes = (size_t)count * sizeof(int);
    int *host = malloc(bytes + 1);
    gpu_copy(host, buffer->address + start, bytes);
    for (int at = 0; at < count; at++) {
        int expected = 0;
        for (int other = 0; other < sum; other++) expected += number(from + other, message, at);
        if (host[at] == expected) continue;
        must(0, "%s, %s memory: element %d of %d is %d and not %d", what, gpu_name(buffer->kind), at, count,
             host[at], expected);
        break;
    }
    free(host);
}

static void give_back(struct buffer *buffer) {
    gpu_free(buffer->kind, buffer->address, (size_t)buffer->count * sizeof(int));
}

// A call of all ranks, by the numbers of message -1.
static void call_together(void) {
    int which = common(8), count = common(3) ? common(200) : common(200000), root = common(ranks);
    struct buffer out = take(count, rank, -1), in = take(count * ranks, 77, -1);
    MPI_Comm world = MPI_COMM_WORLD, other;
    int left = rank == root ? ranks : 0;
    switch (which) {
    case 0: MPI_Barrier(world); break;
    case 1:
        MPI_Bcast(out.address, count, MPI_INT, root, world);
        must_hold(&out, 0, count, root, 1, -1, "MPI_Bcast");
        break;
    case 2:
        MPI_Reduce(out.address, in.address, count, MPI_INT, MPI_SUM, root, world);
        if (rank == root) must_hold(&in, 0, count, 0, ranks, -1, "MPI_Reduce");
        break;
    case 3:
        MPI_Allreduce(out.address, in.address, count, MPI_INT, MPI_SUM, world);
        must_hold(&in, 0, count, 0, ranks, -1, "MPI_Allreduce");
        break;
    case 4:
        MPI_Gather(out.address, count, MPI_INT, in.address, count, MPI_INT, root, world);
        for (int from = 0; from < left; from++)
            must_hold(&in, from * count, count, from, 1, -1, "MPI_Gather");
        break;
    case 5:
        MPI_Allgather(out.address, count, MPI_INT, in.address, count, MPI_INT, world);
        for (int from = 0; from < ranks; from++)
            must_hold(&in, from * count, count, from, 1, -1, "MPI_Allgather");
        break;
    case 6:
        MPI_Scan(out.address, in.address, count, MPI_INT, MPI_SUM, world);
        must_hold(&in, 0, count, 0, rank + 1, -1, "MPI_Scan");
        break;
    default: MPI_Comm_split(world, 0, rank, &other); MPI_Comm_free(&other);
    }
    give_back(&out);
    give_back(&in);
}

// Messages in a ring are under way while all ranks make another call, which some of them come to late.
static void messages_under_way(void) {
    enum { MAX_MESSAGES = 4 };
    int messages = common(MAX_MESSAGES + 1), left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    struct buffer out[MAX_MESSAGES], in[MAX_MESSAGES];
    MPI_Request requests[2 * MAX_MESSAGES];
    int is_blocking[MAX_MESSAGES], is_early[MAX_MESSAGES], flag;
    for (int at = 0; at < messages; at++) {
        int count = common(3) ? common(1000) : common(2000000);
        out[at] = take(count, rank, at);
        in[at] = take(count, 99, at);
        // Who waits in a send must not wait for a receive that comes behind the call.
        is_blocking[at] = common(3) == 0;
        is_early[at] = is_blocking[at] || own(2);
        requests[at] = requests[messages + at] = MPI_REQUEST_NULL;
        if (is_early[at]) MPI_Irecv(in[at].address, count, MPI_INT, left, at, MPI_COMM_WORLD, &requests[at]);
    }
    for (int at = 0; at < messages; at++) {
        if (is_blocking[at])
            MPI_Send(out[at].address, out[at].count, MPI_INT, right, at, MPI_COMM_WORLD);
        else
            MPI_Isend(out[at].address, out[at].count, MPI_INT, right, at, MPI_COMM_WORLD,
                      &requests[messages + at]);
    }
    // So that copies have begun and not ended.
    for (int turn = messages > 0 ? own(300) : 0; turn > 0; turn--)
        MPI_Test(&requests[own(2 * messages)], &flag, MPI_STATUS_IGNORE);
    call_together();
    for (int at = 0; at < messages; at++)
        if (!is_early[at])
            MPI_Irecv(in[at].address, in[at].count, MPI_INT, left, at, MPI_COMM_WORLD, &requests[at]);
    MPI_Waitall(2 * messages, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < messages; at++) {
        must_hold(&in[at], 0, in[at].count, left, 1, at, "a message of a ring");
        give_back(&out[at]);
        give_back(&in[at]);
    }
}

// A rank has begun to take a long message when it goes into a call in which it waits for the message's
// sender. Of memory that is open already the copy goes on while the receiver does something else.
static void taken_and_left(void) {
    enum { TIMES = 8, MAX_MESSAGES = 4000000 };
    static struct buffer buffer;
    if (buffer.address == NULL) {
        buffer = (struct buffer){common(2) ? DEVICE : EXPORTABLE, MAX_MESSAGES, NULL};
        buffer.address = gpu_allocate(buffer.kind, MAX_MESSAGES * sizeof(int));
    }
    for (int time = 0; time < TIMES; time++) {
        int count = common(MAX_MESSAGES), turns = own(40), flag = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        struct buffer filled = take(count, rank, time);
        gpu_copy(buffer.address, filled.address, (size_t)count * sizeof(int));
        // A copy within the GPU has not ended when it returns.
        gpu_wait();
        give_back(&filled);
        if (rank == 0) {
            MPI_Send(buffer.address, count, MPI_INT, 1, 4, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Irecv(buffer.address, count, MPI_INT, 0, 4, MPI_COMM_WORLD, &request);
            for (int turn = 0; turn < turns && !flag; turn++) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1) must_hold(&buffer, 0, count, 0, 1, time, "a message that was left");
    }
}

// A rank sends itself messages of types whose length is no divisor of a descriptor's.
static void to_oneself(void) {
    int length = 1 + own(5), count = own(2000);
    MPI_Datatype type = MPI_INT;
    if (own(2)) {
        MPI_Type_contiguous(length, MPI_INT, &type);
        MPI_Type_commit(&type);
    } else {
        length = 1;
    }
    struct buffer out = take(count * length, rank, 5), in = take(count * length, 55, 5);
    MPI_Request request;
    MPI_Status status = {.MPI_ERROR = MPI_ERR_DIMS};
    int found = -1, elements = -1;
    // One that is buffered ends without a receiver.
    if (own(2)) {
        // Open MPI 4.1.4 itself sends zeros the second time, from the host's memory.
        int turns = out.kind == HOST || out.kind == PINNED ? 1 : 2;
        MPI_Bsend_init(out.address, count, type, rank, 3, MPI_COMM_WORLD, &request);
        for (int turn = 0; turn < turns; turn++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Recv(in.address, count, type, rank, 3, MPI_COMM_WORLD, &status);
        }
        MPI_Request_free(&request);
    } else {
        MPI_Irecv(in.address, count, type, rank, 3, MPI_COMM_WORLD, &request);
        MPI_Send(out.address, count, type, rank, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
    }
    must_hold(&in, 0, in.count, rank, 1, 5, "a message to oneself");
    MPI_Get_count(&status, type, &found);
    MPI_Get_elements(&status, type, &elements);
    must(found == count && elements == count * length, "the status says %d of %d elements", found, count);
    must(status.MPI_ERROR == MPI_ERR_DIMS, "the status has another error: %d", status.MPI_ERROR);
    if (type != MPI_INT) MPI_Type_free(&type);
    give_back(&out);
    give_back(&in);
}

// Probes leave the error of a status alone, too, and matched messages come whole.
static void matched(void) {
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, count = common(3000), found = -1;
    struct buffer out = take(count, rank, 6), in = take(count, 66, 6);
    MPI_Request request;
    MPI_Message message;
    MPI_Status status = {.MPI_ERROR = MPI_ERR_DIMS};
    MPI_Isend(out.address, count, MPI_INT, right, 8, MPI_COMM_WORLD, &request);
    MPI_Probe(left, 8, MPI_COMM_WORLD, &status);
    must(status.MPI_ERROR == MPI_ERR_DIMS, "a probe's status has another error: %d", status.MPI_ERROR);
    MPI_Mprobe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &message, &status);
    must(status.MPI_ERROR == MPI_ERR_DIMS, "a matched probe's status has another error: %d",
         status.MPI_ERROR);
    MPI_Mrecv(in.address, count, MPI_INT, &message, &status);
    MPI_Get_count(&status, MPI_INT, &found);
    must(found == count && status.MPI_SOURCE == left, "%d of %d elements from %d", found, count,
         status.MPI_SOURCE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must_hold(&in, 0, count, left, 1, 6, "a matched message");
    give_back(&out);
    give_back(&in);
}

// The non-blocking forms of a send and a receive at once.
static void exchanged(void) {
#if HAS_ISENDRECV
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    int count = common(3) ? common(3000) : common(300000), found = -1;
    struct buffer out = take(count, rank, 7), in = take(count, 70, 7);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Isendrecv(out.address, count, MPI_INT, right, 9, in.address, count, MPI_INT, left, 9, MPI_COMM_WORLD,
                  &requests[0]);
    // The other one is sent in place.
    struct buffer both = take(count, rank, 8);
    MPI_Isendrecv_replace(both.address, count, MPI_INT, left, 10, right, 10, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    MPI_Get_count(&statuses[0], MPI_INT, &found);
    must(found == count && statuses[0].MPI_SOURCE == left, "MPI_Isendrecv: %d of %d", found, count);
    must_hold(&in, 0, count, left, 1, 7, "MPI_Isendrecv");
    must_hold(&both, 0, count, right, 1, 8, "MPI_Isendrecv_replace");
    give_back(&out);
    give_back(&in);
    give_back(&both);
#endif
}

// Persistent collective calls, which ranks start in any order, and wait for at once.
static void started(void) {
#if MPI_VERSION >= 4
    int count = common(5000), root = common(ranks), first = own(2);
    struct buffer buffer = take(count, rank, 10);
    MPI_Request requests[2];
    MPI_Bcast_init(buffer.address, count, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Start(&requests[first]);
    MPI_Start(&requests[1 - first]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    must_hold(&buffer, 0, count, root, 1, 10, "MPI_Bcast_init");
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    give_back(&buffer);
#endif
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gpu_start_on(rank);
    common_state = strtoull(argv[1], NULL, 0);
    own_state = common_state * 31 + (uint64_t)rank;
    enum { ROOM = 1 << 20 };
    void *buffer = malloc(ROOM);
    MPI_Buffer_attach(buffer, ROOM);
    int all = 0, rounds = atoi(argv[2]), size;
    for (int round = 0; round < rounds; round++) {
        messages_under_way();
        taken_and_left();
        to_oneself();
        matched();
        exchanged();
        started();
    }
    MPI_Buffer_detach(&buffer, &size);
    PMPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) printf("%d ranks found faults in %d rounds\n", all, rounds);
    return all != 0;
}
