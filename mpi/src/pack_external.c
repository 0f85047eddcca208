// MPI_Pack_external and MPI_Unpack_external of memory on a GPU: the MPI converts elements in host memory that
// stand for it. The calls have no communicator.

#include <stdlib.h>

#include "collective/staging.h"

// Host memory that stands for packed bytes, of which the call has those from `at` on.
struct packed {
    unsigned char *memory, *program;
    MPI_Count size, at;
};

// What is packed does not end in the room for it. MPICH 4.0.2 does not notice that.
static int refuse_length(void) {
    PMPI_Comm_call_errhandler(error_comm(), MPI_ERR_TRUNCATE);
    return MPI_ERR_TRUNCATE;
}

static const char NO_MEMORY[] = "cannot allocate host memory to stage this call's memory on a GPU";

static const char *stage_packed(struct packed *packed, bool is_read) {
    packed->memory = malloc((size_t)packed->size + 1);
    if (packed->memory == NULL) return NO_MEMORY;
    if (!is_read || packed->at == packed->size) return NULL;
    causeway_comm_sync_memory(packed->program);
    uint64_t bytes = (uint64_t)(packed->size - packed->at);
    int error = causeway_comm_copy(packed->memory + packed->at, packed->program + packed->at, bytes);
    return error == 0 ? NULL : causeway_comm_error();
}

// Copies what the call has packed, up to `end`.
static const char *flush_packed(const struct packed *packed, MPI_Count end) {
    if (packed->memory == NULL || end == packed->at) return NULL;
    causeway_comm_sync_memory(packed->program);
    uint64_t bytes = (uint64_t)(end - packed->at);
    int error = causeway_comm_copy(packed->program + packed->at, packed->memory + packed->at, bytes);
    return error == 0 ? NULL : causeway_comm_error();
}

static const char *stage_typed(const void *address, MPI_Count count, MPI_Datatype type, bool is_read,
                               struct staging_buffer **image) {
    int error;
    *image = stage_elements(address, count, type, is_read, !is_read, &error);
    if (error != MPI_SUCCESS) return error == MPI_ERR_NO_MEM ? NO_MEMORY : NO_RUNS;
    return *image != NULL ? fill_staging_buffer(*image) : NULL;
}

static const char *flush_typed(const struct staging_buffer *image) {
    return image != NULL ? flush_staging_buffer(image) : NULL;
}

#define EXTERNAL(suffix, N, A)                                                                              \
    EXPORT int MPI_Pack_external##suffix(const char name[], const void *s, N n, MPI_Datatype t, void *r,    \
                                         A size, A *at) {                                                   \
        bool from_gpu = is_inaccessible(s, n, t), to_gpu = is_inaccessible(r, size, MPI_BYTE);              \
        if (!from_gpu && !to_gpu) return PMPI_Pack_external##suffix(name, s, n, t, r, size, at);            \
        A needed = 0;                                                                                       \
        int error = PMPI_Pack_external_size##suffix(name, n, t, &needed);                                   \
        if (error != MPI_SUCCESS) return error;                                                             \
        if (*at < 0 || *at > size || needed > size - *at) return refuse_length();                           \
        struct packed packed = {NULL, r, size, *at};                                                        \
        struct staging_buffer *image = NULL;                                                                \
        const char *message = from_gpu ? stage_typed(s, n, t, true, &image) : NULL;                         \
        if (message == NULL && to_gpu) message = stage_packed(&packed, false);                              \
        if (message == NULL)                                                                                \
            error = PMPI_Pack_external##suffix(name, image != NULL ? address_of(image) : s, n, t,           \
                                               to_gpu ? packed.memory : r, size, at);                       \
        if (message == NULL && error == MPI_SUCCESS) message = flush_packed(&packed, *at);                  \
        drop_staging_buffer(image);                                                                         \
        free(packed.memory);                                                                                \
        return message == NULL ? error : raise_error(error_comm(), "MPI_Pack_external" #suffix, message);   \
    }                                                                                                       \
    EXPORT int MPI_Unpack_external##suffix(const char name[], const void *s, A size, A *at, void *r, N n,   \
                                           MPI_Datatype t) {                                                \
        bool from_gpu = is_inaccessible(s, size, MPI_BYTE), to_gpu = is_inaccessible(r, n, t);              \
        if (!from_gpu && !to_gpu) return PMPI_Unpack_external##suffix(name, s, size, at, r, n, t);          \
        A needed = 0;                                                                                       \
        int error = PMPI_Pack_external_size##suffix(name, n, t, &needed);                                   \
        if (error != MPI_SUCCESS) return error;                                                             \
        if (*at < 0 || *at > size || needed > size - *at) return refuse_length();                           \
        struct packed packed = {NULL, (unsigned char *)s, size, *at};                                       \
        struct staging_buffer *image = NULL;                                                                \
        const char *message = from_gpu ? stage_packed(&packed, true) : NULL;                                \
        if (message == NULL && to_gpu) message = stage_typed(r, n, t, false, &image);                       \
        if (message == NULL)                                                                                \
            error = PMPI_Unpack_external##suffix(name, from_gpu ? packed.memory : s, size, at,              \
                                                 image != NULL ? address_of(image) : r, n, t);              \
        if (message == NULL && error == MPI_SUCCESS) message = flush_typed(image);                          \
        drop_staging_buffer(image);                                                                         \
        free(packed.memory);                                                                                \
        return message == NULL ? error : raise_error(error_comm(), "MPI_Unpack_external" #suffix, message); \
    }

EXTERNAL(, int, MPI_Aint)
#if MPI_VERSION >= 4
EXTERNAL(_c, MPI_Count, MPI_Count)
#endif
