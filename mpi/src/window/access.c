// RMA calls to mapped memory on another rank's GPU, which are complete when the call returns. Updates
// (MPI_Accumulate and its relatives) are made in host memory.

#include <stdlib.h>
#include <string.h>

#include "../datatype/datatype.h"
#include "../datatype/tree.h"
#include "window.h"

// What a call is made of at the other rank.
struct there {
    struct window *window;
    struct region *region;
    char *address;
    uint64_t bytes;
};

// From the first byte of elements to the last one, from so many bytes behind their address on.
static void span_of(MPI_Count count, MPI_Datatype type, MPI_Count *low, MPI_Count *high) {
    MPI_Count lower, extent, true_lower, true_extent;
    PMPI_Type_get_extent_x(type, &lower, &extent);
    PMPI_Type_get_true_extent_x(type, &true_lower, &true_extent);
    MPI_Count last = (count - 1) * extent;
    *low = true_lower + (last < 0 ? last : 0);
    *high = true_lower + true_extent + (last > 0 ? last : 0);
}

static const char *copy(void *to, const void *from, uint64_t bytes) {
    return causeway_comm_copy(to, from, bytes) == 0 ? NULL : causeway_comm_error();
}

static void *allocate_buffer(uint64_t bytes, const char **message) {
    void *memory = malloc(bytes + 1);
    if (memory == NULL) *message = "cannot allocate host memory for the elements";
    return memory;
}

// Copies elements between this rank's memory and the other one's, which have as many bytes.
static const char *move(void *here, MPI_Count count, MPI_Datatype type, const struct remote *remote,
                        const struct there *there, bool is_put) {
    causeway_comm_sync_memory(here);
    if (is_contiguous(type) && is_contiguous(remote->type))
        return is_put ? copy(there->address, here, there->bytes) : copy(here, there->address, there->bytes);
    const char *message = NULL;
    void *packed = allocate_buffer(there->bytes, &message);
    if (message == NULL)
        message = is_put ? copy_elements(here, count, type, packed, true)
                         : copy_elements(there->address, remote->count, remote->type, packed, true);
    if (message == NULL)
        message = is_put ? copy_elements(there->address, remote->count, remote->type, packed, false)
                         : copy_elements(here, count, type, packed, false);
    free(packed);
    return message;
}

// The predefined type of which a type is made: of several it is the first, since updates take types of one
// alone.
static MPI_Datatype element_type(MPI_Datatype type) {
    if (is_predefined(type)) return type;
    struct contents contents;
    MPI_Datatype found = MPI_DATATYPE_NULL;
    if (!contents_of(type, &contents)) return found;
    for (int at = 0; at < contents.type_count && found == MPI_DATATYPE_NULL; at++)
        if (bytes_of(1, contents.types[at]) > 0) found = element_type(contents.types[at]);
    free_contents(&contents);
    return found;
}

// Whether an operation is a predefined one that reduces: those of programs are not for RMA.
static bool is_for_windows(MPI_Op op) {
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                            MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at] == op) return true;
    return false;
}

static const char *reduce(void *from, void *into, MPI_Count count, MPI_Datatype type, MPI_Op op) {
    enum { BLOCK = 1 << 20 };
    MPI_Count lower, extent;
    PMPI_Type_get_extent_x(type, &lower, &extent);
    for (MPI_Count at = 0; at < count; at += BLOCK) {
        int some = (int)(count - at < BLOCK ? count - at : BLOCK);
        if (PMPI_Reduce_local((char *)from + at * extent, (char *)into + at * extent, some, type, op) !=
            MPI_SUCCESS)
            return "the operation does not support elements of this type";
    }
    return NULL;
}

// Elements with gaps, such as MPI_DOUBLE_INT, as the MPI has them.
static const char *reduce_with_gaps(const void *from, void *into, MPI_Count count, MPI_Datatype type,
                                    MPI_Op op) {
    MPI_Count lower, extent;
    PMPI_Type_get_extent_x(type, &lower, &extent);
    char *ours = calloc((size_t)count, (size_t)extent), *theirs = calloc((size_t)count, (size_t)extent);
    const char *message =
        ours == NULL || theirs == NULL ? "cannot allocate memory to reduce the elements" : NULL;
    if (message == NULL) message = copy_elements(ours, count, type, (void *)from, false);
    if (message == NULL) message = copy_elements(theirs, count, type, into, false);
    if (message == NULL) message = reduce(ours, theirs, count, type, op);
    if (message == NULL) message = copy_elements(theirs, count, type, into, true);
    free(ours);
    free(theirs);
    return message;
}

// Reduces contiguous elements in host memory: into = from, operation, into. Returns the message of an error.
static const char *combine(const void *from, void *into, uint64_t bytes, MPI_Datatype type, MPI_Op op) {
    if (op == MPI_REPLACE) {
        memcpy(into, from, bytes);
        return NULL;
    }
    MPI_Datatype element = element_type(type);
    if (element == MPI_DATATYPE_NULL) return "the datatype is not made of one predefined type";
    MPI_Count count = (MPI_Count)(bytes / bytes_of(1, element));
    if (is_contiguous(element)) return reduce((void *)from, into, count, element, op);
    return reduce_with_gaps(from, into, count, element, op);
}

static const char *write_there(const struct remote *remote, const struct there *there, void *packed) {
    return copy_elements(there->address, remote->count, remote->type, packed, false);
}

static const char *update(const struct remote *remote, const struct there *there) {
    const char *message = NULL;
    void *old = allocate_buffer(there->bytes, &message), *from = allocate_buffer(there->bytes, &message);
    bool is_written = remote->op != MPI_NO_OP;
    if (message == NULL && is_written)
        message = copy_elements((void *)remote->from, remote->from_count, remote->from_type, from, true);
    if (message == NULL) message = copy_elements(there->address, remote->count, remote->type, old, true);
    if (message == NULL && remote->result != NULL)
        message = copy_elements(remote->result, remote->result_count, remote->result_type, old, false);
    if (message == NULL && is_written) message = combine(from, old, there->bytes, remote->type, remote->op);
    if (message == NULL && is_written) message = write_there(remote, there, old);
    free(old);
    free(from);
    return message;
}

static const char *swap(const struct remote *remote, const struct there *there) {
    // The longest predefined type has 32 bytes.
    char old[64], compared[64], from[64];
    if (there->bytes > sizeof old) return "MPI_Compare_and_swap does not support elements of this type";
    const char *message = copy_elements(there->address, 1, remote->type, old, true);
    if (message == NULL) message = copy_elements((void *)remote->compared, 1, remote->type, compared, true);
    if (message == NULL) message = copy_elements((void *)remote->from, 1, remote->type, from, true);
    if (message == NULL && memcmp(old, compared, there->bytes) == 0)
        message = write_there(remote, there, from);
    if (message == NULL) message = copy_elements(remote->result, 1, remote->type, old, false);
    return message;
}

static const char *make(const struct remote *remote, const struct there *there, int *error) {
    if (remote->what == REMOTE_PUT)
        return move((void *)remote->from, remote->from_count, remote->from_type, remote, there, true);
    if (remote->what == REMOTE_GET)
        return move(remote->result, remote->result_count, remote->result_type, remote, there, false);
    *error = lock_target(there->window, remote->to, MPI_LOCK_EXCLUSIVE);
    if (*error != MPI_SUCCESS) return NULL;
    const char *message = remote->what == REMOTE_SWAP ? swap(remote, there) : update(remote, there);
    *error = unlock_target(there->window, remote->to);
    return message;
}

// Arguments that the MPI reports as an error, or with which there is nothing to do.
static bool is_mpis_affair(const struct remote *remote, const struct window *window) {
    bool has_from = remote->what != REMOTE_GET && remote->op != MPI_NO_OP;
    bool has_result = remote->what == REMOTE_GET || remote->result != NULL;
    if (remote->to < 0 || remote->to >= window->ranks || remote->count < 0) return true;
    if (remote->type == MPI_DATATYPE_NULL) return true;
    if (has_from && (remote->from_count < 0 || remote->from_type == MPI_DATATYPE_NULL)) return true;
    return has_result && (remote->result_count < 0 || remote->result_type == MPI_DATATYPE_NULL);
}

// The error of the types and counts of a call, as a code of the MPI.
static int check_elements(const struct remote *remote, const struct window *window, uint64_t bytes) {
    bool has_from = remote->what != REMOTE_GET && remote->op != MPI_NO_OP;
    bool has_result = remote->what == REMOTE_GET || remote->result != NULL;
    int error = check_type(remote->type, window->comm);
    if (error == MPI_SUCCESS && has_from) error = check_type(remote->from_type, window->comm);
    if (error == MPI_SUCCESS && has_result) error = check_type(remote->result_type, window->comm);
    if (error != MPI_SUCCESS) return error;
    if (has_from && bytes_of(remote->from_count, remote->from_type) != bytes) return MPI_ERR_TRUNCATE;
    if (has_result && bytes_of(remote->result_count, remote->result_type) != bytes) return MPI_ERR_TRUNCATE;
    if (remote->what != REMOTE_UPDATE || remote->op == MPI_REPLACE || remote->op == MPI_NO_OP)
        return MPI_SUCCESS;
    MPI_Datatype element = element_type(remote->type);
    bool is_right =
        is_for_windows(remote->op) && (element == MPI_DATATYPE_NULL || can_reduce(remote->op, element));
    return is_right ? MPI_SUCCESS : MPI_ERR_OP;
}

// The range of the call's elements in a region; false if they are not in it.
static bool find_target(const struct remote *remote, const struct region *region, MPI_Count offset,
                        struct there *there) {
    MPI_Count low, high;
    span_of(remote->count, remote->type, &low, &high);
    if (offset + low < 0 || offset + high > (MPI_Count)region->bytes) return false;
    there->address = region->address + offset;
    return true;
}

static int access_region(const struct remote *remote, struct window *window, struct region *region,
                         MPI_Count offset, const char *call) {
    struct there there = {.window = window, .region = region, .bytes = bytes_of(remote->count, remote->type)};
    int error = check_elements(remote, window, there.bytes);
    if (error != MPI_SUCCESS) return raise_code_in_window(window->handle, error);
    error = enter(window, remote->to);
    if (error != MPI_SUCCESS || there.bytes == 0) return error;
    if (!find_target(remote, region, offset, &there))
        return raise_code_in_window(window->handle, MPI_ERR_RMA_RANGE);
    const char *message = make(remote, &there, &error);
    if (message != NULL) return raise_in_window(window->handle, call, message);
    if (region->holder != NULL) causeway_comm_count_open(region->holder, there.bytes);
    return error;
}

bool access_directly(const struct remote *remote, MPI_Win handle, const char *call, int *error) {
    struct window *window = find_window(handle);
    if (window == NULL || is_mpis_affair(remote, window)) return false;
    struct share *share = &window->shares[remote->to];
    if (!window->is_dynamic) {
        if (share->count == 0) return false;
        *error = access_region(remote, window, share->regions, (MPI_Count)remote->at * share->unit, call);
        return true;
    }
    MPI_Count low = 0, high;
    if (bytes_of(remote->count, remote->type) > 0) span_of(remote->count, remote->type, &low, &high);
    const char *message = NULL;
    uint64_t first = (uint64_t)remote->at + (uint64_t)low;
    struct region *region = find_attached(window, remote->to, first, &message);
    if (message != NULL) *error = raise_in_window(handle, call, message);
    if (message != NULL || region == NULL) return message != NULL;
    *error = access_region(remote, window, region, (MPI_Count)((uint64_t)remote->at - region->start), call);
    return true;
}
