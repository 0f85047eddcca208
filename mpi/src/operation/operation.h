// Operations in flight: sends from a GPU, receives, which may bring a descriptor, and collective calls with
// memory on a GPU.
#ifndef CAUSEWAY_OPERATION_H
#define CAUSEWAY_OPERATION_H

#include "../datatype/datatype.h"

enum mode { STANDARD, SYNCHRONOUS, READY, BUFFERED };
enum kind { SEND, RECEIVE, COLLECTIVE };
// A collective call as the MPI makes it, with host memory (collective/staging.h), and a message that has been
// received for a probe (probe.h).
struct staging;
struct unexpected;

struct operation {
    enum kind kind;
    bool is_blocking;
    MPI_Comm comm;
    // The user's memory.
    void *user;
    MPI_Count count;
    MPI_Datatype type;
    // All of it is on a GPU, or some of it.
    bool on_gpu, is_mixed;
    bool contiguous;
    uint64_t capacity;
    // Elements with gaps, and of those on a GPU: their address, and the handle of the packed memory, which is
    // the user's memory for all else.
    struct runs *runs;
    void *typed, *holder;
    // The buffer for the MPI instead of it, or null.
    void *memory;
    uint64_t memory_bytes;
    // The request of the MPI.
    MPI_Request inner;
    bool inner_done;
    // Another thread waits for that request.
    bool is_watched;
    // Of a collective call.
    struct staging *staging;
    // Of a collective access to a file, or null.
    MPI_File file;
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t offer;
    // The number of a fetch in flight, or 0.
    uint64_t fetching;
    // When the receiver could have known of it, in nanoseconds.
    long announced_at;
    // Of a receive into a GPU that names its source: the sender's rank in the job, plus one. Found before the
    // program can free the communicator.
    int sender;
    // It is short, and the sender expects to complete before it is received.
    bool is_short;
    // Completion.
    bool done;
    int error;
    // The error handler has been called for it.
    bool is_raised;
    bool cancelled;
    uint64_t bytes;
    MPI_Status status;
    // The request of the user, if it does not wait for it at once.
    MPI_Request handle;
    // Or the persistent request of which this is a message, and the completion function.
    void *persistent;
    void (*ended)(void *persistent, const struct operation *operation);
    // The user has freed the request.
    bool is_freed;
    // The other half of a send and a receive that have one request, which is the receive's.
    struct operation *other;
    // A copy that is sent instead of the user's memory, or null; and its handle if it is on a GPU.
    void *copy, *copy_holder;
    struct operation *next, *previous;
};

// start.c, progress.c

// Number of operations in flight.
extern int in_flight;
int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm);
int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm);
// Receives an unexpected message.
int start_unexpected(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type,
                     MPI_Comm comm, struct unexpected *unexpected);
// Adds an operation to those in flight.
void add_operation(struct operation *operation);
// Takes ownership of the staging. The inner request is the MPI's persistent one, if there is one.
int start_collective(struct operation *operation, struct staging *staging, MPI_Request inner, MPI_Comm comm);
// An operation with a request for the user, which it waits for.
int start_request(struct operation **operation, MPI_Request *request);
// Undoes that, where nothing could be started.
void drop_request(MPI_Request *request);
// Frees an operation's request when the operation completes. Whether the request is one.
bool free_later(MPI_Request request);
// Cancels a receive, if no message has been received for it.
void cancel(struct operation *operation);
// The same by its request. Whether an operation in flight has this request.
bool cancel_now(MPI_Request request);
// Waits for one without a request, and returns its error. The status may be ignored.
int finish(struct operation *operation, MPI_Status *status);
// Fills the status of an operation for the program.
void fill_status(const struct operation *operation, MPI_Status *status);
// Makes progress on operations in flight.
void progress(void);
// Completes the fetches that receives have started. The sender of such a message waits for the fetch, and
// cannot detach it any more, so this rank must not enter a call of the MPI that waits for that sender. All
// other operations in flight complete, or the sender detaches them, while this rank is in such a call.
void finish_fetches(void);
// The same, and tells the senders of receives that this rank has left that it waits in the MPI, until
// leave_mpi; whether there are such receives. leave_mpi returns the error of the call.
bool enter_mpi(void);
int leave_mpi(bool has_entered, int error);
// Completes what this rank owes others before the MPI ends: sends, fetches, collective calls, and requests
// that the program has freed. A receive that it has left may have no sender: nobody waits for that, as the
// MPI does not.
void finish_all(void);
// Pauses. `round` counts the rounds of a loop without progress.
void pause_for(int round);
// Waits for a request of the MPI while all other operations make progress.
int wait_for(MPI_Request *request, MPI_Status *status);

// request.c: requests, copies, and errors of operations whose requests the user waits for.

// Frees a copy that was sent: memory of `malloc`, or a handle of memory on a GPU. Both may be null.
void drop_copy(void *copy, void *holder);

struct failure {
    MPI_Request handle;
    MPI_Comm comm;
    int error;
    bool is_raised;
    // The mark of the thread that last queried the request, or null.
    const void *queried_by;
    struct failure *next;
};
// Those that have not been reported to the user.
extern struct failure *failures;
void add_failure(MPI_Request handle, MPI_Comm comm, int error, bool is_raised);
// The MPI reports to this thread the completion of a request that has an error, and may free it then.
void mark_queried(MPI_Request handle);
// The error of a request that this thread has seen complete. The MPI has freed the request, and another
// thread may have got its handle since: the mark identifies this thread.
bool take_failure(MPI_Request handle, struct failure *found);
// The program frees a completed request without a query.
void drop_failure(MPI_Request handle);

// ../point_to_point.c

// A buffered send from a GPU, which completes without a receiver.
int start_buffered(struct operation *operation, const void *buffer, MPI_Count count, MPI_Datatype type,
                   int to, int tag, MPI_Comm comm);

// For the files of this folder.

// request.c: the memory that an operation has besides the user's.

// Maps host memory whose pages cost nothing until they are touched; null for an error.
void *map_memory(uint64_t bytes);
// Replaces the user's memory by another buffer for the MPI. For a descriptor it is in the operation itself.
bool replace_memory(struct operation *operation, uint64_t bytes);
// Strided elements on a GPU get contiguous memory there, from which they are sent or into which they are
// received. Returns the message of an error, or null.
const char *pack_elements(struct operation *operation);
// Unpacks what has been received into the strided elements.
void unpack_elements(struct operation *operation);
void release_memory(struct operation *operation);

// start.c: delivery of received messages.

// Bytes of the buffer that the MPI gets for a receive of so many bytes, as its message may have a descriptor.
static inline uint64_t receive_buffer_bytes(uint64_t capacity) {
    return capacity < CAUSEWAY_COMM_DESCRIPTOR ? CAUSEWAY_COMM_DESCRIPTOR : capacity;
}

// Delivers a received message of so many bytes, which begin at `start`: in the user's memory, or in another
// buffer.
void arrive(struct operation *operation, const void *start, uint64_t length);
// The MPI's request has completed.
void end_inner(struct operation *operation, int error);

// progress.c: progress of operations.

// Nanoseconds of a monotonic clock.
long now(void);
// The duration of the last copy of a short message to the host.
extern long copied_in;
// The operation in flight with this request, or null. Needs the lock.
struct operation *operation_with(MPI_Request request);

#endif
