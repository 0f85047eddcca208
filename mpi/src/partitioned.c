// Partitioned messages whose buffer is on a GPU: the MPI gets host memory instead, into which MPI_Pready
// copies the partitions that it names, and out of which MPI_Parrived copies one that has arrived. The end of
// the request copies the others.

#include <stdlib.h>

#include "collective/staging.h"
#include "persistent.h"

#if HAS_MPI_4

// Each partition is a block of its own.
static int stage_partitions(struct staging *staging, void *buffer, int parts, MPI_Count count,
                            MPI_Datatype type, bool is_send) {
    MPI_Count lower, extent;
    int error = PMPI_Type_get_extent_x(type, &lower, &extent);
    struct block *blocks = error == MPI_SUCCESS ? calloc((size_t)parts, sizeof *blocks) : NULL;
    if (blocks == NULL) return error == MPI_SUCCESS ? MPI_ERR_NO_MEM : error;
    for (int at = 0; at < parts; at++)
        blocks[at] = (struct block){(MPI_Aint)(at * count * extent), count, type};
    struct side side = {.address = buffer, .count = count, .type = type};
    struct layout layout = {.is_written = !is_send, .count = parts, .blocks = blocks};
    struct staging_buffer *image = make_staging_buffer(&side, &layout, &error);
    free(blocks);
    *(is_send ? &staging->out : &staging->in) = image;
    return error;
}

static bool is_mpis(const void *buffer, int parts, MPI_Count count, MPI_Datatype type, int peer) {
    if (parts <= 0 || count <= 0 || peer == MPI_PROC_NULL) return true;
    return !is_inaccessible(buffer, parts * count, type);
}

static int refuse(struct staging *staging, MPI_Comm comm, int error) {
    const char *call = staging->name;
    drop_staging(staging);
    if (error == MPI_ERR_TYPE) return raise_error(comm, call, NO_RUNS);
    return raise_error(comm, call, "cannot allocate host memory to stage the partitions on a GPU");
}

#define PARTITIONED(call, B, is_send, image)                                                          \
    EXPORT int MPI_##call(B b, int parts, MPI_Count n, MPI_Datatype t, int peer, int tag, MPI_Comm c, \
                          MPI_Info i, MPI_Request *q) {                                               \
        if (is_mpis(b, parts, n, t, peer)) return PMPI_##call(b, parts, n, t, peer, tag, c, i, q);    \
        struct staging *staging = calloc(1, sizeof *staging);                                         \
        if (staging == NULL) abort();                                                                 \
        staging->name = "MPI_" #call;                                                                 \
        staging->bytes = bytes_of(parts * n, t);                                                      \
        staging->has_count = !is_send;                                                                \
        int error = stage_partitions(staging, (void *)b, parts, n, t, is_send);                       \
        if (error != MPI_SUCCESS) return refuse(staging, c, error);                                   \
        MPI_Request inner;                                                                            \
        if (staging->image != NULL) b = address_of(staging->image);                                   \
        error = PMPI_##call(b, parts, n, t, peer, tag, c, i, &inner);                                 \
        if (error == MPI_SUCCESS && (error = make_collective(staging, inner, c, q)) != MPI_SUCCESS)   \
            PMPI_Request_free(&inner);                                                                \
        if (error != MPI_SUCCESS) drop_staging(staging);                                              \
        return error;                                                                                 \
    }

PARTITIONED(Psend_init, const void *, true, out)
PARTITIONED(Precv_init, void *, false, in)

// A copy that fails is the request's error. The partition is sent all the same, since the receiver waits for
// it.
static void copy_partition(struct staging *staging, struct staging_buffer *image, int partition,
                           bool into_image) {
    const char *message = image != NULL ? copy_block(image, partition, into_image) : NULL;
    if (message != NULL) staging->error = error_code(staging->name, message);
}

EXPORT int MPI_Pready(int partition, MPI_Request request) {
    bool is_active;
    struct staging *staging = staging_with(&request, &is_active);
    if (staging != NULL) copy_partition(staging, staging->out, partition, true);
    return PMPI_Pready(partition, request);
}

EXPORT int MPI_Pready_range(int low, int high, MPI_Request request) {
    bool is_active;
    struct staging *staging = staging_with(&request, &is_active);
    for (int at = low; staging != NULL && at <= high; at++) copy_partition(staging, staging->out, at, true);
    return PMPI_Pready_range(low, high, request);
}

// Some declare them as if they wrote to them.
#if defined(OPEN_MPI) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40003300)
#define PARTITIONS int
#else
#define PARTITIONS const int
#endif

EXPORT int MPI_Pready_list(int count, PARTITIONS partitions[], MPI_Request request) {
    bool is_active;
    struct staging *staging = staging_with(&request, &is_active);
    for (int at = 0; staging != NULL && at < count; at++)
        copy_partition(staging, staging->out, partitions[at], true);
    return PMPI_Pready_list(count, partitions, request);
}

EXPORT int MPI_Parrived(MPI_Request request, int partition, int *flag) {
    bool is_active;
    progress();
    // Until the flag is known the message must not be completed by another thread.
    lock();
    struct staging *staging = staging_with(&request, &is_active);
    // Of a complete message all partitions are in the program's memory, and the MPI's request is inactive.
    *flag = staging != NULL && !is_active;
    int error = *flag ? MPI_SUCCESS : PMPI_Parrived(request, partition, flag);
    if (error == MPI_SUCCESS && *flag && staging != NULL && is_active)
        copy_partition(staging, staging->in, partition, false);
    unlock();
    return error;
}

#endif
