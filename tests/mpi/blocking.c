// Messages between GPUs are under way in both directions while two ranks make a call that may wait for
// another process: blocking FOLDER. One of them makes the call at once, the other one when its own sends have
// come to their end; each is the first in turn. All calls of the MPI that may wait so are in the list below;
// `blocking names` prints them. What is not there is local, or waits for what nobody can give here
// (MPI_Comm_spawn, MPI_Comm_accept).
//
// Prints in how many calls a copy was still under way, and "blocking: ok".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { MESSAGES = 4, BYTES = 16 << 20, TAG = 50 };

static int rank, peer;
static char path[4096];
static MPI_Comm world, ring;
static MPI_Win window, shared_lock;
static MPI_File file;
static MPI_Info info;
static int words[4], others[4], *base;

static void free_comm(MPI_Comm comm) {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

static MPI_Group both(void) {
    MPI_Group group;
    MPI_Comm_group(world, &group);
    return group;
}

static MPI_Group only_peer(void) {
    MPI_Group all = both(), one;
    MPI_Group_incl(all, 1, &peer, &one);
    MPI_Group_free(&all);
    return one;
}

// What a call makes goes at once: to free it is such a call, too.
#define COMM(name, ...)          \
    static void name##_(void) {  \
        MPI_Comm made;           \
        MPI_##name(__VA_ARGS__); \
        free_comm(made);         \
    }
#define WINDOW(name, ...)        \
    static void name##_(void) {  \
        MPI_Win made;            \
        MPI_##name(__VA_ARGS__); \
        MPI_Win_free(&made);     \
    }
#define PLAIN(name, ...)         \
    static void name##_(void) {  \
        MPI_##name(__VA_ARGS__); \
    }

static int counts[2] = {1, 1}, displacements[2] = {0, 1}, bytes_at[2] = {0, 4}, dims[1] = {2},
           periods[1] = {1}, keeps[1] = {1}, index_[2] = {1, 2}, edges[2] = {1, 0}, one = 1;
static MPI_Aint far_at[2] = {0, 4};
static MPI_Datatype ints[2];

PLAIN(Barrier, world)
PLAIN(Bcast, words, 1, MPI_INT, 0, world)
PLAIN(Gather, words, 1, MPI_INT, others, 1, MPI_INT, 0, world)
PLAIN(Gatherv, words, 1, MPI_INT, others, counts, displacements, MPI_INT, 0, world)
PLAIN(Scatter, words, 1, MPI_INT, others, 1, MPI_INT, 0, world)
PLAIN(Scatterv, words, counts, displacements, MPI_INT, others, 1, MPI_INT, 0, world)
PLAIN(Allgather, words, 1, MPI_INT, others, 1, MPI_INT, world)
PLAIN(Allgatherv, words, 1, MPI_INT, others, counts, displacements, MPI_INT, world)
PLAIN(Alltoall, words, 1, MPI_INT, others, 1, MPI_INT, world)
PLAIN(Alltoallv, words, counts, displacements, MPI_INT, others, counts, displacements, MPI_INT, world)
PLAIN(Alltoallw, words, counts, bytes_at, ints, others, counts, bytes_at, ints, world)
PLAIN(Reduce, words, others, 1, MPI_INT, MPI_SUM, 0, world)
PLAIN(Allreduce, words, others, 1, MPI_INT, MPI_SUM, world)
PLAIN(Reduce_scatter, words, others, counts, MPI_INT, MPI_SUM, world)
PLAIN(Reduce_scatter_block, words, others, 1, MPI_INT, MPI_SUM, world)
PLAIN(Scan, words, others, 1, MPI_INT, MPI_SUM, world)
PLAIN(Exscan, words, others, 1, MPI_INT, MPI_SUM, world)
PLAIN(Neighbor_allgather, words, 1, MPI_INT, others, 1, MPI_INT, ring)
PLAIN(Neighbor_allgatherv, words, 1, MPI_INT, others, counts, displacements, MPI_INT, ring)
PLAIN(Neighbor_alltoall, words, 1, MPI_INT, others, 1, MPI_INT, ring)
PLAIN(Neighbor_alltoallv, words, counts, displacements, MPI_INT, others, counts, displacements, MPI_INT, ring)
PLAIN(Neighbor_alltoallw, words, counts, far_at, ints, others, counts, far_at, ints, ring)

COMM(Comm_dup, world, &made)
COMM(Comm_dup_with_info, world, MPI_INFO_NULL, &made)
COMM(Comm_create, world, both(), &made)
COMM(Comm_create_group, world, both(), 3, &made)
COMM(Comm_split, world, 0, rank, &made)
COMM(Comm_split_type, world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &made)
COMM(Intercomm_create, MPI_COMM_SELF, 0, world, peer, 4, &made)
COMM(Cart_create, world, 1, dims, periods, 0, &made)
COMM(Cart_sub, ring, keeps, &made)
COMM(Graph_create, world, 2, index_, edges, 0, &made)
COMM(Dist_graph_create, world, 1, &rank, &one, &peer, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made)
COMM(Dist_graph_create_adjacent, world, 1, &peer, MPI_UNWEIGHTED, 1, &peer, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
     &made)
PLAIN(Comm_set_info, world, info)

static void Comm_idup_(void) {
    MPI_Comm made;
    MPI_Request request;
    MPI_Comm_idup(world, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free_comm(made);
}

static void Comm_disconnect_(void) {
    MPI_Comm made;
    PMPI_Comm_dup(world, &made);
    MPI_Comm_disconnect(&made);
}

static void Intercomm_merge_(void) {
    MPI_Comm between, made;
    PMPI_Intercomm_create(MPI_COMM_SELF, 0, world, peer, 5, &between);
    MPI_Intercomm_merge(between, rank, &made);
    free_comm(between);
    free_comm(made);
}

WINDOW(Win_create, words, sizeof words, 1, MPI_INFO_NULL, world, &made)
WINDOW(Win_allocate, 64, 1, MPI_INFO_NULL, world, &base, &made)
WINDOW(Win_allocate_shared, 64, 1, MPI_INFO_NULL, world, &base, &made)
WINDOW(Win_create_dynamic, MPI_INFO_NULL, world, &made)
PLAIN(Win_fence, 0, window)
PLAIN(Win_set_info, window, info)

static void Win_lock_(void) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, shared_lock);
    MPI_Win_flush(0, shared_lock);
    MPI_Win_flush_local(0, shared_lock);
    MPI_Win_unlock(0, shared_lock);
}

static void Win_lock_all_(void) {
    MPI_Win_lock_all(0, shared_lock);
    MPI_Win_flush_all(shared_lock);
    MPI_Win_flush_local_all(shared_lock);
    MPI_Win_unlock_all(shared_lock);
}

static void Win_start_(void) {
    MPI_Group group = only_peer();
    MPI_Win_post(group, 0, shared_lock);
    MPI_Win_start(group, 0, shared_lock);
    MPI_Win_complete(shared_lock);
    MPI_Win_wait(shared_lock);
    MPI_Group_free(&group);
}

static void File_open_(void) {
    MPI_File made;
    char name[4200];
    snprintf(name, sizeof name, "%s/opened", path);
    MPI_File_open(world, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &made);
    MPI_File_close(&made);
}

#define AT (4 * (MPI_Offset)rank)
PLAIN(File_set_size, file, 64)
PLAIN(File_preallocate, file, 64)
PLAIN(File_set_info, file, info)
PLAIN(File_set_view, file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL)
PLAIN(File_set_atomicity, file, 0)
PLAIN(File_sync, file)
PLAIN(File_write_all, file, words, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_read_all, file, words, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_write_at_all, file, AT, words, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_read_at_all, file, AT, others, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_write_ordered, file, words, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_read_ordered, file, others, 1, MPI_INT, MPI_STATUS_IGNORE)
PLAIN(File_seek_shared, file, 0, MPI_SEEK_SET)
// In two parts.
#define SPLIT(kind, name, ...)                                            \
    static void File_##kind##_##name##_begin_(void) {                     \
        MPI_File_##kind##_##name##_begin(__VA_ARGS__, words, 1, MPI_INT); \
        MPI_File_##kind##_##name##_end(file, words, MPI_STATUS_IGNORE);   \
    }
SPLIT(write, all, file)
SPLIT(read, all, file)
SPLIT(write, at_all, file, AT)
SPLIT(read, at_all, file, AT)
SPLIT(write, ordered, file)
SPLIT(read, ordered, file)

// Short messages of the host.
static void send_word(void) {
    PMPI_Send(words, 1, MPI_INT, peer, TAG, world);
}

static MPI_Request expect_word(void) {
    MPI_Request request;
    PMPI_Irecv(others, 1, MPI_INT, peer, TAG, world, &request);
    send_word();
    return request;
}

static void Send_(void) {
    MPI_Send(words, 1, MPI_INT, peer, TAG, world);
    MPI_Recv(others, 1, MPI_INT, peer, TAG, world, MPI_STATUS_IGNORE);
}

static void Ssend_(void) {
    if (rank == 0) MPI_Ssend(words, 1, MPI_INT, peer, TAG, world);
    MPI_Recv(others, 1, MPI_INT, peer, TAG, world, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Ssend(words, 1, MPI_INT, peer, TAG, world);
}

static void Rsend_(void) {
    MPI_Request request;
    MPI_Irecv(others, 1, MPI_INT, peer, TAG, world, &request);
    PMPI_Barrier(world);
    MPI_Rsend(words, 1, MPI_INT, peer, TAG, world);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void Bsend_(void) {
    static char space[MPI_BSEND_OVERHEAD + 64];
    void *given;
    int bytes;
    MPI_Buffer_attach(space, (int)sizeof space);
    MPI_Bsend(words, 1, MPI_INT, peer, TAG, world);
    MPI_Buffer_detach(&given, &bytes);
    MPI_Recv(others, 1, MPI_INT, peer, TAG, world, MPI_STATUS_IGNORE);
}

PLAIN(Sendrecv, words, 1, MPI_INT, peer, TAG, others, 1, MPI_INT, peer, TAG, world, MPI_STATUS_IGNORE)
PLAIN(Sendrecv_replace, words, 1, MPI_INT, peer, TAG, peer, TAG, world, MPI_STATUS_IGNORE)

static void Probe_(void) {
    send_word();
    MPI_Probe(peer, TAG, world, MPI_STATUS_IGNORE);
    MPI_Recv(others, 1, MPI_INT, peer, TAG, world, MPI_STATUS_IGNORE);
}

static void Mprobe_(void) {
    MPI_Message message;
    send_word();
    MPI_Mprobe(peer, TAG, world, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(others, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void Wait_(void) {
    MPI_Request request = expect_word();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void Waitall_(void) {
    MPI_Request request = expect_word();
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

static void Waitany_(void) {
    int index;
    MPI_Request request = expect_word();
    MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
}

static void Waitsome_(void) {
    int count, index;
    MPI_Request request = expect_word();
    MPI_Waitsome(1, &request, &count, &index, MPI_STATUSES_IGNORE);
}

// The calls that a function makes, besides that of its name.
#define CALL(name) {"MPI_" #name, name##_}
#define CALLS(name, more) {"MPI_" #name " " more, name##_}
static const struct {
    const char *names;
    void (*make)(void);
} CALLS_[] = {
    CALL(Barrier),
    CALL(Bcast),
    CALL(Gather),
    CALL(Gatherv),
    CALL(Scatter),
    CALL(Scatterv),
    CALL(Allgather),
    CALL(Allgatherv),
    CALL(Alltoall),
    CALL(Alltoallv),
    CALL(Alltoallw),
    CALL(Reduce),
    CALL(Allreduce),
    CALL(Reduce_scatter),
    CALL(Reduce_scatter_block),
    CALL(Scan),
    CALL(Exscan),
    CALL(Neighbor_allgather),
    CALL(Neighbor_allgatherv),
    CALL(Neighbor_alltoall),
    CALL(Neighbor_alltoallv),
    CALL(Neighbor_alltoallw),
    CALLS(Comm_dup, "MPI_Comm_free"),
    CALL(Comm_dup_with_info),
    CALL(Comm_idup),
    CALL(Comm_create),
    CALL(Comm_create_group),
    CALL(Comm_split),
    CALL(Comm_split_type),
    CALL(Comm_disconnect),
    CALL(Comm_set_info),
    CALL(Intercomm_create),
    CALL(Intercomm_merge),
    CALL(Cart_create),
    CALL(Cart_sub),
    CALL(Graph_create),
    CALL(Dist_graph_create),
    CALL(Dist_graph_create_adjacent),
    CALLS(Win_create, "MPI_Win_free"),
    CALL(Win_allocate),
    CALL(Win_allocate_shared),
    CALL(Win_create_dynamic),
    CALL(Win_fence),
    CALL(Win_set_info),
    CALLS(Win_lock, "MPI_Win_flush MPI_Win_flush_local MPI_Win_unlock"),
    CALLS(Win_lock_all, "MPI_Win_flush_all MPI_Win_flush_local_all MPI_Win_unlock_all"),
    CALLS(Win_start, "MPI_Win_post MPI_Win_complete MPI_Win_wait"),
    CALLS(File_open, "MPI_File_close"),
    CALL(File_set_size),
    CALL(File_preallocate),
    CALL(File_set_info),
    CALL(File_set_view),
    CALL(File_set_atomicity),
    CALL(File_sync),
    CALL(File_write_all),
    CALL(File_read_all),
    CALL(File_write_at_all),
    CALL(File_read_at_all),
    CALL(File_write_ordered),
    CALL(File_read_ordered),
    CALL(File_seek_shared),
    CALLS(File_write_all_begin, "MPI_File_write_all_end"),
    CALLS(File_read_all_begin, "MPI_File_read_all_end"),
    CALLS(File_write_at_all_begin, "MPI_File_write_at_all_end"),
    CALLS(File_read_at_all_begin, "MPI_File_read_at_all_end"),
    CALLS(File_write_ordered_begin, "MPI_File_write_ordered_end"),
    CALLS(File_read_ordered_begin, "MPI_File_read_ordered_end"),
    CALLS(Send, "MPI_Recv"),
    CALL(Ssend),
    CALL(Rsend),
    CALLS(Bsend, "MPI_Buffer_detach"),
    CALL(Sendrecv),
    CALL(Sendrecv_replace),
    CALL(Probe),
    CALLS(Mprobe, "MPI_Mrecv"),
    CALL(Wait),
    CALL(Waitall),
    CALL(Waitany),
    CALL(Waitsome),
};
enum { COUNT = sizeof CALLS_ / sizeof *CALLS_ };

// Whether copies to this rank are still under way when its receives have been asked for once.
static int start(char *in, char *out, MPI_Request *requests) {
    int flag;
    for (int at = 0; at < MESSAGES; at++) {
        MPI_Irecv(in + at * BYTES, BYTES, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[at]);
        MPI_Isend(out + at * BYTES, BYTES, MPI_BYTE, peer, at, MPI_COMM_WORLD, &requests[MESSAGES + at]);
    }
    // Past the interposer: all have been sent.
    PMPI_Barrier(world);
    MPI_Testall(MESSAGES, requests, &flag, MPI_STATUSES_IGNORE);
    return !flag;
}

static void run(char *in, char *out) {
    MPI_Request requests[2 * MESSAGES];
    int under_way = 0;
    for (int at = 0; at < COUNT; at++) {
        under_way += start(in, out, requests);
        if (at % 2 != rank) MPI_Waitall(MESSAGES, requests + MESSAGES, MPI_STATUSES_IGNORE);
        CALLS_[at].make();
        MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
        PMPI_Barrier(world);
    }
    printf("copies were under way in %d of %d calls\n", under_way, (int)COUNT);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "names") == 0) {
        for (int at = 0; at < COUNT; at++) printf("%s\n", CALLS_[at].names);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    snprintf(path, sizeof path, "%s", argv[1]);
    ints[0] = ints[1] = MPI_INT;
    gpu_start();
    MPI_Info_create(&info);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Cart_create(world, 1, dims, periods, 0, &ring);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, world, &base, &window);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, world, &base, &shared_lock);
    char name[4200];
    snprintf(name, sizeof name, "%s/file", path);
    MPI_File_open(world, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    char *in = gpu_allocate(DEVICE, MESSAGES * BYTES), *out = gpu_allocate(DEVICE, MESSAGES * BYTES);
    // So that each has the other's memory open.
    for (int at = 0; at < 2; at++)
        MPI_Sendrecv(out, BYTES, MPI_BYTE, peer, 0, in, BYTES, MPI_BYTE, peer, 0, world, MPI_STATUS_IGNORE);
    run(in, out);
    MPI_File_close(&file);
    MPI_Win_free(&window);
    MPI_Win_free(&shared_lock);
    MPI_Finalize();
    printf("blocking: ok\n");
    return 0;
}
