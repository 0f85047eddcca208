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

// What MPI 4 has, and Open MPI 5, which calls itself MPI 3.1: sessions, persistent collective calls, partitioned
// messages, MPI_Isendrecv.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_MPI_4 1
#else
#define HAS_MPI_4 0
#endif

// job.c: this process, and what all files need.

// Whether descriptors may come: this process takes part in a job.
extern bool in_job;
// When the MPI has begun, and before it ends.
void join_job(void);
void leave_job(void);
// From now on several threads may call.
void expect_threads(void);
// Whether several threads may call.
extern bool has_threads;
static inline bool may_have_threads(void) {
    return has_threads;
}
// Taken where threads may call at once. The same thread may take it again.
void lock_mutex(void);
void unlock_mutex(void);
static inline void lock(void) {
    if (has_threads) lock_mutex();
}
static inline void unlock(void) {
    if (has_threads) unlock_mutex();
}
// The rank in the job of a communicator's rank, or -1 where it is of another one.
int job_rank(MPI_Comm comm, int rank);
// A number that no two communicators have.
uint64_t comm_id(MPI_Comm comm);
// Whether something is kept with a communicator by a key, and what. The key is made at the first call; `forget`
// frees what is kept by it, with the communicator.
bool find_attribute(MPI_Comm comm, int *key, MPI_Comm_delete_attr_function *forget, void *unexpected);
// Frees what is kept with MPI_COMM_WORLD by a key, if something is.
void delete_world_attribute(int key);
// A communicator for the errors of calls that have none (own.c).
MPI_Comm error_comm(void);
// Calls the communicator's error handler for an error of ours that has these words, and gives the error's
// code.
int raise_error(MPI_Comm comm, const char *call, const char *message);
// Gives the code alone.
int error_code(const char *call, const char *message);

// types.c: what a datatype's bytes are.

uint64_t bytes_of(MPI_Count count, MPI_Datatype type);
// Of how many integers, addresses, large counts and types a type is made. There are large counts where it was made by
// a call for them (_c).
struct envelope {
    MPI_Count integers, addresses, large, types;
};
// How a type is made (MPI_COMBINER_*).
int combiner_of(MPI_Datatype type, struct envelope *envelope);
// Whether a type is one that the MPI has of itself, and that must not be freed. Those of Fortran that have a
// given precision (MPI_Type_create_f90_real) are.
bool is_predefined(MPI_Datatype type);
// Whether the bytes of such elements lie one behind the other, in the order in which they are sent.
bool is_contiguous(MPI_Datatype type);
// Where the MPI counts with an int and there are more bytes (the type is MPI_BYTE): makes them one element of a type
// that is to be freed. Says whether it has.
bool make_narrow(MPI_Count *count, MPI_Datatype *type);

// datatype/runs.c: elements with gaps.

struct runs;
// A type's runs, to be dropped; null where they cannot be had, for the reason that NO_RUNS tells.
struct runs *hold_runs(MPI_Datatype type);
void drop_runs(struct runs *runs);
extern const char NO_RUNS[];
bool has_no_gaps(const struct runs *runs);
// Whether so many bytes may be a number of whole elements of predefined types, such as the type is made of.
bool may_be_whole(const struct runs *runs, uint64_t bytes);
// Copies so many bytes of elements between a place on a GPU and one where they lie one behind the other.
// Gives the words of an error, or null.
const char *copy_runs(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same between two places of the host.
void copy_runs_on_host(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The same where some of the elements' bytes are on a GPU, and others in the host as what is packed is.
const char *copy_runs_anywhere(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack);
// The offset of the first byte of an element.
MPI_Aint first_of(MPI_Datatype type);
// Where elements are. One type may have bytes in both: a structure whose members lie anywhere, MPI_BOTTOM.
enum memory_location { IN_HOST, ON_GPU, IN_BOTH };
enum memory_location location_of(const void *address, MPI_Count count, MPI_Datatype type);
// Whether any byte of them is on a GPU.
static inline bool is_on_gpu(const void *address, MPI_Count count, MPI_Datatype type) {
    return location_of(address, count, type) != IN_HOST;
}
// Whether the type is one that may be sent: the MPI is asked, which raises the error.
int check_type(MPI_Datatype type, MPI_Comm comm);

// datatype/pack.c

// Copies elements anywhere to memory where they lie one behind the other, or back. Gives the words of an error.
const char *copy_elements(void *typed, MPI_Count count, MPI_Datatype type, void *packed, bool is_pack);

// operation: sends from a GPU, and receives, which may bring what lies on a GPU.

enum mode { STANDARD, SYNCHRONOUS, READY, BUFFERED };
enum kind { SEND, RECEIVE, COLLECTIVE };
// A collective call with memory on a GPU, as the MPI is called (collective/staging.c).
struct staging;
// A message that a probe took out of the MPI's queue.
struct unexpected {
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
    // All of it is on a GPU, or some of it.
    bool on_gpu, is_mixed;
    bool contiguous;
    uint64_t capacity;
    // Elements with gaps, and of those on a GPU: where they are, and what gives the memory back in which they lie one
    // behind the other, which is the user's memory for all else.
    struct runs *runs;
    void *typed, *holder;
    // What the MPI was given instead of it, or null.
    void *memory;
    uint64_t memory_bytes;
    // The MPI's part.
    MPI_Request inner;
    bool inner_done;
    // Another thread waits for the MPI's part.
    bool is_watched;
    // Of a collective call.
    struct staging *staging;
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t offer;
    // The number of a fetch that is under way, or 0.
    uint64_t fetching;
    // When the receiver could have known of it, in nanoseconds.
    long announced_at;
    // Of a receive into a GPU that names its source: the sender's rank in the job, plus one. Found before the program can
    // free the communicator.
    int sender;
    // It is short, and the sender expects to go on before it is received.
    bool is_short;
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
    // Or the persistent request that it belongs to, and what is called at the end.
    void *persistent;
    void (*ended)(void *persistent, const struct operation *operation);
    // The user has freed the request.
    bool is_freed;
    // The other half of a send and a receive that have one request, which is the receive's.
    struct operation *other;
    // Memory from which is sent in place of the user's, or null; and what gives it back where it is on a GPU.
    void *copy, *copy_holder;
    struct operation *next, *previous;
};
// How many are under way.
extern int in_flight;
int start_send(struct operation *operation, enum mode mode, const void *buffer, MPI_Count count,
               MPI_Datatype type, int to, int tag, MPI_Comm comm);
int start_receive(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, int source,
                  int tag, MPI_Comm comm);
// Receives a message that a probe took out.
int start_unexpected(struct operation *operation, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
               struct unexpected *unexpected);
// From now on an operation is under way, of which all is known.
void add_operation(struct operation *operation);
// Takes the staging over. The inner request is the MPI's persistent one, if there is one.
int start_collective(struct operation *operation, struct staging *staging, MPI_Request inner, MPI_Comm comm);
// An operation of which the user gets a request, which it waits for.
int start_request(struct operation **operation, MPI_Request *request);
// Undoes that, where nothing could be started.
void drop_request(MPI_Request *request);
// Frees an operation's request at the operation's end. Says whether the request is one.
bool free_later(MPI_Request request);
// Takes a receive back, if nothing has come for it.
void cancel(struct operation *operation);
// The same by its request. Says whether an operation that is under way has this request.
bool cancel_now(MPI_Request request);
// Waits for one that has no request, and gives its error. The status may be ignored.
int finish(struct operation *operation, MPI_Status *status);
// What a program's status says of an operation.
void fill_status(const struct operation *operation, MPI_Status *status);
// Moves on what is under way.
void progress(void);
// Ends the copies that receives have begun. Whoever sends what is being copied waits for that, and cannot
// take it back any more, so this rank must not go into a call of the MPI's that waits for that one. All else
// that is under way goes on, or is given up by the sender, while this rank is in such a call.
void finish_fetches(void);
// Lets others run. `round` counts the vain turns of a loop.
void pause_for(int round);
// Waits for a request of the MPI's while all else moves on.
int wait_for(MPI_Request *request, MPI_Status *status);

// operation/plain.c: receives of the host's memory that are the MPI's own.

// How many are under way.
extern int plain_count;
// Starts a receive as one, or a blocking one, where it may be. Says whether it has; then there may be an error of the
// MPI's, or of a blocking one, which has been raised.
bool start_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                 MPI_Request *request, int *error);
bool receive_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Status *status, int *error);
// Looks whether any has ended: a rank may wait for the end of what it has sent word of.
void poll_plains(void);
// operation/plain_persistent.c: makes a persistent request of such receives, starts it, and frees it, where it may be or is
// one. Each says whether; then there may be an error of the MPI's.
bool make_plain(void *buffer, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Request *request, int *error);
bool restart_plain(MPI_Request *request, int *error);
bool free_persistent_plain(MPI_Request *request, int *error);
// Word of a message on a GPU has come: there are no further ones.
void note_descriptor(void);
// Whether the MPI may be left alone with a send: it does not wait there for a receiver that waits for this rank to look
// at what it receives.
bool is_quick(enum mode mode, MPI_Count count, MPI_Datatype type);

// operation/memory.c

// Frees memory from which was sent: what `malloc` gave, or a holder of memory on a GPU. Both may be null.
void drop_copy(void *copy, void *holder);

// point_to_point.c

// A buffered send from a GPU, which comes to its end without a receiver.
int start_buffered(struct operation *operation, const void *buffer, MPI_Count count, MPI_Datatype type,
                   int to, int tag, MPI_Comm comm);

// collective/staging.c

// Starts the MPI's part of a collective call.
int start_staging(struct operation *operation);
// Brings what the MPI has received to the GPU, and gives the error. For the last time: frees it.
int end_staging(struct staging *staging, bool is_last);
// Whether the request's status tells of bytes: that of a file's does.
bool has_byte_count(const struct staging *staging);
void drop_staging(struct staging *staging);

// collective/check.c: whether ranks call the same, where CAUSEWAY_COMM_CHECK asks for it.

void start_checking(void);
void stop_checking(void);

// collective/places.c, collective/mail.c: free what is kept with MPI_COMM_WORLD, before the MPI ends. All ranks
// call them.

void free_world_node_groups(void);
void free_world_control(void);

// refuse.c

// Whether the MPI itself says that it takes memory on a GPU.
bool mpi_is_gpu_aware(void);
// Whether there are elements that the MPI cannot reach.
bool is_inaccessible(const void *address, MPI_Count count, MPI_Datatype type);

// operation/failures.c: errors of operations whose requests the user waits for.

struct failure {
    MPI_Request handle;
    MPI_Comm comm;
    int error;
    bool is_raised;
    // The mark of the thread that last asked the MPI about the request, or null.
    const void *queried_by;
    struct failure *next;
};
// Those of which the user has not heard.
extern struct failure *failures;
void add_failure(MPI_Request handle, MPI_Comm comm, int error, bool is_raised);
// The MPI tells this thread of the end of a request that has an error, and may free it then.
void mark_queried(MPI_Request handle);
// The error of a request that has come to its end in this thread. The MPI has freed the request, and another
// thread may have got its handle since: this thread was told before.
bool take_failure(MPI_Request handle, struct failure *found);
// The program frees a request that has ended, without having asked.
void drop_failure(MPI_Request handle);

// probe.c

// What a program's status says, but for the error: calls that return one leave that as it is.
static inline void copy_status(const MPI_Status *from, MPI_Status *to) {
    if (to == MPI_STATUS_IGNORE) return;
    int error = to->MPI_ERROR;
    *to = *from;
    to->MPI_ERROR = error;
}
// Whether there are messages that a probe took out.
bool has_unexpected(void);
// Takes the first message out that a probe took out before, or gives null.
struct unexpected *take_unexpected(MPI_Comm comm, int source, int tag);
// Looks once for a message. Needs the lock.
int probe_locked(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status);
// Takes the first message out of the MPI's queue that fits, and looks into it; null where there is none. Gives an error
// of the MPI's. Needs the lock.
int receive_next(int source, int tag, MPI_Comm comm, struct unexpected **received);
// What a program's status says of such a message.
void fill_probed_status(const struct unexpected *unexpected, MPI_Status *status);

// own.c: a communicator of this rank alone, which is the interposer's.

MPI_Comm self_comm(void);
// Frees it before the MPI, or its last session, ends.
void free_self_comm(void);

// persistent.c

// Messages of persistent requests whose end the user has not heard of.
extern int unreported_count;
// Tells of the end of a persistent request's message, for the last time or not. Says whether there was one.
bool complete_persistent(MPI_Request handle, MPI_Status *status, bool is_last, struct operation *ended);
// A persistent request of a collective call, which it takes over where there is no error.
int make_collective(struct staging *staging, MPI_Request inner, MPI_Comm comm, MPI_Request *request);
// Frees a persistent request. Says whether it is one of these.
bool free_persistent(MPI_Request request);

#endif
