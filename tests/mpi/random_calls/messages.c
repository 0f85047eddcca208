// Messages of all kinds of memory, types, sends and receives, and receives that are taken back.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "causeway_comm.h"
#include "random_calls.h"

enum { MESSAGES = 12, NEVER = 2, GUARD = 32, UNUSED_TAG = 500 };
// What a send does: FREED frees its request at once; PARTITIONED comes with a receive of this kind only.
enum send_way { ISEND, ISSEND, BSEND, SEND_INIT, FREED, SENDS, PARTITIONED };
// What a receive does: ORDERED takes the next message of its sender; RETRACTED is cancelled, and received
// again if nothing had come; PEEKED is received after a probe.
enum receive_way {
    IRECV,
    ANY_SOURCE,
    RECV_INIT,
    ORDERED,
    RETRACTED,
    BETWEEN,
    PEEKED,
    PROBED,
    MATCHED,
    RECEIVES,
    IN_PARTITIONS
};
enum wait_way { WAITALL, WAIT, WAITANY, WAITSOME, TESTALL, TESTANY, TEST, TESTSOME, WAITS };

struct message {
    int from, to;
    size_t count, room;
    uint64_t seed;
    struct known_type type;
    enum memory out, in;
    enum send_way send;
    enum receive_way receive;
    enum handle sent_by, received_by;
    int partitions;
    unsigned char *sent, *received;
    MPI_Request sending, receiving;
};

struct messages {
    struct message list[MESSAGES];
    // Receives for which nothing comes.
    MPI_Request never[NEVER];
    unsigned char *nothing[NEVER];
    enum memory nowhere[NEVER];
    enum wait_way wait;
    // Whether the communicator of ordered messages is one that the program frees while they are under way.
    bool is_comm_freed;
    MPI_Comm ordered;
    // The rank that is late with all, and by how much.
    int late;
    useconds_t delay;
};

static size_t some_count(struct group *group, size_t size) {
    switch (below(group, 6)) {
    case 0: return below(group, 3);
    case 1: return size == 1 ? CAUSEWAY_COMM_DESCRIPTOR : below(group, 20);
    case 2: return below(group, 1 + 60000 / size);
    case 3: return below(group, 1 + 700000 / size);
    default: return below(group, 1 + 2000 / size);
    }
}

static void draw(struct group *group, struct message *message) {
    make_type(group, &message->type);
    message->from = (int)below(group, (size_t)group->ranks);
    message->to = (int)below(group, (size_t)group->ranks);
    message->count = some_count(group, message->type.size);
    message->room = message->count + below(group, 2) * below(group, 3);
    message->seed = below(group, 1u << 30);
    message->out = some_memory(group);
    message->in = some_memory(group);
    message->send = (enum send_way)below(group, SENDS);
    message->receive = (enum receive_way)below(group, RECEIVES);
    bool has_crossed = (message->from < group->ranks / 2) != (message->to < group->ranks / 2);
    if (message->receive == BETWEEN && !has_crossed) message->receive = IRECV;
    message->sent_by = (enum handle)below(group, HANDLES);
    message->received_by = (enum handle)below(group, HANDLES);
    message->partitions = 1 + (int)below(group, 4);
#ifdef HAS_PARTITIONS
    bool is_partitioned = below(group, 10) == 0 && !group->has_threads;
#ifdef OMPI_MAJOR_VERSION
    // Open MPI 5.0 alone sends partitions of structures from other places.
    is_partitioned = is_partitioned && message->type.type == MPI_BYTE;
#endif
    if (is_partitioned) {
        message->send = PARTITIONED;
        message->receive = IN_PARTITIONS;
        message->count = (1 + message->count / (size_t)message->partitions) * (size_t)message->partitions;
        message->room = message->count;
        message->sent_by = message->received_by = THE_TYPE;
    }
#endif
#ifdef MPICH_VERSION
    // MPICH 4.0.2 alone says of long structures that it buffers that they are longer than what is received.
    if (message->type.type != MPI_BYTE && message->send == BSEND) message->send = ISEND;
    if (message->send == BSEND) message->sent_by = THE_TYPE;
#endif
    message->sending = message->receiving = MPI_REQUEST_NULL;
}

static MPI_Comm comm_of(struct group *group, const struct messages *messages, const struct message *message) {
    if (message->receive == ORDERED) return messages->ordered;
    if (message->receive == BETWEEN) return group->between;
    return message->receive == PROBED || message->receive == MATCHED ? group->probed : group->comm;
}

// The number of a rank in the communicator of a message.
static int rank_in_comm(const struct group *group, const struct message *message, int rank) {
    int half = group->ranks / 2;
    return message->receive == BETWEEN && rank >= half ? rank - half : rank;
}

static void empty(struct message *message) {
    size_t bytes = span_of(&message->type, message->room) + GUARD;
    unsigned char *empty = malloc(bytes);
    memset(empty, 0x5a, bytes);
    copy_bytes(message->received, empty, bytes);
    free(empty);
}

static void receive(struct group *group, struct messages *messages, struct message *message, int tag) {
    message->received = gpu_allocate(message->in, span_of(&message->type, message->room) + GUARD);
    empty(message);
    struct elements to = elements_of(&message->type, message->received_by, message->received, message->room);
    MPI_Comm comm = comm_of(group, messages, message);
    int from = message->receive == ANY_SOURCE ? MPI_ANY_SOURCE : rank_in_comm(group, message, message->from);
    switch (message->receive) {
    case PROBED:
    case MATCHED:
    case PEEKED: break;
    case RECV_INIT:
        MPI_Recv_init(to.address, to.count, to.type, from, tag, comm, &message->receiving);
        MPI_Start(&message->receiving);
        break;
#ifdef HAS_PARTITIONS
    case IN_PARTITIONS:
        MPI_Precv_init(to.address, message->partitions, to.count / message->partitions, to.type, from, tag,
                       comm, MPI_INFO_NULL, &message->receiving);
        MPI_Start(&message->receiving);
        break;
#endif
    default:
        if (message->receive == ORDERED) tag = MPI_ANY_TAG;
        MPI_Irecv(to.address, to.count, to.type, from, tag, comm, &message->receiving);
    }
    drop_elements(&to);
}

static void fill(struct message *message) {
    size_t bytes = span_of(&message->type, message->count);
    unsigned char *full = malloc(bytes + 1);
    fill_elements(&message->type, message->count, message->seed, full, bytes);
    copy_bytes(message->sent, full, bytes);
    free(full);
}

static void send(struct group *group, struct messages *messages, struct message *message, int tag) {
    message->sent = gpu_allocate(message->out, span_of(&message->type, message->count));
    fill(message);
    struct elements from = elements_of(&message->type, message->sent_by, message->sent, message->count);
    MPI_Request *request = &message->sending;
    int to = rank_in_comm(group, message, message->to);
    MPI_Comm comm = comm_of(group, messages, message);
    switch (message->send) {
    case ISSEND: MPI_Issend(from.address, from.count, from.type, to, tag, comm, request); break;
    case BSEND: MPI_Bsend(from.address, from.count, from.type, to, tag, comm); break;
    case SEND_INIT:
        MPI_Send_init(from.address, from.count, from.type, to, tag, comm, request);
        MPI_Start(request);
        break;
    case FREED:
        MPI_Isend(from.address, from.count, from.type, to, tag, comm, request);
        MPI_Request_free(request);
        break;
#ifdef HAS_PARTITIONS
    case PARTITIONED:
        MPI_Psend_init(from.address, message->partitions, from.count / message->partitions, from.type, to,
                       tag, comm, MPI_INFO_NULL, request);
        MPI_Start(request);
        for (int part = message->partitions - 1; part >= 0; part--) MPI_Pready(part, *request);
        break;
#endif
    default: MPI_Isend(from.address, from.count, from.type, to, tag, comm, request);
    }
    drop_elements(&from);
}

void start_partitions(void) {
#ifdef HAS_PARTITIONS
    int rank, sent = 1, received = 0;
    MPI_Request requests[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Psend_init(&sent, 1, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(&received, 1, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Pready(0, requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < 2; at++) MPI_Request_free(&requests[at]);
#endif
}

struct messages *start_messages(struct group *group) {
    struct messages *messages = calloc(1, sizeof *messages);
    for (int tag = 0; tag < MESSAGES; tag++) draw(group, &messages->list[tag]);
    messages->wait = (enum wait_way)below(group, WAITS);
    messages->late = (int)below(group, 4 * (size_t)group->ranks);
    messages->delay = (useconds_t)below(group, 60000);
    messages->is_comm_freed = below(group, 4) == 0;
    messages->ordered = group->ordered;
    if (messages->is_comm_freed) MPI_Comm_dup(group->ordered, &messages->ordered);
    if (messages->late == group->rank) usleep(messages->delay);
    for (int at = 0; at < NEVER; at++) {
        messages->nowhere[at] = some_memory(group);
        messages->nothing[at] = gpu_allocate(messages->nowhere[at], 5000);
        MPI_Irecv(messages->nothing[at], 5000, MPI_BYTE, MPI_ANY_SOURCE, UNUSED_TAG, group->comm,
                  &messages->never[at]);
    }
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->to == group->rank) receive(group, messages, message, tag);
        if (message->from == group->rank) send(group, messages, message, tag);
    }
    if (messages->is_comm_freed) MPI_Comm_free(&messages->ordered);
    // Some begin to be copied now.
    int flag;
    for (int tag = 0; tag < MESSAGES; tag++) {
        bool is_asked = below(group, 2);
        if (messages->list[tag].receiving != MPI_REQUEST_NULL && is_asked)
            MPI_Request_get_status(messages->list[tag].receiving, &flag, MPI_STATUS_IGNORE);
    }
    return messages;
}

static void check(struct group *group, struct message *message, int tag, MPI_Status *status, const char *by) {
    int count = -1;
    // Open MPI 5.0 alone leaves the status of partitioned receives as it was.
    if (message->receive == IN_PARTITIONS) return;
    MPI_Get_count(status, message->type.type, &count);
    if (count != (int)message->count || status->MPI_SOURCE != rank_in_comm(group, message, message->from) ||
        status->MPI_TAG != tag)
        is_wrong(group, "message %d of %zu elements from %d, received by %s: %d elements from %d with tag %d",
                 tag, message->count, message->from, by, count, status->MPI_SOURCE, status->MPI_TAG);
}

// Receives what is probed for, in any order.
static void receive_probed(struct group *group, struct messages *messages) {
    int left = 0;
    for (int tag = 0; tag < MESSAGES; tag++)
        left += messages->list[tag].to == group->rank &&
                (messages->list[tag].receive == PROBED || messages->list[tag].receive == MATCHED);
    for (int turn = 0; left > 0; left--, turn++) {
        MPI_Message taken;
        MPI_Status probed, status;
        int flag = 0;
        if (turn % 2 == 0) MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group->probed, &taken, &probed);
        while (turn % 2 == 1 && !flag)
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, group->probed, &flag, &taken, &probed);
        if (probed.MPI_TAG < 0 || probed.MPI_TAG >= MESSAGES) {
            is_wrong(group, "a probe has found tag %d", probed.MPI_TAG);
            return;
        }
        struct message *message = &messages->list[probed.MPI_TAG];
        check(group, message, probed.MPI_TAG, &probed, "a probe");
        struct elements to =
            elements_of(&message->type, message->received_by, message->received, message->room);
        if (message->receive == MATCHED) {
            MPI_Request request;
            MPI_Imrecv(to.address, to.count, to.type, &taken, &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Mrecv(to.address, to.count, to.type, &taken, &status);
        }
        drop_elements(&to);
        check(group, message, probed.MPI_TAG, &status, "MPI_Mrecv");
    }
}

// Receives what was cancelled before it came, and what is received after a probe that leaves it.
static void receive_late(struct group *group, struct message *message, int tag) {
    MPI_Status status;
    int flag = 0;
    if (message->receive == RETRACTED) {
        MPI_Cancel(&message->receiving);
        MPI_Wait(&message->receiving, &status);
        MPI_Test_cancelled(&status, &flag);
        if (!flag) {
            check(group, message, tag, &status, "a receive that could not be cancelled");
            return;
        }
    } else {
        while (tag % 2 == 1 && !flag) MPI_Iprobe(MPI_ANY_SOURCE, tag, group->comm, &flag, &status);
        if (tag % 2 == 0) MPI_Probe(message->from, tag, group->comm, &status);
        check(group, message, tag, &status, "MPI_Probe");
    }
    struct elements to = elements_of(&message->type, message->received_by, message->received, message->room);
    MPI_Recv(to.address, to.count, to.type, message->from, tag, group->comm, &status);
    drop_elements(&to);
    check(group, message, tag, &status, "MPI_Recv");
}

static void wait_for(enum wait_way way, int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Status some[2 * MESSAGES];
    int indices[2 * MESSAGES], left = count, flag = 0, index;
    bool tried[2 * MESSAGES] = {false};
    switch (way) {
    case WAIT:
        for (int at = 0; at < count; at++) MPI_Wait(&requests[at], &statuses[at]);
        break;
    case WAITANY:
        for (; left > 0; left--) {
            MPI_Waitany(count, requests, &index, &some[0]);
            statuses[index] = some[0];
        }
        break;
    case TESTANY:
        while (left > 0) {
            MPI_Testany(count, requests, &index, &flag, &some[0]);
            if (!flag) continue;
            statuses[index] = some[0];
            left--;
        }
        break;
    case WAITSOME:
        while (left > 0) {
            int ended = 0;
            MPI_Waitsome(count, requests, &ended, indices, some);
            for (int at = 0; at < ended; at++) statuses[indices[at]] = some[at];
            left -= ended;
        }
        break;
    case TEST:
        for (int at = 0; left > 0; at = (at + 1) % count) {
            if (requests[at] == MPI_REQUEST_NULL || tried[at]) continue;
            MPI_Test(&requests[at], &flag, &statuses[at]);
            tried[at] = flag;
            left -= flag;
        }
        break;
    case TESTSOME:
        while (left > 0) {
            int ended = 0;
            MPI_Testsome(count, requests, &ended, indices, some);
            for (int at = 0; at < ended; at++) statuses[indices[at]] = some[at];
            left -= ended;
        }
        break;
    case TESTALL:
        while (!flag) MPI_Testall(count, requests, &flag, statuses);
        break;
    default: MPI_Waitall(count, requests, statuses);
    }
}

static void end_never(struct group *group, struct messages *messages) {
    for (int at = 0; at < NEVER; at++) {
        MPI_Status status;
        int is_cancelled = 0;
        MPI_Cancel(&messages->never[at]);
        MPI_Wait(&messages->never[at], &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        if (!is_cancelled) is_wrong(group, "a receive for which nothing came was not cancelled");
        gpu_free(messages->nowhere[at], messages->nothing[at], 5000);
    }
}

static void check_bytes(struct group *group, struct message *message, int tag) {
    size_t bytes = span_of(&message->type, message->room) + GUARD;
    unsigned char *found = malloc(bytes);
    copy_bytes(found, message->received, bytes);
    size_t count = count_wrong(&message->type, message->count, message->seed, found, bytes);
    if (count > 0)
        is_wrong(
            group,
            "message %d of %zu elements of %zu bytes from %d (%s, send %d) into %s (receive %d): %zu wrong",
            tag, message->count, message->type.size, message->from, gpu_name(message->out), message->send,
            gpu_name(message->in), message->receive, count);
    free(found);
}

// Persistent requests begin again, with other bytes.
static void repeat(struct group *group, struct messages *messages, MPI_Request *requests, const int *tags,
                   int all) {
    MPI_Request again[2 * MESSAGES];
    MPI_Status statuses[2 * MESSAGES];
    int list[2 * MESSAGES], count = 0;
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->send != SEND_INIT || message->receive != RECV_INIT) continue;
        if (message->to == group->rank) {
            check_bytes(group, message, tag);
            empty(message);
        }
        message->seed++;
        if (message->from == group->rank) fill(message);
    }
    for (int at = 0; at < all; at++) {
        struct message *message = &messages->list[tags[at] % MESSAGES];
        if (message->send != SEND_INIT || message->receive != RECV_INIT) continue;
        list[count] = tags[at];
        again[count++] = requests[at];
    }
    if (count == 0) return;
    MPI_Startall(count, again);
    wait_for(messages->wait, count, again, statuses);
    for (int at = 0; at < count; at++)
        if (list[at] < MESSAGES)
            check(group, &messages->list[list[at]], list[at], &statuses[at], "a request that began again");
}

void end_messages(struct group *group, struct messages *messages) {
    if (messages->late == group->rank + group->ranks) usleep(messages->delay);
    receive_probed(group, messages);
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->to == group->rank && (message->receive == RETRACTED || message->receive == PEEKED))
            receive_late(group, message, tag);
    }
    MPI_Request requests[2 * MESSAGES];
    MPI_Status statuses[2 * MESSAGES];
    int tags[2 * MESSAGES], count = 0;
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->receiving != MPI_REQUEST_NULL) {
            tags[count] = tag;
            requests[count++] = message->receiving;
        }
        if (message->sending != MPI_REQUEST_NULL) {
            tags[count] = MESSAGES + tag;
            requests[count++] = message->sending;
        }
    }
    wait_for(messages->wait, count, requests, statuses);
    for (int at = 0; at < count; at++) {
        if (tags[at] < MESSAGES)
            check(group, &messages->list[tags[at]], tags[at], &statuses[at], "a request");
    }
    repeat(group, messages, requests, tags, count);
    for (int at = 0; at < count; at++)
        if (requests[at] != MPI_REQUEST_NULL) MPI_Request_free(&requests[at]);
    end_never(group, messages);
    // A buffered send may be under way still, from the MPI's memory.
    MPI_Barrier(group->comm);
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->to == group->rank) {
            check_bytes(group, message, tag);
            gpu_free(message->in, message->received, span_of(&message->type, message->room) + GUARD);
        }
        if (message->from == group->rank)
            gpu_free(message->out, message->sent, span_of(&message->type, message->count));
        free_type(&message->type);
    }
    free(messages);
}
