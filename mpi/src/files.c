// File access from and to memory on GPUs, through staging buffers in host memory. So all ranks make the call
// of the MPI, whatever memory each of them has.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/staging.h"
#include "file_calls.h"

// A staging buffer of elements. A read may return less than them, so the others are in it, too. If there can
// be none, the MPI is still called, with no elements, before the program gets the error: other ranks may wait
// for this one.
static struct staging_buffer *image_of(const void *address, MPI_Count count, MPI_Datatype type,
                                       bool is_written, int *error) {
    struct staging_buffer *image = stage_elements(address, count, type, true, is_written, error);
    const char *message = image != NULL ? fill_staging_buffer(image) : NULL;
    if (message == NULL) return image;
    *error = error_code("a file", message);
    drop_staging_buffer(image);
    return NULL;
}

// Whether a call is passed to the MPI unchanged.
static bool is_mpis(const void *address, MPI_Count count, MPI_Datatype type) {
    return count <= 0 || mpi_is_gpu_aware() || !is_on_gpu(address, count, type);
}

static int fail(MPI_File file, const char *call, int error) {
    fprintf(stderr, "causeway: %s: cannot stage its memory on a GPU in host memory\n", call);
    PMPI_File_call_errhandler(file, error);
    return error;
}

// Copies what was read to the GPU, and returns the error of the call, or of this copy.
static int end_image(struct staging_buffer *image, MPI_File file, const char *call, int error) {
    const char *message = error == MPI_SUCCESS ? flush_staging_buffer(image) : NULL;
    drop_staging_buffer(image);
    return message == NULL ? error : fail(file, call, error_code(call, message));
}

#define AT_ONCE(name, parameters, arguments)                                       \
    EXPORT int MPI_File_##name parameters {                                        \
        if (is_mpis(b, n, t)) return PMPI_File_##name arguments;                   \
        int refused = MPI_SUCCESS;                                                 \
        struct staging_buffer *image = image_of(b, n, t, IS_READ, &refused);       \
        if (image == NULL) n = 0, t = MPI_BYTE;                                    \
        b = address_of(image);                                                     \
        int error = PMPI_File_##name arguments;                                    \
        if (image != NULL) return end_image(image, f, "MPI_File_" #name, error);   \
        return error == MPI_SUCCESS ? fail(f, "MPI_File_" #name, refused) : error; \
    }

// Non-blocking calls.

// Whether all ranks of the file make such a call.
static bool is_collective(const char *call) {
    return strstr(call, "_all") != NULL;
}

// Collective ones of host memory are operations, too, in a process that has GPUs: they are completed in the
// order in which they began, whatever memory each has (has_older_access in operation/progress.c).
static bool is_mpis_later(const void *address, MPI_Count count, MPI_Datatype type, const char *call) {
    if (!is_collective(call) || mpi_is_gpu_aware() || !causeway_comm_has_driver())
        return is_mpis(address, count, type);
    return false;
}

static int start_later(struct operation **operation, MPI_File file, const void *address, MPI_Count count,
                       MPI_Datatype type, bool is_read, const char *call, MPI_Request *request) {
    int error = start_request(operation, request);
    if (error != MPI_SUCCESS) return error;
    struct staging *staging = calloc(1, sizeof *staging);
    if (staging == NULL) abort();
    staging->name = call;
    staging->has_count = true;
    // The program gets an error when it waits.
    if (!is_mpis(address, count, type))
        staging->in = image_of(address, count, type, is_read, &staging->error);
    if (is_collective(call)) (*operation)->file = file;
    (*operation)->kind = COLLECTIVE;
    // Errors of files are returned, unless the program sets another handler.
    (*operation)->comm = self_comm();
    (*operation)->staging = staging;
    return error;
}

static int continue_later(struct operation *operation, int error, MPI_Request *request) {
    if (error == MPI_SUCCESS) {
        add_operation(operation);
        return error;
    }
    drop_staging(operation->staging);
    drop_request(request);
    return error;
}

#define LATER(name, parameters, arguments)                                                     \
    EXPORT int MPI_File_##name parameters {                                                    \
        if (is_mpis_later(b, n, t, "MPI_File_" #name)) return PMPI_File_##name arguments;      \
        struct operation *operation;                                                           \
        MPI_Request *request = q;                                                              \
        int error = start_later(&operation, f, b, n, t, IS_READ, "MPI_File_" #name, request);  \
        if (error != MPI_SUCCESS) return error;                                                \
        const struct staging *staging = operation->staging;                                    \
        if (staging->error != MPI_SUCCESS) n = 0, t = MPI_BYTE;                                \
        if (staging->in != NULL || staging->error != MPI_SUCCESS) b = address_of(staging->in); \
        q = &operation->inner;                                                                 \
        error = PMPI_File_##name arguments;                                                    \
        return continue_later(operation, error, request);                                      \
    }

// Split collective calls. A file has one of them at a time.

struct split {
    MPI_File file;
    // Null if there could be none; the program gets that error at the end.
    struct staging_buffer *image;
    int error;
    struct split *next;
};

static struct split *first;

static void keep_split(MPI_File file, struct staging_buffer *image, int error) {
    struct split *split = malloc(sizeof *split);
    if (split == NULL) abort();
    lock();
    *split = (struct split){file, image, error, first};
    first = split;
    unlock();
}

// Removes the split call of a file. Whether there is one.
static bool take_split(MPI_File file, struct split *found) {
    if (first == NULL) return false;
    lock();
    struct split **at = &first;
    while (*at != NULL && (*at)->file != file) at = &(*at)->next;
    struct split *split = *at;
    if (split != NULL) *at = split->next;
    unlock();
    if (split == NULL) return false;
    *found = *split;
    free(split);
    return true;
}

#define BEGIN(name, parameters, arguments)                                   \
    EXPORT int MPI_File_##name parameters {                                  \
        if (is_mpis(b, n, t)) return PMPI_File_##name arguments;             \
        int refused = MPI_SUCCESS;                                           \
        struct staging_buffer *image = image_of(b, n, t, IS_READ, &refused); \
        if (image == NULL) n = 0, t = MPI_BYTE;                              \
        b = address_of(image);                                               \
        int error = PMPI_File_##name arguments;                              \
        if (error == MPI_SUCCESS)                                            \
            keep_split(f, image, refused);                                   \
        else                                                                 \
            drop_staging_buffer(image);                                      \
        return error;                                                        \
    }
#define END(name, B)                                                                         \
    EXPORT int MPI_File_##name(MPI_File f, B b, MPI_Status *s) {                             \
        struct split split;                                                                  \
        if (!take_split(f, &split)) return PMPI_File_##name(f, b, s);                        \
        int error = PMPI_File_##name(f, address_of(split.image), s);                         \
        if (split.image != NULL) return end_image(split.image, f, "MPI_File_" #name, error); \
        return error == MPI_SUCCESS ? fail(f, "MPI_File_" #name, split.error) : error;       \
    }

#define HERE(name, B, N) AT_ONCE(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Status *s), (f, b, n, t, s))
#define THERE(name, B, N) \
    AT_ONCE(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Status *s), (f, at, b, n, t, s))
#define LATER_HERE(name, B, N) \
    LATER(name, (MPI_File f, B b, N n, MPI_Datatype t, MPI_Request *q), (f, b, n, t, q))
#define LATER_THERE(name, B, N) \
    LATER(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t, MPI_Request *q), (f, at, b, n, t, q))
#define BEGIN_HERE(name, B, N) BEGIN(name, (MPI_File f, B b, N n, MPI_Datatype t), (f, b, n, t))
#define BEGIN_THERE(name, B, N) \
    BEGIN(name, (MPI_File f, MPI_Offset at, B b, N n, MPI_Datatype t), (f, at, b, n, t))

#define IS_READ true
FILE_CALLS(read, , void *, int)
FILE_ENDS(read, void *)
#if MPI_VERSION >= 4
FILE_CALLS(read, _c, void *, MPI_Count)
#endif
#undef IS_READ
#define IS_READ false
FILE_CALLS(write, , const void *, int)
FILE_ENDS(write, const void *)
#if MPI_VERSION >= 4
FILE_CALLS(write, _c, const void *, MPI_Count)
#endif
