// What the files of the interposer share.
//
// The program's MPI calls come here (MPI_*), and go on to its MPI (PMPI_*). Who calls for memory of the host,
// and has nothing under way that could need progress, goes straight on.
#ifndef CAUSEWAY_SHIM_H
#define CAUSEWAY_SHIM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "../causeway_comm.h"

#define EXPORT __attribute__((visibility("default")))

// job.c: this process, and what all files need.

// Whether descriptors may come: this process takes part in a job.
extern bool in_job;
// Taken where threads may call at once. The same thread may take it again.
void lock(void);
void unlock(void);
// The rank in the job of a communicator's rank, or -1 where it is of another one.
int job_rank(MPI_Comm comm, int rank);
// A number that no two communicators have.
uint64_t number_of(MPI_Comm comm);
// Calls the communicator's error handler for an error of ours that has these words, and gives the error's
// code.
int raise_error(MPI_Comm comm, const char *call, const char *words);
// Gives the code alone.
int error_code(const char *call, const char *words);

// types.c: what a datatype's bytes are.

uint64_t bytes_of(MPI_Count count, MPI_Datatype type);
// Whether the bytes of such elements lie one behind the other, in the order in which they are sent.
bool is_contiguous(MPI_Datatype type);

// operation.c: sends from a GPU, and receives, which may bring what lies on a GPU.

enum mode { STANDARD, SYNCHRONOUS, READY };
enum kind { SEND, RECEIVE };
// A message that a probe took out of the MPI's queue.
struct kept {
    MPI_Comm comm;
    MPI_Message message;
    MPI_Status status;
    // What has been received of it, where it is as long as a descriptor.
    bool is_received;
    unsigned char bytes[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t payload;
};
struct operation {
    enum kind kind;
    bool is_blocking;
    MPI_Comm comm;
    // The user's memory.
    void *user;
    MPI_Count count;
    MPI_Datatype type;
    bool on_gpu, contiguous;
    uint64_t room;
    // What the MPI was given instead of it, or null.
    void *memory;
    uint64_t memory_bytes;
    // The MPI's part.
    MPI_Request inner;
    bool inner_done;
    // Another thread waits for the MPI's part.
    bool is_watched;
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t offer;
    // When the receiver could have known of it, in milliseconds.
    long told_at;
    // The end.
    bool done;
    int error;
    // The error handler has been called for it.
    bool is_raised;
    bool cancelled;
    uint64_t bytes;
    MPI_Status status;
    // What the user has of it, if it does not wait for it at once.
    MPI_Request handle;
    // Or the persistent request that it belongs to.
    struct persistent *persistent;
    // The user has freed the request.
    bool is_freed;
    struct operation *next, *previous;
};
// How many are under way.
extern int under_way;
int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm);
int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm);
// Receives a message that a probe took out.
int start_kept(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct kept *kept);
// An operation of which the user gets a request, which it waits for.
int start_request(struct operation **operation, MPI_Request *request);
// Undoes that, where nothing could be started.
void drop_request(MPI_Request *request);
// Frees an operation's request at the operation's end. Says whether the request is one.
bool free_later(MPI_Request request);
// Takes a receive back, if nothing has come for it.
void cancel(struct operation *operation);
// Waits for one that has no request, and gives its error. The status may be ignored.
int finish(struct operation *operation, MPI_Status *status);
// What a program's status says of an operation.
void tell(const struct operation *operation, MPI_Status *status);
// Moves on what is under way.
void progress(void);
// Lets others run. `turn` counts the vain turns of a loop.
void pause_for(int turn);
// Waits for a request of the MPI's while all else moves on.
int wait_for(MPI_Request *request, MPI_Status *status);

// completion.c: errors of operations whose requests the user waits for.

void keep_error(MPI_Request handle, MPI_Comm comm, int error, bool is_raised);

// probe.c

// Takes the first message out that a probe took out before, or gives null.
struct kept *take_kept(MPI_Comm comm, int source, int tag);
// Looks once for a message. Needs the lock.
int look(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status);

// persistent.c

// Messages of persistent requests whose end the user has not heard of.
extern int unheard;
// A communicator of this rank alone.
MPI_Comm own_comm(void);
// The message of a persistent request has ended.
void end_persistent(struct persistent *persistent, const struct operation *operation);
// Tells of the end of a persistent request's message, for the last time or not. Says whether there was one.
bool hear_persistent(MPI_Request handle, MPI_Status *status, bool is_last, struct operation *ended);
// Frees a persistent request. Says whether it is one of these.
bool free_persistent(MPI_Request request);

#endif
