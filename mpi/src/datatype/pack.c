// Packing and unpacking of strided elements on GPUs and in host memory, and MPI_Pack and MPI_Unpack of memory
// on GPUs.

#include <stdlib.h>
#include <string.h>

#include "datatype.h"
#include "tree.h"

// As a table on the GPU more runs take as many bytes, times 24. Elements of more are copied by one such table
// after the other.
enum { MAX_RUNS = 1 << 20 };

// Memory of a GPU, and of the host, has whole pages of so many bytes at least.
enum { PAGE = 4096 };

// The runs of a type: an attribute of it. The type may be freed while an operation that uses them is in
// flight.
struct runs {
    // All of them, or none if they are too many.
    struct causeway_comm_runs list;
    struct tree *tree;
    // Some gap is so long that the memory after it may be of another kind.
    bool is_wide;
    // The MPI has been queried whether the type may be sent.
    bool is_committed;
    int holders;
};

// A list of runs that grows, and the end of the last one.
struct flat {
    struct causeway_comm_run *runs;
    uint64_t count, capacity;
    int64_t end;
    bool is_wide;
};

static bool add_run(void *context, int64_t offset, uint64_t bytes) {
    struct flat *flat = context;
    if (flat->count > 0 && flat->end == offset) {
        flat->runs[flat->count - 1].bytes += bytes;
        flat->end += (int64_t)bytes;
        return true;
    }
    if (flat->count == MAX_RUNS) return false;
    if (flat->count == flat->capacity) {
        uint64_t capacity = flat->capacity > 0 ? 2 * flat->capacity : 16;
        struct causeway_comm_run *runs = realloc(flat->runs, capacity * sizeof *runs);
        if (runs == NULL) return false;
        flat->runs = runs;
        flat->capacity = capacity;
    }
    if (flat->count > 0 && llabs(offset - flat->end) >= PAGE) flat->is_wide = true;
    flat->runs[flat->count++] = (struct causeway_comm_run){offset, bytes};
    flat->end = offset + (int64_t)bytes;
    return true;
}

static uint64_t new_id(void) {
    static uint64_t last;
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

void drop_runs(struct runs *runs) {
    lock();
    bool is_last = --runs->holders == 0;
    unlock();
    if (!is_last) return;
    causeway_comm_forget_runs(runs->list.id);
    free((void *)runs->list.runs);
    drop_tree(runs->tree);
    free(runs);
}

static int forget(MPI_Datatype type, int key, void *runs, void *unused) {
    (void)type, (void)key, (void)unused;
    drop_runs(runs);
    return MPI_SUCCESS;
}

static struct runs *find_runs(MPI_Datatype type) {
    struct runs *runs = calloc(1, sizeof *runs);
    struct tree *tree = runs != NULL ? tree_of(type) : NULL;
    if (tree == NULL) {
        free(runs);
        return NULL;
    }
    struct flat flat = {0};
    bool is_whole = visit_runs(tree, 0, add_run, &flat);
    if (!is_whole) free(flat.runs);
    bool is_spread = flat.count > 0 && llabs(tree->extent + flat.runs[0].offset - flat.end) >= PAGE;
    *runs = (struct runs){
        .list = {new_id(), is_whole ? flat.count : 0, is_whole ? flat.runs : NULL, tree->extent},
        .tree = tree,
        .is_wide = !is_whole || flat.is_wide || is_spread,
        .holders = 1,
    };
    return runs;
}

static int key = MPI_KEYVAL_INVALID;

struct runs *hold_runs(MPI_Datatype type) {
    lock();
    if (key == MPI_KEYVAL_INVALID) PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &key, NULL);
    struct runs *runs = NULL;
    int is_known = 0;
    PMPI_Type_get_attr(type, key, &runs, &is_known);
    if (!is_known) {
        runs = find_runs(type);
        if (runs != NULL) PMPI_Type_set_attr(type, key, runs);
    }
    if (runs != NULL) runs->holders++;
    unlock();
    return runs;
}

// Without the attribute: MPICH 4.0.2 frees the type from inside its progress when the last message of it is
// complete, and would call `forget` there, without its lock (attributes.c). A program may have several
// references of one type: for those that are left the runs are determined again.
int free_type(MPI_Datatype *type) {
    void *runs;
    int is_known = 0;
    if (type != NULL && *type != MPI_DATATYPE_NULL) {
        lock();
        if (key != MPI_KEYVAL_INVALID) PMPI_Type_get_attr(*type, key, &runs, &is_known);
        if (is_known) PMPI_Type_delete_attr(*type, key);
        unlock();
    }
    return PMPI_Type_free(type);
}

EXPORT int MPI_Type_free(MPI_Datatype *type) {
    return free_type(type);
}

bool has_no_gaps(const struct runs *runs) {
    return is_dense(runs->tree);
}

bool may_be_whole(const struct runs *runs, uint64_t bytes) {
    return runs->tree->unit == 0 || bytes % runs->tree->unit == 0;
}

int check_type(MPI_Datatype type, MPI_Comm comm) {
    if (type != MPI_DATATYPE_NULL && is_predefined(type)) return MPI_SUCCESS;
    struct runs *runs = type != MPI_DATATYPE_NULL ? hold_runs(type) : NULL;
    int error = MPI_SUCCESS;
    // A receive from MPI_PROC_NULL: its arguments are checked, but its memory is not.
    char nothing;
    if (runs == NULL || !runs->is_committed)
        error = PMPI_Recv(&nothing, 1, type, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE);
    if (runs != NULL) {
        runs->is_committed = error == MPI_SUCCESS;
        drop_runs(runs);
    }
    return error;
}

const char NO_RUNS[] = "the datatype is made in an unknown way, or there is no memory to flatten it";

// A cursor over elements: the remaining bytes, the packed address, and how they are copied.
struct cursor {
    char *typed, *packed;
    uint64_t remaining;
    bool is_pack;
    const char *message;
};

static uint64_t advance(struct cursor *cursor, uint64_t bytes) {
    uint64_t some = bytes < cursor->remaining ? bytes : cursor->remaining;
    cursor->remaining -= some;
    cursor->packed += some;
    return some;
}

// Visits the runs of as many elements as there are bytes.
static void visit_elements(const struct runs *runs, struct cursor *cursor, visit_run *visit, void *context) {
    if (runs->tree->bytes == 0) return;
    for (int64_t base = 0; cursor->remaining > 0 && cursor->message == NULL; base += runs->tree->extent)
        visit_runs(runs->tree, base, visit, context);
}

static bool copy_on_host(void *context, int64_t offset, uint64_t bytes) {
    struct cursor *cursor = context;
    char *packed = cursor->packed, *element = (char *)((uintptr_t)cursor->typed + (uintptr_t)offset);
    uint64_t some = advance(cursor, bytes);
    memcpy(cursor->is_pack ? packed : element, cursor->is_pack ? element : packed, some);
    return cursor->remaining > 0;
}

void copy_runs_on_host(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack) {
    struct cursor cursor = {typed, packed, bytes, is_pack, NULL};
    visit_elements(runs, &cursor, copy_on_host, &cursor);
}

static bool copy_anywhere(void *context, int64_t offset, uint64_t bytes) {
    struct cursor *cursor = context;
    char *packed = cursor->packed, *element = (char *)((uintptr_t)cursor->typed + (uintptr_t)offset);
    if (!causeway_comm_on_gpu(element)) return copy_on_host(context, offset, bytes);
    uint64_t some = advance(cursor, bytes);
    int done =
        causeway_comm_copy(cursor->is_pack ? packed : element, cursor->is_pack ? element : packed, some);
    if (done != 0) cursor->message = causeway_comm_error();
    return done == 0 && cursor->remaining > 0;
}

const char *copy_runs_anywhere(const struct runs *runs, void *typed, void *packed, uint64_t bytes,
                               bool is_pack) {
    struct cursor cursor = {typed, packed, bytes, is_pack, NULL};
    visit_elements(runs, &cursor, copy_anywhere, &cursor);
    return cursor.message;
}

// Runs that are copied by one table.
struct batch {
    struct flat flat;
    struct cursor cursor;
    uint64_t bytes;
};

static void flush(struct batch *batch) {
    struct cursor *cursor = &batch->cursor;
    struct causeway_comm_runs list = {new_id(), batch->flat.count, batch->flat.runs, 0};
    if (batch->bytes > 0 && cursor->message == NULL) {
        int done = causeway_comm_copy_runs(&list, cursor->typed, cursor->packed - batch->bytes, batch->bytes,
                                           cursor->is_pack);
        if (done != 0) cursor->message = causeway_comm_error();
        causeway_comm_forget_runs(list.id);
    }
    batch->flat.count = batch->bytes = 0;
}

static bool copy_in_batches(void *context, int64_t offset, uint64_t bytes) {
    struct batch *batch = context;
    uint64_t some = bytes < batch->cursor.remaining ? bytes : batch->cursor.remaining;
    if (!add_run(&batch->flat, offset, some)) {
        flush(batch);
        if (batch->cursor.message == NULL && !add_run(&batch->flat, offset, some))
            batch->cursor.message = NO_RUNS;
        if (batch->cursor.message != NULL) return false;
    }
    batch->bytes += advance(&batch->cursor, some);
    return batch->cursor.remaining > 0;
}

const char *copy_runs(const struct runs *runs, void *typed, void *packed, uint64_t bytes, bool is_pack) {
    if (bytes == 0) return NULL;
    if (runs->list.runs != NULL)
        return causeway_comm_copy_runs(&runs->list, typed, packed, bytes, is_pack) == 0
                   ? NULL
                   : causeway_comm_error();
    struct batch batch = {.cursor = {typed, packed, bytes, is_pack, NULL}};
    visit_elements(runs, &batch.cursor, copy_in_batches, &batch);
    flush(&batch);
    free(batch.flat.runs);
    return batch.cursor.message;
}

MPI_Aint first_of(MPI_Datatype type) {
    MPI_Aint lower = 0, extent;
    PMPI_Type_get_true_extent(type, &lower, &extent);
    return lower;
}

// The kinds of memory of some runs; the last page that was queried.
struct kinds {
    const void *address;
    uint64_t page;
    bool on_gpu, in_host;
};

static bool query_run(void *context, int64_t offset, uint64_t bytes) {
    struct kinds *kinds = context;
    uintptr_t address = (uintptr_t)kinds->address + (uintptr_t)offset;
    (void)bytes;
    if (address / PAGE == kinds->page) return true;
    kinds->page = address / PAGE;
    if (causeway_comm_on_gpu((const void *)address))
        kinds->on_gpu = true;
    else
        kinds->in_host = true;
    return !kinds->on_gpu || !kinds->in_host;
}

enum memory_location location_of(const void *address, MPI_Count count, MPI_Datatype type) {
    if (!causeway_comm_has_driver()) return IN_HOST;
    struct runs *runs = NULL;
    if (count > 0 && type != MPI_DATATYPE_NULL && !is_predefined(type)) runs = hold_runs(type);
    struct kinds kinds = {.address = address, .page = UINT64_MAX};
    if (runs == NULL) {
        query_run(&kinds, 0, 1);
    } else {
        // Elements without long gaps are all in the memory of the first one.
        MPI_Count elements = runs->is_wide ? count : 1;
        bool is_one = true;
        for (MPI_Count at = 0; at < elements && is_one; at++) {
            if (runs->is_wide || runs->list.count == 0)
                is_one = visit_runs(runs->tree, at * runs->tree->extent, query_run, &kinds);
            else
                query_run(&kinds, runs->list.runs[0].offset, 1);
        }
        drop_runs(runs);
    }
    if (kinds.on_gpu && kinds.in_host) return IN_BOTH;
    return kinds.on_gpu ? ON_GPU : IN_HOST;
}

// MPI_Pack and MPI_Unpack. The result is the same as of host memory: the bytes of the elements, contiguous.

// Elements that are not entirely on a GPU, through host memory if the packed ones are on one.
static const char *copy_by_host(const struct runs *runs, enum memory_location location, void *typed,
                                void *packed, uint64_t bytes, bool is_pack) {
    void *memory = causeway_comm_on_gpu(packed) ? malloc(bytes + 1) : packed;
    if (memory == NULL) return "cannot allocate memory to pack the elements";
    const char *message = NULL;
    if (memory != packed && !is_pack && causeway_comm_copy(memory, packed, bytes) != 0)
        message = causeway_comm_error();
    if (message == NULL && location == IN_BOTH)
        message = copy_runs_anywhere(runs, typed, memory, bytes, is_pack);
    else if (message == NULL)
        copy_runs_on_host(runs, typed, memory, bytes, is_pack);
    if (message == NULL && memory != packed && is_pack && causeway_comm_copy(packed, memory, bytes) != 0)
        message = causeway_comm_error();
    if (memory != packed) free(memory);
    return message;
}

const char *copy_elements(void *typed, MPI_Count count, MPI_Datatype type, void *packed, bool is_pack) {
    uint64_t bytes = bytes_of(count, type);
    enum memory_location location = location_of(typed, count, type);
    if (bytes == 0) return NULL;
    if (location != IN_HOST) causeway_comm_sync_memory(typed);
    if (is_contiguous(type)) {
        void *to = is_pack ? packed : typed, *from = is_pack ? typed : packed;
        if (location == ON_GPU || causeway_comm_on_gpu(packed))
            return causeway_comm_copy(to, from, bytes) == 0 ? NULL : causeway_comm_error();
        memcpy(to, from, bytes);
        return NULL;
    }
    struct runs *runs = hold_runs(type);
    if (runs == NULL) return NO_RUNS;
    const char *message = location == ON_GPU ? copy_runs(runs, typed, packed, bytes, is_pack)
                                             : copy_by_host(runs, location, typed, packed, bytes, is_pack);
    drop_runs(runs);
    return message;
}

// Packs into `packed`, or unpacks from it, at a position that moves on.
static int pack(const char *call, void *typed, MPI_Count count, MPI_Datatype type, void *packed,
                MPI_Count size, MPI_Count *position, MPI_Comm comm, bool is_pack) {
    uint64_t bytes = bytes_of(count, type);
    if (count < 0 || *position < 0 || (uint64_t)size < (uint64_t)*position + bytes) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
        return MPI_ERR_TRUNCATE;
    }
    const char *message = copy_elements(typed, count, type, (char *)packed + *position, is_pack);
    if (message != NULL) return raise_error(comm, call, message);
    *position += (MPI_Count)bytes;
    return MPI_SUCCESS;
}

#define PACK_CALLS(suffix, number)                                                                        \
    EXPORT int MPI_Pack##suffix(const void *in, number count, MPI_Datatype type, void *out, number size,  \
                                number *position, MPI_Comm comm) {                                        \
        if (!is_on_gpu(in, count, type) && !causeway_comm_on_gpu(out))                                    \
            return PMPI_Pack##suffix(in, count, type, out, size, position, comm);                         \
        MPI_Count at = *position;                                                                         \
        int error = pack("MPI_Pack", (void *)in, count, type, out, size, &at, comm, true);                \
        /* It is in the room, which has the same type. */                                                 \
        *position = (number)at;                                                                           \
        return error;                                                                                     \
    }                                                                                                     \
    EXPORT int MPI_Unpack##suffix(const void *in, number size, number *position, void *out, number count, \
                                  MPI_Datatype type, MPI_Comm comm) {                                     \
        if (!is_on_gpu(out, count, type) && !causeway_comm_on_gpu(in))                                    \
            return PMPI_Unpack##suffix(in, size, position, out, count, type, comm);                       \
        MPI_Count at = *position;                                                                         \
        int error = pack("MPI_Unpack", out, count, type, (void *)in, size, &at, comm, false);             \
        *position = (number)at;                                                                           \
        return error;                                                                                     \
    }

PACK_CALLS(, int)
#if MPI_VERSION >= 4
PACK_CALLS(_c, MPI_Count)
#endif
