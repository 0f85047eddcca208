// Staging of collective calls: buffers in host memory that stand for the GPU memory of one side of a call. A
// byte has the same distance from the buffer's address as from the side's.

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "staging.h"

// Bytes of the side, at a distance from its address.
struct range {
    MPI_Aint low, high;
    enum memory_location location;
    // If there are gaps, which are not of the side: the runs of the elements, their start, and their bytes.
    struct runs *runs;
    MPI_Aint start;
    uint64_t bytes;
    // It has been copied to the side already.
    bool is_flushed;
};

struct staging_buffer {
    struct side side;
    bool is_read, is_written;
    // The first byte of the side in the buffer.
    MPI_Aint low;
    unsigned char *memory;
    uint64_t bytes;
    // The handle that releases the memory; null if it is mapped for this buffer alone.
    void *holder;
    int count;
    struct range ranges[];
};

// From the first byte of a block to its last one.
static int range_of(const struct block *block, struct range *range) {
    MPI_Count lower, extent, true_lower, true_extent;
    range->low = range->high = block->offset;
    // Open MPI 4.1.4 reports the largest number as the start of an empty type.
    if (bytes_of(block->count, block->type) == 0) return MPI_SUCCESS;
    int error = PMPI_Type_get_extent_x(block->type, &lower, &extent);
    if (error == MPI_SUCCESS) error = PMPI_Type_get_true_extent_x(block->type, &true_lower, &true_extent);
    if (error != MPI_SUCCESS) return error;
    MPI_Count last = (block->count - 1) * extent;
    range->low = (MPI_Aint)(block->offset + true_lower + (last < 0 ? last : 0));
    range->high = (MPI_Aint)(block->offset + true_lower + true_extent + (last > 0 ? last : 0));
    if (is_contiguous(block->type)) return MPI_SUCCESS;
    range->start = block->offset;
    range->bytes = bytes_of(block->count, block->type);
    range->runs = hold_runs(block->type);
    return range->runs == NULL ? MPI_ERR_TYPE : MPI_SUCCESS;
}

static const char *address_at(const struct side *side, MPI_Aint offset) {
    return (const char *)((uintptr_t)side->address + (uintptr_t)offset);
}

// The ranges of a layout. `on_gpu`: whether any of them is on a GPU.
static int find_ranges(const struct side *side, const struct layout *layout, struct range *ranges,
                       bool *on_gpu) {
    // If displacements are addresses, each block may be elsewhere.
    bool has_base = side->address != MPI_BOTTOM;
    enum memory_location side_location = causeway_comm_on_gpu(side->address) ? ON_GPU : IN_HOST;
    *on_gpu = false;
    for (int at = 0; at < layout->count; at++) {
        const struct block *block = &layout->blocks[at];
        // So may each run of a type with gaps.
        bool is_queried = !has_base || !is_contiguous(block->type);
        ranges[at].location = is_queried
                                  ? location_of(address_at(side, block->offset), block->count, block->type)
                                  : side_location;
        *on_gpu |= ranges[at].location != IN_HOST;
    }
    for (int at = 0; at < layout->count && *on_gpu; at++) {
        int error = range_of(&layout->blocks[at], &ranges[at]);
        if (error != MPI_SUCCESS) return error;
    }
    return MPI_SUCCESS;
}

static void forget(struct staging_buffer *image) {
    for (int at = 0; image != NULL && at < image->count; at++)
        if (image->ranges[at].runs != NULL) drop_runs(image->ranges[at].runs);
    free(image);
}

// The address of a range of the side that is entirely on a GPU; null if there is none.
static const void *on_its_gpu(const struct staging_buffer *image) {
    int at = 0;
    while (at < image->count && image->ranges[at].location != ON_GPU) at++;
    return at < image->count ? address_at(&image->side, image->ranges[at].low) : NULL;
}

// Whether memory could be allocated.
static bool allocate_staging_memory(struct staging_buffer *image) {
    const void *gpu_address = on_its_gpu(image);
    if (gpu_address != NULL)
        image->memory = causeway_comm_allocate_host(gpu_address, image->bytes, &image->holder);
    if (image->memory != NULL) return true;
    // Pages that are not touched cost nothing: blocks may be far apart.
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, image->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    image->memory = memory;
    return memory != MAP_FAILED;
}

struct staging_buffer *make_staging_buffer(const struct side *side, const struct layout *layout, int *error) {
    struct staging_buffer *image = calloc(1, sizeof *image + (size_t)layout->count * sizeof *image->ranges);
    bool on_gpu = false;
    *error = image == NULL ? MPI_ERR_NO_MEM : find_ranges(side, layout, image->ranges, &on_gpu);
    if (image != NULL) image->count = layout->count;
    if (*error != MPI_SUCCESS || !on_gpu) {
        forget(image);
        return NULL;
    }
    image->side = *side;
    image->is_read = layout->is_read || layout->may_stay;
    image->is_written = layout->is_written;
    MPI_Aint low = image->ranges[0].low, high = image->ranges[0].high;
    for (int at = 1; at < layout->count; at++) {
        if (image->ranges[at].low < low) low = image->ranges[at].low;
        if (image->ranges[at].high > high) high = image->ranges[at].high;
    }
    image->low = low;
    image->bytes = (uint64_t)(high - low) + 1;
    if (!allocate_staging_memory(image)) {
        forget(image);
        *error = MPI_ERR_NO_MEM;
        return NULL;
    }
    return image;
}

void *address_of(const struct staging_buffer *image) {
    return image == NULL ? NULL : (void *)((uintptr_t)image->memory - (uintptr_t)image->low);
}

// Strided elements, packed in between. Returns the message of an error.
static const char *copy_with_gaps(const struct range *range, unsigned char *here, unsigned char *there,
                                  bool into_image) {
    unsigned char *packed = malloc(range->bytes);
    const char *message = packed == NULL ? "cannot allocate memory to pack the elements" : NULL;
    if (message == NULL && !into_image) copy_runs_on_host(range->runs, here, packed, range->bytes, true);
    if (message == NULL && range->location == ON_GPU)
        message = copy_runs(range->runs, there, packed, range->bytes, into_image);
    else if (message == NULL)
        message = copy_runs_anywhere(range->runs, there, packed, range->bytes, into_image);
    if (message == NULL && into_image) copy_runs_on_host(range->runs, here, packed, range->bytes, false);
    free(packed);
    return message;
}

static const char *copy(const struct staging_buffer *image, const struct range *range, bool into_image) {
    MPI_Aint first = range->runs != NULL ? range->start : range->low;
    unsigned char *here = image->memory + (first - image->low);
    unsigned char *there = (unsigned char *)address_at(&image->side, first);
    if (range->runs != NULL) return copy_with_gaps(range, here, there, into_image);
    unsigned char *to = into_image ? here : there, *from = into_image ? there : here;
    uint64_t bytes = (uint64_t)(range->high - range->low);
    if (bytes == 0) return NULL;
    if (range->location == ON_GPU)
        return causeway_comm_copy(to, from, bytes) == 0 ? NULL : causeway_comm_error();
    memcpy(to, from, bytes);
    return NULL;
}

static const char *copy_all(const struct staging_buffer *image, bool into_image) {
    const char *message = NULL;
    for (int at = 0; at < image->count && message == NULL;) {
        // Ranges that follow each other are one copy.
        struct range range = image->ranges[at++];
        if (range.is_flushed) continue;
        for (; at < image->count && range.runs == NULL; at++) {
            const struct range *next = &image->ranges[at];
            if (next->low != range.high || next->location != range.location || next->runs != NULL) break;
            if (next->is_flushed) break;
            range.high = next->high;
        }
        message = copy(image, &range, into_image);
    }
    return message;
}

const char *copy_block(struct staging_buffer *image, int block, bool into_image) {
    if (block < 0 || block >= image->count || image->ranges[block].is_flushed) return NULL;
    if (into_image) causeway_comm_sync_memory(on_its_gpu(image));
    const char *message = copy(image, &image->ranges[block], into_image);
    image->ranges[block].is_flushed = !into_image && message == NULL;
    return message;
}

const char *fill_staging_buffer(struct staging_buffer *image) {
    for (int at = 0; at < image->count; at++) image->ranges[at].is_flushed = false;
    causeway_comm_sync_memory(on_its_gpu(image));
    return image->is_read ? copy_all(image, true) : NULL;
}

const char *flush_staging_buffer(const struct staging_buffer *image) {
    return image->is_written ? copy_all(image, false) : NULL;
}

void drop_staging_buffer(struct staging_buffer *image) {
    if (image == NULL) return;
    if (image->holder != NULL)
        causeway_comm_release_host(image->holder);
    else
        munmap(image->memory, image->bytes);
    forget(image);
}

struct staging_buffer *stage_elements(const void *address, MPI_Count count, MPI_Datatype type, bool is_read,
                                      bool is_written, int *error) {
    struct side side = {.address = (void *)address, .count = count, .type = type};
    struct block block = {0, count, type};
    struct layout layout = {.is_read = is_read, .is_written = is_written, .count = 1, .blocks = &block};
    return make_staging_buffer(&side, &layout, error);
}

// Staging of a whole call, for as long as the MPI makes it.

void drop_staging(struct staging *staging) {
    drop_staging_buffer(staging->out);
    drop_staging_buffer(staging->in);
    free(staging);
}

static const char NO_MEMORY[] = "cannot allocate host memory to stage this call's memory on a GPU";

struct staging *stage(const struct call *call, int *error) {
    struct layout out, in;
    struct staging *staging = NULL;
    *error = MPI_SUCCESS;
    if (mpi_is_gpu_aware() || !causeway_comm_has_driver()) return NULL;
    *error = lay_out(call, &out, &in);
    if (*error == MPI_SUCCESS) {
        staging = calloc(1, sizeof *staging);
        if (staging == NULL) *error = MPI_ERR_NO_MEM;
    } else if (*error != MPI_ERR_NO_MEM) {
        // The MPI reports what is wrong with a call.
        *error = MPI_SUCCESS;
    }
    if (staging != NULL) {
        staging->call = *call;
        staging->name = name_of(call);
        if (causeway_comm_explains()) staging->bytes = bytes_of_layouts(&out, &in);
        staging->out = make_staging_buffer(&call->out, &out, error);
        if (*error == MPI_SUCCESS) staging->in = make_staging_buffer(&call->in, &in, error);
        if (staging->out != NULL) staging->call.out.address = address_of(staging->out);
        if (staging->in != NULL) staging->call.in.address = address_of(staging->in);
        if (*error != MPI_SUCCESS || (staging->out == NULL && staging->in == NULL)) {
            drop_staging(staging);
            staging = NULL;
        }
    }
    free(out.blocks);
    free(in.blocks);
    if (*error == MPI_ERR_NO_MEM) *error = raise_error(call->comm, name_of(call), NO_MEMORY);
    if (*error == MPI_ERR_TYPE) *error = raise_error(call->comm, name_of(call), NO_RUNS);
    return staging;
}

void fill_staging(struct staging *staging) {
    const char *message = staging->out != NULL ? fill_staging_buffer(staging->out) : NULL;
    if (message == NULL && staging->in != NULL) message = fill_staging_buffer(staging->in);
    staging->error = message == NULL ? MPI_SUCCESS : error_code(staging->name, message);
}

static void empty(struct staging *staging) {
    const char *message = staging->in != NULL ? flush_staging_buffer(staging->in) : NULL;
    if (message != NULL) staging->error = error_code(staging->name, message);
}

int end_staging(struct staging *staging, bool is_last) {
    if (staging->error == MPI_SUCCESS) empty(staging);
    int error = staging->error;
    if (is_last) drop_staging(staging);
    return error;
}

bool has_byte_count(const struct staging *staging) {
    return staging->has_count;
}

int start_staging(struct operation *operation) {
    struct staging *staging = operation->staging;
    fill_staging(staging);
    // The program may have freed the types.
    if (causeway_comm_explains())
        causeway_comm_count_call(staging->name, CAUSEWAY_COMM_CALL_NONBLOCKING, 0, false, staging->bytes);
    if (operation->inner != MPI_REQUEST_NULL) return PMPI_Start(&operation->inner);
    return invoke(&staging->call, NON_BLOCKING, MPI_INFO_NULL, &operation->inner);
}
