// Interposer: the interface between its files.
//
// The interposer defines the program's MPI calls (MPI_*) and calls its MPI (PMPI_*). A call with host memory, while no
// operation in flight could need progress, calls the MPI at once.
#ifndef CAUSEWAY_INTERPOSER_H
#define CAUSEWAY_INTERPOSER_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "../causeway_comm.h"

#define EXPORT __attribute__((visibility("default")))

// What MPI 4 has, and Open MPI 5, which calls itself MPI 3.1: sessions, persistent collective calls, partitioned
// messages, MPI_Isendrecv.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_MPI_4 1
#else
#define HAS_MPI_4 0
#endif

// job.c: this process, and what all files need.

// Whether descriptors may be received: this process has joined a job.
extern bool in_job;
// visible.c: makes the MPI's functions visible to the interposer, before the first of them is called. The
// caller is an address in the program, or in its library.
void make_mpi_visible(const void *caller);
// After the MPI is initialized, and before it is finalized.
void join_job(void);
void leave_job(void);
// From now on several threads may call.
void expect_threads(void);
// Whether several threads may call.
extern bool has_threads;
static inline bool may_have_threads(void) {
    return has_threads;
}
// Acquired where threads may call concurrently. It is recursive.
void lock_mutex(void);
void unlock_mutex(void);
static inline void lock(void) {
    if (has_threads) lock_mutex();
}
static inline void unlock(void) {
    if (has_threads) unlock_mutex();
}
// The rank in the job of a communicator's rank, or -1 if it is in another one.
int job_rank(MPI_Comm comm, int rank);
// A number that no two communicators have.
uint64_t comm_id(MPI_Comm comm);
// Finds an attribute of a communicator, by a key that is made at the first call; `delete` frees the value, with the
// communicator.
bool find_attribute(MPI_Comm comm, int *key, MPI_Comm_delete_attr_function *forget, void *unexpected);
// Deletes an attribute of MPI_COMM_WORLD, if there is one.
void delete_world_attribute(int key);
// A communicator for the errors of calls that have none (self_comm.c).
MPI_Comm error_comm(void);
// Calls the communicator's error handler for an error of the interposer with this message, and returns the error code.
int raise_error(MPI_Comm comm, const char *call, const char *message);
// Returns the code alone.
int error_code(const char *call, const char *message);

// datatype/flatten.c: the bytes of a datatype.

uint64_t bytes_of(MPI_Count count, MPI_Datatype type);
// The numbers of integers, addresses, large counts and types that make a type. There are large counts if it was made by
// a call for them (_c).
struct envelope {
    MPI_Count integers, addresses, large, types;
};
// How a type is made (MPI_COMBINER_*).
int combiner_of(MPI_Datatype type, struct envelope *envelope);
// Whether a type is predefined, and must not be freed. Those of Fortran with a given precision
// (MPI_Type_create_f90_real) are.
bool is_predefined(MPI_Datatype type);
// Whether such elements are contiguous, in the order in which they are sent.
bool is_contiguous(MPI_Datatype type);
// Whether such elements are received as bytes, and put to their places afterwards. In a job all messages are,
// since one may be a descriptor. Under MPICH those with gaps are in any case: a message from a GPU, or a buffered
// one, is of bytes, and MPICH 4.0.3 has errors for structures where pieces of it end within a number.
bool is_received_as_bytes(MPI_Datatype type);
// If the MPI counts with an int and there are more bytes (the type is MPI_BYTE): makes them one element of a type that
// must be freed. Whether it did.
bool make_narrow(MPI_Count *count, MPI_Datatype *type);

// datatype/pack.c: elements with gaps.

struct runs;
// A type's runs, which must be dropped; null if they cannot be determined, for the reason NO_RUNS.
struct runs *hold_runs(MPI_Datatype type);
void drop_runs(struct runs *runs);
extern const char NO_RUNS[];
bool has_no_gaps(const struct runs *runs);
// Whether so many bytes may be a number of whole elements of the predefined types of the type.
bool may_be_whole(const struct runs *runs, uint64_t bytes);
// Packs so many bytes of elements on a GPU into contiguous memory, or unpacks them. Returns the message of an error, or
// null.
const char *copy_runs(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same in host memory.
void copy_runs_on_host(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same if some of the bytes are on a GPU, and others in host memory, as the packed ones are.
const char *copy_runs_anywhere(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The offset of the first byte of an element.
MPI_Aint first_of(MPI_Datatype type);
// Location of elements. One type may have bytes in both: a structure whose members are anywhere, MPI_BOTTOM.
enum memory_location { IN_HOST, ON_GPU, IN_BOTH };
enum memory_location location_of(const void *address, MPI_Count count, MPI_Datatype type);
// Whether any byte of them is on a GPU.
static inline bool is_on_gpu(const void *address, MPI_Count count, MPI_Datatype type) {
    return location_of(address, count, type) != IN_HOST;
}
// Whether the type may be sent: a query of the MPI, which raises the error.
int check_type(MPI_Datatype type, MPI_Comm comm);

// datatype/pack.c

// Packs elements anywhere into contiguous memory, or unpacks them. Returns the message of an error.
const char *copy_elements(void *typed, MPI_Count count, MPI_Datatype type, void *packed, bool is_pack);

// operation: sends from a GPU, and receives, which may bring a descriptor.

enum mode { STANDARD, SYNCHRONOUS, READY, BUFFERED };
enum kind { SEND, RECEIVE, COLLECTIVE };
// A collective call with memory on a GPU, as the MPI is called (collective/staging.c).
struct staging;
// An unexpected message: a probe has removed it from the MPI's queue.
struct unexpected {
    MPI_Comm comm;
    MPI_Message message;
    MPI_Status status;
    // The received bytes, if it is as long as a descriptor.
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
    // All of it is on a GPU, or some of it.
    bool on_gpu, is_mixed;
    bool contiguous;
    uint64_t capacity;
    // Elements with gaps, and of those on a GPU: their address, and the handle of the packed memory, which is the
    // user's memory for all else.
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
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t offer;
    // The number of a fetch in flight, or 0.
    uint64_t fetching;
    // When the receiver could have known of it, in nanoseconds.
    long announced_at;
    // Of a receive into a GPU that names its source: the sender's rank in the job, plus one. Found before the program can
    // free the communicator.
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
// Number of operations in flight.
extern int in_flight;
int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm);
int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm);
// Receives an unexpected message.
int start_unexpected(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct unexpected *unexpected);
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
// Completes the fetches that receives have started. The sender of such a message waits for the fetch, and cannot detach
// it any more, so this rank must not enter a call of the MPI that waits for that sender. All other operations in flight
// complete, or the sender detaches them, while this rank is in such a call.
void finish_fetches(void);
// The same, and tells the senders of receives that this rank has left that it waits in the MPI, until
// leave_mpi; whether there are such receives. leave_mpi returns the error of the call.
bool enter_mpi(void);
int leave_mpi(bool has_entered, int error);
// Completes what this rank owes others before the MPI ends: sends, fetches, collective calls, and requests that the program
// has freed. A receive that it has left may have no sender: nobody waits for that, as the MPI does not.
void finish_all(void);
// Pauses. `round` counts the rounds of a loop without progress.
void pause_for(int round);
// Waits for a request of the MPI while all other operations make progress.
int wait_for(MPI_Request *request, MPI_Status *status);

// operation/plain.c: receives of host memory whose requests are the MPI's own.

// Number of them in flight.
extern int plain_count;
// Starts such a receive, or makes a blocking one, if possible. Whether it did; then there may be an error of the MPI,
// or of a blocking one, which has been raised.
bool start_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request, int *error);
bool receive_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status, int *error);
// Polls all of them: a rank may wait for a message whose descriptor it has sent.
void poll_plains(void);
// operation/plain_persistent.c: makes a persistent request of such receives, starts it, and frees it, if possible. Each
// returns whether it did; then there may be an error of the MPI.
bool make_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Request *request, int *error);
bool restart_plain(MPI_Request *request, int *error);
bool free_persistent_plain(MPI_Request *request, int *error);
// A descriptor has been received: no further plain receives are started.
void note_descriptor(void);
// Whether the MPI may make a send alone: it does not wait there for a receiver that waits for this rank to poll its
// receives.
bool is_quick(enum mode mode, MPI_Count count, MPI_Datatype type);

// operation/request.c

// Frees a copy that was sent: memory of `malloc`, or a handle of memory on a GPU. Both may be null.
void drop_copy(void *copy, void *holder);

// point_to_point.c

// A buffered send from a GPU, which completes without a receiver.
int start_buffered(struct operation *operation, const void *buffer, MPI_Count count, MPI_Datatype type,
                   int to, int tag, MPI_Comm comm);

// collective/staging.c

// Starts the MPI's call of a staged collective call.
int start_staging(struct operation *operation);
// Copies what the MPI has received to the GPU, and returns the error. For the last time: frees it.
int end_staging(struct staging *staging, bool is_last);
// Whether the request's status has a byte count: that of a file has.
bool has_byte_count(const struct staging *staging);
void drop_staging(struct staging *staging);

// collective/consistency_check.c: whether ranks make the same call, with CAUSEWAY_COMM_CHECK.

void start_checking(void);
void stop_checking(void);

// collective/node_groups.c, collective/control.c: free the attributes of MPI_COMM_WORLD, before the MPI is finalized.
// All ranks call them.

void free_world_node_groups(void);
void free_world_control(void);

// support.c

// Whether the MPI itself supports memory on a GPU.
bool mpi_is_gpu_aware(void);
// Whether there are elements that the MPI cannot access.
bool is_inaccessible(const void *address, MPI_Count count, MPI_Datatype type);

// operation/request.c: errors of operations whose requests the user waits for.

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
// The error of a request that this thread has seen complete. The MPI has freed the request, and another thread may have
// got its handle since: the mark identifies this thread.
bool take_failure(MPI_Request handle, struct failure *found);
// The program frees a completed request without a query.
void drop_failure(MPI_Request handle);

// probe.c

// Copies a status, except for the error: calls that return one error leave that unchanged.
static inline void copy_status(const MPI_Status *from, MPI_Status *to) {
    if (to == MPI_STATUS_IGNORE) return;
    int error = to->MPI_ERROR;
    *to = *from;
    to->MPI_ERROR = error;
}
// Whether there are unexpected messages.
bool has_unexpected(void);
// Removes the first matching unexpected message, or returns null.
struct unexpected *take_unexpected(MPI_Comm comm, int source, int tag);
// Probes once. Needs the lock.
int probe_locked(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status);
// Receives the first matching message of the MPI's queue, and reads a descriptor; null if there is none. Returns an
// error of the MPI. Needs the lock.
int receive_next(int source, int tag, MPI_Comm comm, struct unexpected **received);
// Fills the status of such a message for the program.
void fill_probed_status(const struct unexpected *unexpected, MPI_Status *status);

// self_comm.c: a communicator of this rank alone, which is the interposer's.

MPI_Comm self_comm(void);
// Whether a predefined operation is for elements of a predefined type: the MPI is asked, and calls no error handler of the
// program's.
bool can_reduce(MPI_Op op, MPI_Datatype element);
// Frees it before the MPI, or its last session, ends.
void free_self_comm(void);

// persistent.c

// Number of completed messages of persistent requests that have not been reported to the user.
extern int unreported_count;
// Reports the completion of a persistent request's message, for the last time or not. Whether there was one.
bool complete_persistent(MPI_Request handle, MPI_Status *status, bool is_last, struct operation *ended);
// A persistent request of a collective call, which takes ownership of the staging if there is no error.
int make_collective(struct staging *staging, MPI_Request inner, MPI_Comm comm, MPI_Request *request);
// The staging of such a request, which is replaced by the MPI's, and whether the call is in flight; null for
// any other one.
struct staging *staging_with(MPI_Request *request, bool *is_active);
// Frees a persistent request. Whether it is one of these.
bool free_persistent(MPI_Request request);

#endif
