// Dynamic windows of memory on GPUs: each rank has a table of its attached memory, which the others read in
// each call in which they do not know that it is unchanged, since memory may be attached and detached at any
// time.

#include <stdlib.h>
#include <string.h>

#include "../datatype/datatype.h"
#include "window.h"

static const char *const TABLE_FULL =
    "a window has at most 32 attached regions on GPUs: attach fewer, larger ones";
static const char *const NOT_EXPORTED = "other ranks of the window cannot map this memory on a GPU: they are "
                                        "on another host, or it is of a kind that no "
                                        "other process can map; copy it to the host first";

// The table of attached memory; it is followed by the descriptors, one for each rank of each entry.
struct table {
    // The last number that was given.
    uint64_t last;
    struct entry {
        uint64_t number, start, bytes;
    } entries[MAX_ATTACHED];
};

// Whole pages: where MPICH 4.0.2 allocates an odd multiple of 8 bytes, ranks read each other's 8 bytes too
// early.
uint64_t bytes_of_table(const struct window *window) {
    uint64_t bytes =
        sizeof(struct table) + (uint64_t)MAX_ATTACHED * (uint64_t)window->ranks * CAUSEWAY_COMM_DESCRIPTOR;
    return (bytes + 4095) / 4096 * 4096;
}

static uint64_t descriptors_offset(const struct window *window, int entry) {
    return sizeof(struct table) + (uint64_t)entry * (uint64_t)window->ranks * CAUSEWAY_COMM_DESCRIPTOR;
}

static int find_entry(const struct table *table, uint64_t address) {
    for (int at = 0; at < MAX_ATTACHED; at++) {
        const struct entry *entry = &table->entries[at];
        if (entry->number != 0 && address >= entry->start && address - entry->start < entry->bytes) return at;
    }
    return -1;
}

// Reads of a rank's table.
static int read_table(struct window *window, int of, uint64_t offset, void *to, uint64_t bytes) {
    int error =
        PMPI_Get(to, (int)bytes, MPI_BYTE, of, (MPI_Aint)offset, (int)bytes, MPI_BYTE, window->lock_window);
    return error == MPI_SUCCESS ? PMPI_Win_flush(of, window->lock_window) : error;
}

// Closes regions of a rank that are not attached any more.
static void close_detached(struct share *share, const struct table *table) {
    for (int at = 0; at < MAX_ATTACHED; at++)
        if (share->regions[at].number != table->entries[at].number) close_region(&share->regions[at]);
}

// With the rank locked.
static struct region *open_entry(struct window *window, int of, const struct table *table, int entry,
                                 const char **message) {
    struct region *region = &window->shares[of].regions[entry];
    if (region->number != 0) return region;
    unsigned char descriptor[CAUSEWAY_COMM_DESCRIPTOR];
    uint64_t offset = descriptors_offset(window, entry) + (uint64_t)window->rank * sizeof descriptor;
    if (read_table(window, of, offset, descriptor, sizeof descriptor) != MPI_SUCCESS) {
        *message = "cannot read the table of attached memory of another rank";
        return NULL;
    }
    void *holder = NULL;
    char *address = causeway_comm_open(descriptor, NULL, &holder);
    if (address == NULL) {
        *message = causeway_comm_error();
        return NULL;
    }
    const struct entry *row = &table->entries[entry];
    *region = (struct region){row->number, row->start, row->bytes, address, holder};
    return region;
}

// Looks in the copy of a rank's table. Whether that is the current one, and the region, if there is one, is
// open.
static bool find_in_copy(struct window *window, int to, uint64_t address, struct region **found) {
    struct share *share = &window->shares[to];
    *found = NULL;
    uint64_t version = version_of(window, to);
    // Nothing has ever been attached.
    if (version == 0) return true;
    if (version == UNKNOWN_VERSION) return false;
    pthread_mutex_lock(&window->mutex);
    bool is_current = share->copy != NULL && share->version == version;
    int entry = is_current ? find_entry(share->copy, address) : -1;
    if (entry >= 0) {
        *found = &share->regions[entry];
        is_current = (*found)->number == share->copy->entries[entry].number;
    }
    pthread_mutex_unlock(&window->mutex);
    return is_current;
}

// With the rank locked. The version is one from before the table was read.
static void keep_copy(struct share *share, const struct table *table, uint64_t version) {
    if (share->copy == NULL) share->copy = malloc(sizeof *share->copy);
    if (share->copy == NULL) abort();
    *share->copy = *table;
    share->version = version;
}

struct region *find_attached(struct window *window, int to, uint64_t address, const char **message) {
    struct table table;
    struct region *found = NULL;
    if (to == window->rank) {
        int entry = find_entry(window->table, address);
        return entry < 0 ? NULL : &window->shares[to].regions[entry];
    }
    if (find_in_copy(window, to, address, &found)) return found;
    found = NULL;
    uint64_t version = version_of(window, to);
    int error = lock_target(window, to, MPI_LOCK_SHARED);
    if (error == MPI_SUCCESS) {
        error = read_table(window, to, 0, &table, sizeof table);
        int entry = error == MPI_SUCCESS ? find_entry(&table, address) : -1;
        if (error == MPI_SUCCESS) {
            close_detached(&window->shares[to], &table);
            keep_copy(&window->shares[to], &table, version);
        }
        if (entry >= 0) found = open_entry(window, to, &table, entry, message);
        unlock_target(window, to);
    }
    if (error != MPI_SUCCESS) *message = "cannot read the table of attached memory of another rank";
    return found;
}

// Writes an entry of this rank.
static int write_entry(struct window *window, int at, const struct entry *entry,
                       const unsigned char *descriptors) {
    struct table *table = window->table;
    int error = lock_target(window, window->rank, MPI_LOCK_EXCLUSIVE);
    if (error != MPI_SUCCESS) return error;
    if (descriptors != NULL)
        memcpy((char *)window->table + descriptors_offset(window, at), descriptors,
               (size_t)window->ranks * CAUSEWAY_COMM_DESCRIPTOR);
    table->entries[at] = *entry;
    if (entry->number > table->last) table->last = entry->number;
    error = unlock_target(window, window->rank);
    change_version(window);
    return error;
}

static int attach(struct window *window, void *start, MPI_Aint bytes) {
    struct table *table = window->table;
    int at = 0;
    while (at < MAX_ATTACHED && table->entries[at].number != 0) at++;
    if (at == MAX_ATTACHED) return raise_in_window(window->handle, "MPI_Win_attach", TABLE_FULL);
    unsigned char *descriptors = calloc((size_t)window->ranks, CAUSEWAY_COMM_DESCRIPTOR);
    uint64_t *numbers = &window->exports[at * window->ranks];
    bool is_exported =
        descriptors != NULL && export_to_all(window, start, (uint64_t)bytes, descriptors, numbers);
    int error = MPI_SUCCESS;
    if (is_exported) {
        struct entry entry = {table->last + 1, (uint64_t)(uintptr_t)start, (uint64_t)bytes};
        window->shares[window->rank].regions[at] =
            (struct region){entry.number, entry.start, entry.bytes, start, NULL};
        error = write_entry(window, at, &entry, descriptors);
    }
    free(descriptors);
    return is_exported ? error : raise_in_window(window->handle, "MPI_Win_attach", NOT_EXPORTED);
}

EXPORT int MPI_Win_attach(MPI_Win w, void *s, MPI_Aint n) {
    if (!is_inaccessible(s, n, MPI_BYTE)) return PMPI_Win_attach(w, s, n);
    struct window *window = find_window(w);
    if (window == NULL || !window->is_dynamic) return raise_in_window(w, "MPI_Win_attach", NOT_EXPORTED);
    return attach(window, s, n);
}

EXPORT int MPI_Win_detach(MPI_Win w, const void *s) {
    struct window *window = find_window(w);
    struct table *table = window != NULL ? window->table : NULL;
    for (int at = 0; table != NULL && window->is_dynamic && at < MAX_ATTACHED; at++) {
        struct entry *entry = &table->entries[at];
        if (entry->number == 0 || entry->start != (uint64_t)(uintptr_t)s) continue;
        int error = write_entry(window, at, &(struct entry){0}, NULL);
        withdraw_from_all(window, &window->exports[at * window->ranks]);
        window->shares[window->rank].regions[at] = (struct region){0};
        return error;
    }
    return PMPI_Win_detach(w, s);
}
