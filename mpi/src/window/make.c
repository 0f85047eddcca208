// Windows of memory on GPUs: their table and errors, creation and release. All ranks create and release one
// collectively, and all of them learn if one rank cannot.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../collective/collective.h"
#include "window.h"

int window_count;
static struct window *first;

struct window *find_window(MPI_Win handle) {
    if (__atomic_load_n(&window_count, __ATOMIC_RELAXED) == 0) return NULL;
    lock();
    struct window *window = first;
    while (window != NULL && window->handle != handle) window = window->next;
    unlock();
    return window;
}

void add_window(struct window *window) {
    lock();
    window->next = first;
    first = window;
    __atomic_add_fetch(&window_count, 1, __ATOMIC_RELAXED);
    unlock();
}

void forget_window(struct window *window) {
    lock();
    struct window **at = &first;
    while (*at != NULL && *at != window) at = &(*at)->next;
    if (*at != NULL) {
        *at = window->next;
        __atomic_sub_fetch(&window_count, 1, __ATOMIC_RELAXED);
    }
    unlock();
}

int raise_code_in_window(MPI_Win window, int code) {
    PMPI_Win_call_errhandler(window, code);
    return code;
}

int raise_in_window(MPI_Win window, const char *call, const char *message) {
    fprintf(stderr, "causeway: %s: %s\n", call, message);
    return raise_code_in_window(window, error_code(call, message));
}

static const char *const REFUSED =
    "a rank has memory on a GPU that another one cannot map: it is on another host, has no GPU with access "
    "to it, or "
    "the memory is of a kind that no other process can map; copy it to the host first";

// What a rank sends another one about its share.
struct window_info {
    uint64_t bytes, number;
    int64_t unit, mark;
    unsigned char is_on_gpu, is_exported;
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
};

void close_region(struct region *region) {
    causeway_comm_close(region->holder);
    *region = (struct region){0};
}

static void drop_window(struct window *window) {
    for (int rank = 0; rank < window->ranks; rank++) {
        struct share *share = &window->shares[rank];
        for (int at = 0; share->regions != NULL && at < share->count; at++) close_region(&share->regions[at]);
        free(share->regions);
        free(share->copy);
    }
    drop_versions(window);
    pthread_mutex_destroy(&window->mutex);
    free(window->job);
    free(window->exports);
    free(window->shares);
    free(window);
}

static struct window *new_window(MPI_Comm comm, bool is_dynamic) {
    int regions = is_dynamic ? MAX_ATTACHED : 1;
    struct window *window = calloc(1, sizeof *window);
    if (window == NULL) abort();
    window->handle = window->lock_window = MPI_WIN_NULL;
    window->comm = MPI_COMM_NULL;
    window->is_dynamic = is_dynamic;
    PMPI_Comm_rank(comm, &window->rank);
    PMPI_Comm_size(comm, &window->ranks);
    size_t ranks = (size_t)window->ranks;
    window->job = calloc(ranks, sizeof *window->job);
    if (window->job == NULL) abort();
    memcpy(window->job, members_of(comm)->ranks, ranks * sizeof *window->job);
    pthread_mutex_init(&window->mutex, NULL);
    window->exports = calloc(ranks * (size_t)regions, sizeof *window->exports);
    window->shares = calloc(ranks, sizeof *window->shares);
    if (window->exports == NULL || window->shares == NULL) abort();
    for (size_t at = 0; at < ranks; at++) {
        window->shares[at].post_request = MPI_REQUEST_NULL;
        window->shares[at].count = is_dynamic ? regions : 0;
        window->shares[at].regions = calloc((size_t)regions, sizeof(struct region));
        if (window->shares[at].regions == NULL) abort();
    }
    return window;
}

void withdraw_from_all(const struct window *window, uint64_t *numbers) {
    for (int at = 0; at < window->ranks; at++) {
        if (numbers[at] != 0) causeway_comm_withdraw(numbers[at]);
        numbers[at] = 0;
    }
}

bool export_to_all(struct window *window, const void *address, uint64_t bytes, unsigned char *descriptors,
                   uint64_t *numbers) {
    bool is_exported = true;
    for (int at = 0; at < window->ranks && is_exported; at++) {
        if (at == window->rank) continue;
        numbers[at] = causeway_comm_export(window->job[at], address, bytes,
                                           descriptors + at * CAUSEWAY_COMM_DESCRIPTOR);
        is_exported = numbers[at] != 0;
    }
    if (!is_exported) withdraw_from_all(window, numbers);
    return is_exported;
}

// Maps the memory of another rank on a GPU. Whether it could.
static bool open_share(struct window *window, int rank, const struct window_info *window_info) {
    struct share *share = &window->shares[rank];
    share->unit = (MPI_Aint)window_info->unit;
    share->mark = (MPI_Aint)window_info->mark;
    if (!window_info->is_on_gpu) return true;
    if (!window_info->is_exported) return false;
    struct region *region = share->regions;
    *region = (struct region){.number = 1, .bytes = window_info->bytes, .address = window->base};
    if (rank != window->rank)
        region->address = causeway_comm_open(window_info->descriptor, window->base, &region->holder);
    share->count = 1;
    return region->address != NULL;
}

// Sends this rank's share to all ranks, and maps theirs. `can`: whether all ranks could.
static int exchange_parts(struct window *window, MPI_Comm comm, bool *can) {
    size_t ranks = (size_t)window->ranks;
    struct window_info *out = calloc(ranks, sizeof *out), *in = calloc(ranks, sizeof *in);
    unsigned char *descriptors = calloc(ranks, CAUSEWAY_COMM_DESCRIPTOR);
    if (out == NULL || in == NULL || descriptors == NULL) abort();
    bool is_exported = window->is_on_gpu && export_to_all(window, window->base, (uint64_t)window->bytes,
                                                          descriptors, window->exports);
    for (size_t at = 0; at < ranks; at++) {
        out[at].bytes = (uint64_t)window->bytes;
        out[at].unit = window->unit;
        out[at].mark = window->is_dynamic ? (int64_t)(uintptr_t)window->mark : 0;
        out[at].is_on_gpu = window->is_on_gpu;
        out[at].is_exported = is_exported;
        memcpy(out[at].descriptor, descriptors + at * CAUSEWAY_COMM_DESCRIPTOR, CAUSEWAY_COMM_DESCRIPTOR);
    }
    int bytes = (int)sizeof *out, is_open = 1;
    int error = PMPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, comm);
    for (int at = 0; at < window->ranks && error == MPI_SUCCESS; at++)
        if (!open_share(window, at, &in[at])) is_open = 0;
    if (error == MPI_SUCCESS) error = PMPI_Allreduce(MPI_IN_PLACE, &is_open, 1, MPI_INT, MPI_MIN, comm);
    *can = is_open != 0;
    free(out);
    free(in);
    free(descriptors);
    return error;
}

// The communicator, window and table of the interposer for a window.
static int make_own(struct window *window, MPI_Comm comm) {
    int error = PMPI_Comm_split(comm, 0, window->rank, &window->comm);
    if (error != MPI_SUCCESS) return error;
    PMPI_Comm_set_errhandler(window->comm, MPI_ERRORS_RETURN);
    MPI_Aint bytes = window->is_dynamic ? (MPI_Aint)bytes_of_table(window) : (MPI_Aint)sizeof window->mark;
    error = PMPI_Win_allocate(bytes, 1, MPI_INFO_NULL, window->comm, &window->table, &window->lock_window);
    if (error != MPI_SUCCESS) return error;
    PMPI_Win_set_errhandler(window->lock_window, MPI_ERRORS_RETURN);
    // It is not read before.
    memset(window->table, 0, (size_t)bytes);
    PMPI_Win_sync(window->lock_window);
    error = window->is_dynamic ? share_versions(window) : MPI_SUCCESS;
    return error == MPI_SUCCESS ? PMPI_Barrier(window->comm) : error;
}

static void free_own(struct window *window) {
    if (window->lock_window != MPI_WIN_NULL) PMPI_Win_free(&window->lock_window);
    if (window->comm != MPI_COMM_NULL) PMPI_Comm_free(&window->comm);
}

// Hints of equal sizes and units are true of what the program gives, and not of what the MPI's window is made
// of.
static MPI_Info without_sizes(MPI_Info info) {
    static const char *const HINTS[] = {"same_size", "same_disp_unit"};
    if (info == MPI_INFO_NULL) return info;
    MPI_Info copy;
    if (PMPI_Info_dup(info, &copy) != MPI_SUCCESS) return MPI_INFO_NULL;
    for (size_t at = 0; at < sizeof HINTS / sizeof *HINTS; at++) PMPI_Info_set(copy, HINTS[at], "false");
    return copy;
}

static int make_window(void *base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *made,
                       const char *call) {
    struct window *window = new_window(comm, false);
    window->is_on_gpu = is_inaccessible(base, bytes, MPI_BYTE);
    window->base = base;
    window->bytes = bytes;
    window->unit = (int)unit;
    if (window->is_on_gpu) causeway_comm_sync_memory(base);
    bool can;
    int error = exchange_parts(window, comm, &can);
    if (error == MPI_SUCCESS && !can) error = raise_error(comm, call, REFUSED);
    if (error == MPI_SUCCESS) error = make_own(window, comm);
    MPI_Info hints = without_sizes(info);
    if (error == MPI_SUCCESS && window->is_on_gpu)
        error = PMPI_Win_create(window->mark, (MPI_Aint)sizeof window->mark, 1, hints, comm, made);
    else if (error == MPI_SUCCESS)
        error = PMPI_Win_create(base, bytes, (int)unit, hints, comm, made);
    if (hints != MPI_INFO_NULL) PMPI_Info_free(&hints);
    if (error != MPI_SUCCESS) {
        withdraw_from_all(window, window->exports);
        free_own(window);
        drop_window(window);
        return error;
    }
    window->handle = *made;
    add_window(window);
    return error;
}

// Whether the flag is set at any rank. Without a job each rank decides alone.
static int is_any_rank(MPI_Comm comm, bool own, bool *any, bool *is_own_affair) {
    int value = own;
    *is_own_affair = true;
    if (in_job && comm != MPI_COMM_NULL) {
        struct members *members = members_of(comm);
        int is_inter = 0;
        PMPI_Comm_test_inter(comm, &is_inter);
        *is_own_affair = !members->is_supported && (is_inter || members->count != 1);
        if (members->is_supported) {
            int error = PMPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, comm);
            if (error != MPI_SUCCESS) return error;
        }
    }
    *any = value != 0;
    return MPI_SUCCESS;
}

#define WINDOW_OF(suffix, UNIT)                                                                             \
    EXPORT int MPI_Win_create##suffix(void *s, MPI_Aint n, UNIT unit, MPI_Info i, MPI_Comm c, MPI_Win *w) { \
        bool has_gpus, is_own_affair;                                                                       \
        int error = is_any_rank(c, is_inaccessible(s, n, MPI_BYTE), &has_gpus, &is_own_affair);             \
        if (error != MPI_SUCCESS) return error;                                                             \
        if (!has_gpus) return PMPI_Win_create##suffix(s, n, unit, i, c, w);                                 \
        if (is_own_affair) return raise_error(c, "MPI_Win_create" #suffix, REFUSED);                        \
        return make_window(s, n, unit, i, c, w, "MPI_Win_create" #suffix);                                  \
    }

WINDOW_OF(, int)
#if MPI_VERSION >= 4
WINDOW_OF(_c, MPI_Aint)
#endif

EXPORT int MPI_Win_create_dynamic(MPI_Info i, MPI_Comm c, MPI_Win *w) {
    bool has_gpus, is_own_affair, can;
    bool has_driver = causeway_comm_has_driver() && !mpi_is_gpu_aware();
    int error = is_any_rank(c, has_driver, &has_gpus, &is_own_affair);
    if (error == MPI_SUCCESS) error = PMPI_Win_create_dynamic(i, c, w);
    if (error != MPI_SUCCESS || !has_gpus || is_own_affair) return error;
    struct window *window = new_window(c, true);
    window->handle = *w;
    error = PMPI_Win_attach(*w, window->mark, sizeof window->mark);
    if (error == MPI_SUCCESS) error = exchange_parts(window, c, &can);
    if (error == MPI_SUCCESS) error = make_own(window, c);
    if (error == MPI_SUCCESS) {
        add_window(window);
        return error;
    }
    PMPI_Win_free(w);
    free_own(window);
    drop_window(window);
    return error;
}

EXPORT int MPI_Win_get_attr(MPI_Win w, int key, void *value, int *flag) {
    struct window *window = find_window(w);
    if (window == NULL || !window->is_on_gpu) return PMPI_Win_get_attr(w, key, value, flag);
    if (key == MPI_WIN_BASE)
        *(void **)value = window->base;
    else if (key == MPI_WIN_SIZE)
        *(MPI_Aint **)value = &window->bytes;
    else if (key == MPI_WIN_DISP_UNIT)
        *(int **)value = &window->unit;
    else
        return PMPI_Win_get_attr(w, key, value, flag);
    *flag = 1;
    return MPI_SUCCESS;
}

int free_window(MPI_Win *handle) {
    struct window *window = find_window(*handle);
    if (window == NULL) return PMPI_Win_free(handle);
    // No rank uses another rank's memory any more.
    PMPI_Barrier(window->comm);
    end_posts(window);
    if (window->is_dynamic) PMPI_Win_detach(*handle, window->mark);
    forget_window(window);
    int error = PMPI_Win_free(handle);
    int regions = window->is_dynamic ? MAX_ATTACHED : 1;
    for (int at = 0; at < regions; at++) withdraw_from_all(window, &window->exports[at * window->ranks]);
    free_own(window);
    drop_window(window);
    return error;
}
