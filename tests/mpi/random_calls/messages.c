// Messages of all kinds of memory, types, sends and receives, and receives that are taken back.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "causeway_comm.h"
#include "random_calls.h"

enum { MESSAGES = 12, NEVER = 2, GUARD = 32, UNUSED_TAG = 500 };
enum send_way { ISEND, ISSEND, BSEND, SEND_INIT, SENDS };
enum receive_way { IRECV, ANY_SOURCE, RECV_INIT, PROBED, MATCHED, RECEIVES };
enum wait_way { WAITALL, WAIT, WAITANY, WAITSOME, TESTALL, TESTANY, WAITS };

struct message {
    int from, to;
    size_t count, room;
    uint64_t seed;
    struct known_type type;
    enum memory out, in;
    enum send_way send;
    enum receive_way receive;
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
#ifdef MPICH_VERSION
    // MPICH 4.0.2 alone says of long structures that it buffers that they are longer than what is received.
    if (message->type.type != MPI_BYTE && message->send == BSEND) message->send = ISEND;
#endif
    message->sending = message->receiving = MPI_REQUEST_NULL;
}

static void receive(struct group *group, struct message *message, int tag) {
    size_t bytes = span_of(&message->type, message->room) + GUARD;
    unsigned char *empty = malloc(bytes);
    memset(empty, 0x5a, bytes);
    message->received = gpu_allocate(message->in, bytes);
    copy_bytes(message->received, empty, bytes);
    free(empty);
    int room = (int)message->room, from = message->receive == ANY_SOURCE ? MPI_ANY_SOURCE : message->from;
    if (message->receive == RECV_INIT) {
        MPI_Recv_init(message->received, room, message->type.type, from, tag, group->comm,
                      &message->receiving);
        MPI_Start(&message->receiving);
    } else if (message->receive < PROBED) {
        MPI_Irecv(message->received, room, message->type.type, from, tag, group->comm, &message->receiving);
    }
}

static void send(struct group *group, struct message *message, int tag) {
    size_t bytes = span_of(&message->type, message->count);
    unsigned char *full = malloc(bytes + 1);
    fill_elements(&message->type, message->count, message->seed, full, bytes);
    message->sent = gpu_allocate(message->out, bytes);
    copy_bytes(message->sent, full, bytes);
    free(full);
    int count = (int)message->count, to = message->to;
    MPI_Comm comm = message->receive >= PROBED ? group->probed : group->comm;
    switch (message->send) {
    case ISEND: MPI_Isend(message->sent, count, message->type.type, to, tag, comm, &message->sending); break;
    case ISSEND:
        MPI_Issend(message->sent, count, message->type.type, to, tag, comm, &message->sending);
        break;
    case BSEND: MPI_Bsend(message->sent, count, message->type.type, to, tag, comm); break;
    default:
        MPI_Send_init(message->sent, count, message->type.type, to, tag, comm, &message->sending);
        MPI_Start(&message->sending);
    }
}

struct messages *start_messages(struct group *group) {
    struct messages *messages = calloc(1, sizeof *messages);
    for (int tag = 0; tag < MESSAGES; tag++) draw(group, &messages->list[tag]);
    messages->wait = (enum wait_way)below(group, WAITS);
    messages->late = (int)below(group, 4 * (size_t)group->ranks);
    messages->delay = (useconds_t)below(group, 60000);
    if (messages->late == group->rank) usleep(messages->delay);
    for (int at = 0; at < NEVER; at++) {
        messages->nowhere[at] = some_memory(group);
        messages->nothing[at] = gpu_allocate(messages->nowhere[at], 5000);
        MPI_Irecv(messages->nothing[at], 5000, MPI_BYTE, MPI_ANY_SOURCE, UNUSED_TAG, group->comm,
                  &messages->never[at]);
    }
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->to == group->rank) receive(group, message, tag);
        if (message->from == group->rank) send(group, message, tag);
    }
    // Some begin to be copied now.
    int flag;
    for (int tag = 0; tag < MESSAGES; tag++)
        if (messages->list[tag].receiving != MPI_REQUEST_NULL && below(group, 2))
            MPI_Request_get_status(messages->list[tag].receiving, &flag, MPI_STATUS_IGNORE);
        else if (messages->list[tag].receiving == MPI_REQUEST_NULL)
            below(group, 2);
    return messages;
}

static void check(struct group *group, struct message *message, int tag, MPI_Status *status, const char *by) {
    int count = -1;
    MPI_Get_count(status, message->type.type, &count);
    if (count != (int)message->count || status->MPI_SOURCE != message->from || status->MPI_TAG != tag)
        is_wrong(group, "message %d of %zu elements from %d, received by %s: %d elements from %d with tag %d",
                 tag, message->count, message->from, by, count, status->MPI_SOURCE, status->MPI_TAG);
}

// Receives what is probed for, in any order.
static void receive_probed(struct group *group, struct messages *messages) {
    int left = 0;
    for (int tag = 0; tag < MESSAGES; tag++)
        left += messages->list[tag].to == group->rank && messages->list[tag].receive >= PROBED;
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
        if (message->receive == MATCHED) {
            MPI_Request request;
            MPI_Imrecv(message->received, (int)message->room, message->type.type, &taken, &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Mrecv(message->received, (int)message->room, message->type.type, &taken, &status);
        }
        check(group, message, probed.MPI_TAG, &status, "MPI_Mrecv");
    }
}

static void wait_for(enum wait_way way, int count, MPI_Request *requests, MPI_Status *statuses) {
    MPI_Status some[2 * MESSAGES];
    int indices[2 * MESSAGES], left = count, flag = 0, index;
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

static void end_receive(struct group *group, struct message *message, int tag) {
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
    gpu_free(message->in, message->received, bytes);
}

void end_messages(struct group *group, struct messages *messages) {
    if (messages->late == group->rank + group->ranks) usleep(messages->delay);
    receive_probed(group, messages);
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
            tags[count] = -1;
            requests[count++] = message->sending;
        }
    }
    wait_for(messages->wait, count, requests, statuses);
    for (int at = 0; at < count; at++) {
        if (tags[at] >= 0) check(group, &messages->list[tags[at]], tags[at], &statuses[at], "a request");
        if (requests[at] != MPI_REQUEST_NULL) MPI_Request_free(&requests[at]);
    }
    end_never(group, messages);
    // A buffered send may be under way still, from the MPI's memory.
    MPI_Barrier(group->comm);
    for (int tag = 0; tag < MESSAGES; tag++) {
        struct message *message = &messages->list[tag];
        if (message->to == group->rank) end_receive(group, message, tag);
        if (message->from == group->rank)
            gpu_free(message->out, message->sent, span_of(&message->type, message->count));
        free_type(&message->type);
    }
    free(messages);
}
