// How do the ranks of a communicator exchange the few words of a call from GPU to GPU?
//
// Where all of them are of one host, by mailboxes in memory that they share: the MPI takes longer, and in
// isolated containers, where it goes over the network, many times as long. The ranks agree on a mailbox when
// they first exchange words on a communicator, which they do all together and in the same order. It is kept
// with the communicator and freed with it. Otherwise by MPI_Alltoall.
//
// A rank that waits for words moves on what is under way, the MPI's own messages, too: another rank may come
// to this call only when one of those has arrived.

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "collective.h"

// The agreement is tried so often: other threads may take what was free.
enum { ATTEMPTS = 4 };

// Turns of waiting: at first without a break, then letting others run, at last asleep. The MPI is moved on in
// each of so many.
enum { SPINNING = 300, YIELDING = 20000, BETWEEN_PROGRESS = 16, SLEEP_NS = 20000 };

struct mail {
    // Null where words go by the MPI.
    struct causeway_comm_control *open;
    uint32_t mailbox;
};

// Mailboxes that communicators of this process have, and a number above all generations that they have had.
static bool is_taken[CAUSEWAY_COMM_CONTROL_SLOTS];
static uint32_t next_generation = 1;
static int key = MPI_KEYVAL_INVALID;

static void drop_mail(struct mail *mail) {
    if (mail->open != NULL) {
        causeway_comm_close_control(mail->open);
        lock();
        is_taken[mail->mailbox] = false;
        unlock();
    }
    free(mail);
}

static int forget_mail(MPI_Comm comm, int which, void *mail, void *unused) {
    (void)comm, (void)which, (void)unused;
    drop_mail(mail);
    return MPI_SUCCESS;
}

void forget_mail_of_world(void) {
    forget_attribute_of_world(key);
}

// Takes a mailbox of which all ranks say that it is free. Says whether this rank could.
static bool reserve(uint32_t mailbox, uint32_t generation) {
    lock();
    bool was_free = !is_taken[mailbox];
    is_taken[mailbox] = true;
    if (next_generation <= generation) next_generation = generation + 1;
    unlock();
    return was_free;
}

static void give_up(uint32_t mailbox) {
    lock();
    is_taken[mailbox] = false;
    unlock();
}

static bool are_near(const struct members *members) {
    bool are = true;
    for (uint32_t at = 0; at < members->count; at++)
        are &= at == members->rank || causeway_comm_is_local(members->ranks[at]);
    return are;
}

// Finds a mailbox that is free at all ranks, with a generation that none of them has had. Says whether there
// is one, and whether it is this rank's now; the next attempt may find another one.
static int find_free(MPI_Comm comm, uint32_t *mailbox, uint32_t *generation, bool *is_there) {
    long words[CAUSEWAY_COMM_CONTROL_SLOTS + 1];
    lock();
    for (int at = 0; at < CAUSEWAY_COMM_CONTROL_SLOTS; at++) words[at] = is_taken[at];
    words[CAUSEWAY_COMM_CONTROL_SLOTS] = next_generation;
    unlock();
    int error =
        PMPI_Allreduce(MPI_IN_PLACE, words, CAUSEWAY_COMM_CONTROL_SLOTS + 1, MPI_LONG, MPI_MAX, comm);
    if (error != MPI_SUCCESS) return error;
    *generation = (uint32_t)words[CAUSEWAY_COMM_CONTROL_SLOTS];
    *mailbox = 0;
    while (*mailbox < CAUSEWAY_COMM_CONTROL_SLOTS && words[*mailbox]) ++*mailbox;
    *is_there = *mailbox < CAUSEWAY_COMM_CONTROL_SLOTS;
    return MPI_SUCCESS;
}

// Agrees with all ranks on a mailbox, or that there is none. All of them come to the same.
static int agree(MPI_Comm comm, const struct members *members, struct mail *mail) {
    // Each rank has tried to reach all others: what they share is known at both ends.
    int is_far = !are_near(members);
    int error = PMPI_Allreduce(MPI_IN_PLACE, &is_far, 1, MPI_INT, MPI_MAX, comm);
    for (int at = 0; at < ATTEMPTS && error == MPI_SUCCESS && !is_far; at++) {
        uint32_t generation;
        bool is_there = false;
        error = find_free(comm, &mail->mailbox, &generation, &is_there);
        if (error != MPI_SUCCESS || !is_there) break;
        bool is_own = reserve(mail->mailbox, generation);
        if (is_own)
            mail->open = causeway_comm_open_control(members->ranks, members->count, members->rank, mail->mailbox,
                                                 generation);
        // What a rank lacks: the mailbox, or the memory of another one.
        int lacks[] = {!is_own, is_own && mail->open == NULL};
        error = PMPI_Allreduce(MPI_IN_PLACE, lacks, 2, MPI_INT, MPI_MAX, comm);
        if (error == MPI_SUCCESS && !lacks[0] && !lacks[1]) return MPI_SUCCESS;
        causeway_comm_close_control(mail->open);
        mail->open = NULL;
        if (is_own) give_up(mail->mailbox);
        if (lacks[1]) break;
    }
    return error;
}

// All ranks of the communicator call this together where it is not known yet.
static int mail_of(MPI_Comm comm, struct mail **mail) {
    if (find_kept(comm, &key, forget_mail, mail)) return MPI_SUCCESS;
    const struct members *members = members_of(comm);
    *mail = calloc(1, sizeof **mail);
    if (*mail == NULL) abort();
    int error = members->can ? agree(comm, members, *mail) : MPI_SUCCESS;
    if (error == MPI_SUCCESS) error = PMPI_Comm_set_attr(comm, key, *mail);
    if (error != MPI_SUCCESS) drop_mail(*mail);
    return error;
}

static void wait_a_moment(uint64_t turn) {
    if (turn % BETWEEN_PROGRESS == BETWEEN_PROGRESS - 1) {
        int flag;
        progress();
        // The MPI moves its messages on in any call; this one asks for none.
        PMPI_Iprobe(0, 0, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
    if (turn < SPINNING) return;
    if (turn < YIELDING) {
        sched_yield();
        return;
    }
    struct timespec some = {0, SLEEP_NS};
    nanosleep(&some, NULL);
}

int exchange_words(void *context, const void *out, void *in, uint64_t bytes) {
    MPI_Comm comm = *(MPI_Comm *)context;
    struct mail *mail;
    int error = mail_of(comm, &mail);
    if (error != MPI_SUCCESS) return error;
    // All ranks do it by the blocking call, since it does not match the other form.
    if (mail->open == NULL || bytes > CAUSEWAY_COMM_CONTROL_BYTES)
        return PMPI_Alltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, comm);
    int have_come = 0;
    for (uint64_t turn = 0; have_come == 0; turn++) {
        have_come = causeway_comm_exchange_control(mail->open, out, in, bytes);
        if (have_come == 0) wait_a_moment(turn);
    }
    if (have_come > 0) return MPI_SUCCESS;
    fprintf(stderr, "causeway: %s\n", causeway_comm_error());
    return MPI_ERR_OTHER;
}
