// Staging of collective calls, files and one-sided calls: the MPI is called with host memory instead of
// memory on a GPU.
#ifndef CAUSEWAY_STAGING_H
#define CAUSEWAY_STAGING_H

#include "../operation/operation.h"
#include "collective.h"

// Host memory that stands for the GPU memory of a side.
struct staging_buffer;
// Makes one, or returns null: the side is not on a GPU, or there is no memory, which is an error.
struct staging_buffer *make_staging_buffer(const struct side *side, const struct layout *layout, int *error);
// The address that replaces that of the side.
void *address_of(const struct staging_buffer *staging_buffer);
// Copies what the MPI reads into it, and what it has written out of it. They return the message of an error,
// or null.
const char *fill_staging_buffer(struct staging_buffer *staging_buffer);
const char *flush_staging_buffer(const struct staging_buffer *staging_buffer);
void drop_staging_buffer(struct staging_buffer *staging_buffer);
// One of contiguous or strided elements. Null if they are not on a GPU, or for an error.
struct staging_buffer *stage_elements(const void *address, MPI_Count count, MPI_Datatype type, bool is_read,
                                      bool is_written, int *error);
// Copies one block alone into it or out of it; the latter is not copied again until it is filled anew.
// Blocks that the layout does not have are none.
const char *copy_block(struct staging_buffer *staging_buffer, int block, bool into_staging);

// Staging of a call, for as long as the MPI makes it.

struct staging {
    // What the MPI is called with.
    struct call call;
    const char *name;
    struct staging_buffer *out, *in;
    // What it sends and receives, for the report.
    uint64_t bytes;
    // Its request has a count of bytes: it is a call of a file (files.c), or a partitioned receive.
    bool has_count;
    // Its first error.
    int error;
};
// The staging of a call, or null: it has no memory on a GPU here, or there is an error.
struct staging *stage(const struct call *call, int *error);
// Copies what the MPI reads. If a copy fails, that is an error of this rank, which still takes part in the
// call: the others wait for it.
void fill_staging(struct staging *staging);
// Starts the MPI's call of a staged collective call.
int start_staging(struct operation *operation);
// Copies what the MPI has received to the GPU, and returns the error. For the last time: frees it.
int end_staging(struct staging *staging, bool is_last);
// Whether the request's status has a byte count: that of a file has.
bool has_byte_count(const struct staging *staging);
void drop_staging(struct staging *staging);

#endif
