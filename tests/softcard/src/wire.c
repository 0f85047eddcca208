/* The wire between cards of several processes: TCP connections, over which one card sends a request and the other one
 * answers. A process that listens has its address and port in its GIDs, which its programs tell their peers. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "card.h"

/* Port and IPv4 address, as they stand in GIDs; zeros where the process does not listen. */
static unsigned char place[6];
/* Answers that there is no receive. */
static atomic_ullong refusals;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void softcard_gid(unsigned char gid[16], int card) {
    memset(gid, 0, 16);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    memcpy(gid + 8, place, 6);
    gid[15] = (unsigned char)(1 + card);
}

int softcard_is_elsewhere(const unsigned char gid[16]) {
    static const unsigned char nowhere[6];
    return memcmp(gid + 8, nowhere, 6) != 0 && memcmp(gid + 8, place, 6) != 0;
}

void softcard_wake(void) { pthread_cond_broadcast(&changed); }

uint64_t softcard_refusals(void) { return refusals; }

static int send_all(int wire, const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t some = send(wire, (const char *)bytes + done, count - done, MSG_NOSIGNAL);
        if (some <= 0 && errno != EINTR) return -1;
        if (some > 0) done += (size_t)some;
    }
    return 0;
}

static int receive_all(int wire, void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t some = recv(wire, (char *)bytes + done, count - done, 0);
        if (some == 0 || (some < 0 && errno != EINTR)) return -1;
        if (some > 0) done += (size_t)some;
    }
    return 0;
}

static void set_options(int wire) {
    int on = 1;
    /* A peer that says nothing for so long does not answer. */
    struct timeval limit = {.tv_sec = 20};
    setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(wire, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static int is_read(const struct softcard_request *request) {
    return request->operation == CAUSEWAY_MLX5_RDMA_READ || request->operation == CAUSEWAY_MLX5_ATOMIC_CS ||
           request->operation == CAUSEWAY_MLX5_ATOMIC_FA;
}

/* Peers. */

/* Answers the requests of one of the peers' queue pairs. */
static void *answer(void *argument) {
    int wire = (int)(intptr_t)argument;
    struct softcard_request request;
    unsigned char *bytes = NULL;
    while (receive_all(wire, &request, sizeof request) == 0 && request.bytes <= 1u << 30) {
        unsigned char *more = realloc(bytes, request.bytes ? request.bytes : 1);
        if (!more) break;
        bytes = more;
        if (!is_read(&request) && receive_all(wire, bytes, request.bytes) != 0) break;
        pthread_mutex_lock(&softcard_lock);
        int32_t syndrome = softcard_respond(&request, bytes, bytes);
        pthread_mutex_unlock(&softcard_lock);
        if (send_all(wire, &syndrome, sizeof syndrome) != 0) break;
        if (syndrome == 0 && is_read(&request) && send_all(wire, bytes, request.bytes) != 0) break;
    }
    free(bytes);
    close(wire);
    return NULL;
}

static int start_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0) return -1;
    return pthread_detach(thread);
}

static void *take_peers(void *argument) {
    int listening = (int)(intptr_t)argument;
    for (;;) {
        int wire = accept(listening, NULL, NULL);
        if (wire < 0) continue;
        int on = 1;
        setsockopt(wire, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (start_thread(answer, (void *)(intptr_t)wire) != 0) close(wire);
    }
    return NULL;
}

/* Lets cards of other processes reach these, at this IPv4 address. 0 or -1. Before queue pairs are connected. */
int softcard_listen(const char *address) {
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t length = sizeof here;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, address, &here.sin_addr) != 1 || listening < 0) return -1;
    if (bind(listening, (struct sockaddr *)&here, length) != 0 || listen(listening, 64) != 0 ||
        getsockname(listening, (struct sockaddr *)&here, &length) != 0 ||
        start_thread(take_peers, (void *)(intptr_t)listening) != 0) {
        close(listening);
        return -1;
    }
    memcpy(place, &here.sin_port, 2);
    memcpy(place + 2, &here.sin_addr, 4);
    return 0;
}

/* This side's queue pairs. */

static int dial(const unsigned char gid[16]) {
    struct sockaddr_in there = {.sin_family = AF_INET};
    memcpy(&there.sin_port, gid + 8, 2);
    memcpy(&there.sin_addr, gid + 10, 4);
    int wire = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (wire < 0) return -1;
    set_options(wire);
    if (connect(wire, (struct sockaddr *)&there, sizeof there) == 0) return wire;
    close(wire);
    return -1;
}

/* The peer's answer to a request; one that does not come is the specification's retries. */
static int exchange(int wire, const struct softcard_request *request, const unsigned char *in, unsigned char *out) {
    int32_t syndrome;
    if (wire < 0 || send_all(wire, request, sizeof *request) != 0 ||
        (!is_read(request) && send_all(wire, in, request->bytes) != 0) ||
        receive_all(wire, &syndrome, sizeof syndrome) != 0 ||
        (syndrome == 0 && is_read(request) && receive_all(wire, out, request->bytes) != 0))
        return CAUSEWAY_MLX5_RETRY_EXCEEDED;
    return syndrome;
}

struct sender {
    struct softcard_qp *qp;
    uint64_t generation;
};

/* Brings the requests of a queue pair to its peer, one after the other. */
static void *send_requests(void *argument) {
    struct sender sender = *(struct sender *)argument;
    free(argument);
    struct softcard_qp *qp = sender.qp;
    int wire = -1, tries = 0;
    pthread_mutex_lock(&softcard_lock);
    while (qp->generation == sender.generation) {
        if (!qp->is_sending) {
            pthread_cond_wait(&changed, &softcard_lock);
            continue;
        }
        struct softcard_request request = qp->sending;
        int is_filled = is_read(&request);
        /* Flushed meanwhile. */
        if (qp->ibv.state != IBV_QPS_RTS) {
            if (!is_filled) free((void *)qp->sending_bytes);
            qp->is_sending = 0;
            continue;
        }
        unsigned char *bytes = is_filled ? malloc(request.bytes) : (unsigned char *)qp->sending_bytes;
        unsigned char gid[16];
        memcpy(gid, qp->peer_gid, 16);
        int retries = qp->rnr_retries;
        pthread_mutex_unlock(&softcard_lock);
        if (wire < 0) wire = dial(gid);
        int syndrome = exchange(wire, &request, bytes, bytes);
        if (syndrome < 0) {
            refusals++;
            usleep(10000);
        }
        pthread_mutex_lock(&softcard_lock);
        int is_current = qp->generation == sender.generation && qp->ibv.state == IBV_QPS_RTS;
        if (is_current && syndrome < 0 && (retries == 7 || ++tries <= retries)) {
            if (is_filled) free(bytes);
            continue;
        }
        tries = 0;
        if (is_current) softcard_finish_sent(qp, syndrome < 0 ? CAUSEWAY_MLX5_RNR_RETRY_EXCEEDED : syndrome,
                                             is_filled ? bytes : NULL);
        else if (qp->generation == sender.generation) qp->is_sending = 0;
        free(bytes);
    }
    pthread_mutex_unlock(&softcard_lock);
    if (wire >= 0) close(wire);
    return NULL;
}

int softcard_join(struct softcard_qp *qp) {
    struct sender *sender = malloc(sizeof *sender);
    if (!sender) return -1;
    *sender = (struct sender){qp, qp->generation};
    qp->is_joined = 1;
    if (start_thread(send_requests, sender) == 0) return 0;
    free(sender);
    return -1;
}
