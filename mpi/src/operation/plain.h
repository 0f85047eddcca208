// Plain receives: receives of host memory whose requests are the MPI's own.
#ifndef CAUSEWAY_PLAIN_H
#define CAUSEWAY_PLAIN_H

#include "operation.h"

// A receive whose request is the MPI's own.
struct plain {
    MPI_Request request;
    MPI_Comm comm;
    void *user;
    uint64_t capacity;
    // The buffer of the MPI if the user's memory is smaller than a descriptor.
    unsigned char bytes[CAUSEWAY_COMM_DESCRIPTOR];
    // It is in flight, as one always is that is not persistent.
    bool is_active;
    // It has completed, in a call that does not free the request.
    bool is_ended;
    int error;
    MPI_Status status;
    // A persistent one stays in its chain.
    bool is_persistent;
    int source, tag;
    // Its message was an unexpected one when it was started: an operation receives that, and the MPI's
    // request is inactive, so only `poll_plain` reports the completion.
    bool is_apart;
    // The program has freed the request, and an operation completes it.
    bool is_freed;
    struct plain *next;
};

// Numbers of those in flight; of these, those that are apart; and all persistent ones.
extern int plain_count, apart_count, persistent_count;
// Changes such a number, which others read without the lock. Needs the lock.
static inline void add_to(int *number, int difference) {
    __atomic_store_n(number, *number + difference, __ATOMIC_RELAXED);
}

// Hash table by request. Each call that starts or completes a request looks here, so it is in the header.
enum { PLAIN_BITS = 10 };
extern struct plain *plain_chains[1 << PLAIN_BITS];

static inline struct plain **chain_of(MPI_Request request) {
    uint64_t number = (uint64_t)(uintptr_t)request;
    return &plain_chains[number * 0x9e3779b97f4a7c15 >> (64 - PLAIN_BITS)];
}

// The one with this request, in flight or not, or null. Needs the lock.
static inline struct plain *find_plain(MPI_Request request) {
    struct plain *plain = *chain_of(request);
    while (plain != NULL && plain->request != request) plain = plain->next;
    return plain;
}

// The one in flight with this request, or null.
static inline struct plain *plain_with(MPI_Request request) {
    if (plain_count == 0) return NULL;
    lock();
    struct plain *plain = find_plain(request);
    if (plain != NULL && !plain->is_active) plain = NULL;
    unlock();
    return plain;
}

struct plain *allocate_plain(void);
void insert_plain(struct plain *plain);
void remove_plain(struct plain *plain);
// The bytes of a receive that may be a plain one, or -1.
long long plain_capacity(const void *buffer, MPI_Count count, MPI_Datatype type, int source, MPI_Comm comm);
bool is_short_plain(const struct plain *plain);
// The MPI has completed one, and freed its request or made it inactive: fills the status of the message,
// returns the error, and forgets the receive.
int end_plain(struct plain *plain, MPI_Status *status);
// Forgets one that has completed with an error of the MPI.
void drop_plain(struct plain *plain);
// Whether one has completed, and its status; it stays.
void poll_plain(struct plain *plain, int *flag, MPI_Status *status);
// The program frees the request of one that is not persistent.
int free_plain(struct plain *plain, MPI_Request *request);
// Fills the operation of one whose request the program has freed.
void convert_to_operation(const struct plain *plain, struct operation *operation);

// For the files of calls.

// Starts such a receive, or makes a blocking one, if possible. Whether it did; then there may be an error of
// the MPI, or of a blocking one, which has been raised.
bool start_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request, int *error);
bool receive_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status, int *error);
// Polls all of them: a rank may wait for a message whose descriptor it has sent.
void poll_plains(void);
// operation/plain_persistent.c: makes a persistent request of such receives, starts it, and frees it, if
// possible. Each returns whether it did; then there may be an error of the MPI.
bool make_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Request *request, int *error);
bool restart_plain(MPI_Request *request, int *error);
bool free_persistent_plain(MPI_Request *request, int *error);
// A descriptor has been received: no further plain receives are started.
void note_descriptor(void);
// Whether the MPI may make a send alone: it does not wait there for a receiver that waits for this rank to
// poll its receives.
bool is_quick(enum mode mode, MPI_Count count, MPI_Datatype type);

#endif
