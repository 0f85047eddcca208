// Buffers of the program, and what stands for them on the GPU.

#include "on_gpu.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gpu.h"

// Longer ones stay where they are: types whose gaps span much of the address space are among them.
enum { MAX_BYTES = 1 << 28 };

struct moved {
    unsigned char *host, *device;
    // What there is of the buffer: bytes from `low` behind its address on. The address itself is among them.
    MPI_Aint low;
    size_t bytes;
    enum memory kind;
    bool is_written;
    // What was brought to the GPU.
    unsigned char *image;
};

static unsigned long moved_count, stayed_count;
static unsigned random_state;

static void take_gpu(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool is_started;
    static __thread bool has_context;
    if (has_context) return;
    pthread_mutex_lock(&mutex);
    if (!is_started) {
        gpu_start();
        random_state = (unsigned)getpid();
    }
    is_started = true;
    pthread_mutex_unlock(&mutex);
    gpu_use();
    has_context = true;
}

static enum memory some_kind(void) {
    const char *wanted = getenv("ON_GPU_MEMORY");
    if (wanted == NULL || strcmp(wanted, "mixed") != 0) return DEVICE;
    return (enum memory)(rand_r(&random_state) % MEMORIES);
}

// Widens the range of bytes by a block's. False for what only the MPI can tell an error of.
static bool widen(const struct block *block, MPI_Count *low, MPI_Count *high) {
    MPI_Count lower, extent, true_lower, true_extent, size;
    if (block->type == MPI_DATATYPE_NULL || block->count > INT_MAX) return false;
    PMPI_Type_get_extent_x(block->type, &lower, &extent);
    PMPI_Type_get_true_extent_x(block->type, &true_lower, &true_extent);
    PMPI_Type_size_x(block->type, &size);
    if (size <= 0) return true;
    if (size * block->count > MAX_BYTES) return false;
    MPI_Count last = (block->count - 1) * extent, start = block->offset + true_lower;
    MPI_Count from = start + (last < 0 ? last : 0), to = start + true_extent + (last > 0 ? last : 0);
    if (from < *low) *low = from;
    if (to > *high) *high = to;
    return true;
}

static struct moved *stay(struct layout *layout, bool is_nothing) {
    if (!is_nothing) __atomic_add_fetch(&stayed_count, 1, __ATOMIC_RELAXED);
    free(layout->blocks);
    return NULL;
}

struct moved *move(const void *address, struct layout layout) {
    MPI_Count low = 0, high = 0;
    bool is_nothing = layout.count == 0 || address == NULL || address == MPI_IN_PLACE;
    bool can = !is_nothing && address != MPI_BOTTOM;
    for (int at = 0; at < layout.count && can; at++) can = widen(&layout.blocks[at], &low, &high);
    if (!can || low == high || high - low > MAX_BYTES) return stay(&layout, is_nothing);
    struct moved *moved = calloc(1, sizeof *moved);
    if (moved == NULL) abort();
    *moved = (struct moved){.host = (unsigned char *)address,
                            .low = (MPI_Aint)low,
                            .bytes = (size_t)(high - low) + 1,
                            .kind = some_kind(),
                            .is_written = layout.is_written};
    free(layout.blocks);
    take_gpu();
    moved->image = malloc(moved->bytes);
    if (moved->image == NULL) abort();
    moved->device = gpu_allocate(moved->kind, moved->bytes);
    __atomic_add_fetch(moved->kind == HOST ? &stayed_count : &moved_count, 1, __ATOMIC_RELAXED);
    bring_up(moved);
    return moved;
}

struct moved *move_elements(const void *address, MPI_Count count, MPI_Datatype type, bool is_written) {
    struct layout layout = {.is_written = is_written};
    if (count > 0) {
        layout.count = 1;
        layout.blocks = malloc(sizeof *layout.blocks);
        if (layout.blocks == NULL) abort();
        *layout.blocks = (struct block){0, count, type};
    }
    return move(address, layout);
}

void *moved_address(const struct moved *moved, const void *address) {
    if (moved == NULL) return (void *)address;
    return moved->device - moved->low + ((const unsigned char *)address - moved->host);
}

bool lies_within(const struct moved *moved, const void *address, const struct layout *layout) {
    if (moved == NULL || layout->count == 0 || address == MPI_IN_PLACE) return false;
    MPI_Count distance = (const unsigned char *)address - moved->host, low = 0, high = 0;
    for (int at = 0; at < layout->count; at++)
        if (!widen(&layout->blocks[at], &low, &high)) return false;
    return distance + low >= moved->low && distance + high < moved->low + (MPI_Count)moved->bytes;
}

// Bytes of a buffer's range, in this process and on the GPU.
struct part {
    unsigned char *host, *image, *device;
    size_t bytes;
};

static struct part part_of(const struct moved *moved, size_t from, size_t bytes) {
    // A byte more is on the GPU than the program has.
    size_t all = moved->bytes - 1, start = from - (size_t)moved->low, end = start + bytes;
    if (start > all) start = all;
    if (end > all) end = all;
    return (struct part){moved->host + moved->low + start, moved->image + start, moved->device + start,
                         end - start};
}

// Takes all from the first element to the last, and what is between them. A program's buffer may end before
// its type does, if less comes than that.
static void take_up(const struct part *part) {
    memset(part->image, 0xa5, part->bytes);
    struct iovec to = {part->image, part->bytes}, from = {part->host, part->bytes};
    process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (part->bytes > 0) gpu_copy(part->device, part->image, part->bytes);
}

// What has not changed is not written: other messages may have brought it, or the program.
static void take_down(const struct part *part) {
    unsigned char *found = malloc(part->bytes + 1);
    if (found == NULL) abort();
    if (part->bytes > 0) gpu_copy(found, part->device, part->bytes);
    for (size_t at = 0; at < part->bytes; at++)
        if (found[at] != part->image[at]) part->host[at] = found[at];
    free(found);
}

void bring_up(struct moved *moved) {
    if (moved == NULL) return;
    take_gpu();
    struct part all = part_of(moved, (size_t)moved->low, moved->bytes - 1);
    take_up(&all);
}

void bring_down(struct moved *moved) {
    if (moved == NULL || !moved->is_written) return;
    take_gpu();
    struct part all = part_of(moved, (size_t)moved->low, moved->bytes - 1);
    take_down(&all);
}

void bring_up_part(struct moved *moved, size_t from, size_t bytes) {
    // Elements that reach in front of their address are brought with all others.
    if (moved == NULL || moved->low != 0) {
        bring_up(moved);
        return;
    }
    take_gpu();
    struct part part = part_of(moved, from, bytes);
    take_up(&part);
}

void bring_down_part(struct moved *moved, size_t from, size_t bytes) {
    if (moved == NULL || moved->low != 0 || !moved->is_written) {
        bring_down(moved);
        return;
    }
    take_gpu();
    struct part part = part_of(moved, from, bytes);
    take_down(&part);
}

void drop_moved(struct moved *moved) {
    if (moved == NULL) return;
    take_gpu();
    gpu_free(moved->kind, moved->device, moved->bytes);
    free(moved->image);
    free(moved);
}

void end_moved(struct moved *moved) {
    bring_down(moved);
    drop_moved(moved);
}

void write_report(void) {
    const char *name = getenv("ON_GPU_REPORT");
    FILE *file = name == NULL ? NULL : fopen(name, "a");
    if (file == NULL) return;
    fprintf(file, "%lu %lu\n", moved_count, stayed_count);
    fclose(file);
}
