// Calls that all ranks make while messages are under way: collective, one-sided and of files.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_calls.h"

static void reduce(struct group *group) {
    size_t count = below(group, 40000);
    uint64_t seed = below(group, 1000);
    struct numbers in = take(some_memory(group), count);
    struct numbers out = take(some_memory(group), count);
    fill_with(&in, group->rank, seed);
    MPI_Request request;
    if (below(group, 2)) {
        MPI_Allreduce(in.there, out.there, (int)count, MPI_INT, MPI_MAX, group->comm);
    } else {
        MPI_Iallreduce(in.there, out.there, (int)count, MPI_INT, MPI_MAX, group->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    must_be(group, &out, group->ranks - 1, seed, "MPI_Allreduce");
    give_back(&in);
    give_back(&out);
}

static void broadcast(struct group *group) {
    size_t count = below(group, 60000);
    uint64_t seed = below(group, 1000);
    int root = (int)below(group, (size_t)group->ranks);
    struct numbers numbers = take(some_memory(group), count);
    if (group->rank == root) fill_with(&numbers, root, seed);
    MPI_Bcast(numbers.there, (int)count, MPI_INT, root, group->comm);
    must_be(group, &numbers, root, seed, "MPI_Bcast");
    give_back(&numbers);
}

static void communicators(struct group *group) {
    MPI_Comm other;
    if (below(group, 2))
        MPI_Comm_dup(group->comm, &other);
    else
        MPI_Comm_split(group->comm, 0, group->rank, &other);
    MPI_Comm_free(&other);
}

// Memory for windows, of one kind at all ranks or of several. A rank without a GPU reaches that of the host
// only.
static enum memory of_windows(struct group *group) {
    static const enum memory kinds[] = {HOST, PINNED, MANAGED, DEVICE, EXPORTABLE};
    size_t limit = group->all_have_gpus ? 5 : 3, kind = below(group, limit);
    if (below(group, 3) == 0) kind = (kind + (size_t)group->rank) % limit;
    return group->is_host ? HOST : kinds[kind];
}

enum { WINDOW = 3000, MAX_RANKS = 64 };

// Each rank writes to the next one and reads from the one before.
static void transfer(struct group *group, MPI_Win window, struct numbers *out, struct numbers *in, int kind) {
    int next = (group->rank + 1) % group->ranks, before = (group->rank + group->ranks - 1) % group->ranks;
    MPI_Group all, some;
    MPI_Request requests[2];
    int near[2] = {next, before};
    switch (kind) {
    case 0:
        MPI_Win_fence(0, window);
        MPI_Put(out->there, WINDOW, MPI_INT, next, 0, WINDOW, MPI_INT, window);
        MPI_Get(in->there, WINDOW, MPI_INT, before, WINDOW, WINDOW, MPI_INT, window);
        MPI_Win_fence(0, window);
        break;
    case 1:
        MPI_Comm_group(group->comm, &all);
        MPI_Group_incl(all, next == before ? 1 : 2, near, &some);
        MPI_Win_post(some, 0, window);
        MPI_Win_start(some, 0, window);
        MPI_Accumulate(out->there, WINDOW, MPI_INT, next, 0, WINDOW, MPI_INT, MPI_REPLACE, window);
        MPI_Get(in->there, WINDOW, MPI_INT, before, WINDOW, WINDOW, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        MPI_Group_free(&all);
        MPI_Group_free(&some);
        break;
    case 2:
        MPI_Win_lock_all(0, window);
        MPI_Rput(out->there, WINDOW, MPI_INT, next, 0, WINDOW, MPI_INT, window, &requests[0]);
        MPI_Rget(in->there, WINDOW, MPI_INT, before, WINDOW, WINDOW, MPI_INT, window, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Win_flush_all(window);
        MPI_Win_unlock_all(window);
        break;
    default:
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
        MPI_Put(out->there, WINDOW, MPI_INT, next, 0, WINDOW, MPI_INT, window);
        MPI_Win_unlock(next, window);
        MPI_Win_lock(MPI_LOCK_SHARED, before, 0, window);
        MPI_Get(in->there, WINDOW, MPI_INT, before, WINDOW, WINDOW, MPI_INT, window);
        MPI_Win_flush(before, window);
        MPI_Win_unlock(before, window);
    }
    MPI_Barrier(group->comm);
}

// What each rank counts up at rank 0, every number once.
static void count_up(struct group *group, MPI_Win window) {
    int one = 1, found = -1, expected = 0, all[MAX_RANKS];
    struct numbers result = take(some_memory(group), 1);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Fetch_and_op(&one, result.there, MPI_INT, 0, 2 * WINDOW, MPI_SUM, window);
    MPI_Win_unlock(0, window);
    read_in(&result);
    found = result.here[0];
    give_back(&result);
    MPI_Allgather(&found, 1, MPI_INT, all, 1, MPI_INT, group->comm);
    for (int rank = 0; rank < group->ranks; rank++) expected |= 1 << all[rank];
    if (expected != (1 << group->ranks) - 1) is_wrong(group, "MPI_Fetch_and_op has found %d", found);
}

static void window(struct group *group) {
    uint64_t seed = below(group, 1000);
    int before = (group->rank + group->ranks - 1) % group->ranks, kind = (int)below(group, 4);
    bool is_allocated = below(group, 2);
#ifdef MPICH_VERSION
    // MPICH 4.0.2 alone takes all displacements in some of these for 0.
    is_allocated = false;
#endif
    enum memory memory = of_windows(group);
    struct numbers own = take(memory, 2 * WINDOW + 1), out = take(some_memory(group), WINDOW);
    struct numbers in = take(some_memory(group), WINDOW);
    struct numbers allocated = own;
    if (is_allocated) allocated.memory = HOST;
    MPI_Win window;
    MPI_Aint bytes = (2 * WINDOW + 1) * sizeof(int);
    if (is_allocated)
        MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, group->comm, &allocated.there, &window);
    else
        MPI_Win_create(own.there, bytes, sizeof(int), MPI_INFO_NULL, group->comm, &window);
    // The second half is what others read.
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, group->rank, 0, window);
    for (size_t at = 0; at < WINDOW; at++) allocated.here[WINDOW + at] = value(group->rank, at, seed + 1);
    allocated.here[2 * WINDOW] = 0;
    copy_bytes(allocated.there, allocated.here, (size_t)bytes);
    MPI_Win_unlock(group->rank, window);
    fill_with(&out, group->rank, seed);
    MPI_Barrier(group->comm);
    transfer(group, window, &out, &in, kind);
    must_be(group, &in, before, seed + 1, "a read from a window");
    count_up(group, window);
    MPI_Win_lock(MPI_LOCK_SHARED, group->rank, 0, window);
    struct numbers written = {allocated.memory, WINDOW, allocated.here, allocated.there};
    must_be(group, &written, before, seed, "a write to a window");
    MPI_Win_unlock(group->rank, window);
    MPI_Win_free(&window);
    give_back(&own);
    give_back(&out);
    give_back(&in);
}

static void file(struct group *group) {
    char name[4096];
    size_t count = 1 + below(group, 30000);
    uint64_t seed = below(group, 1000);
    int before = (group->rank + group->ranks - 1) % group->ranks;
    struct numbers out = take(some_memory(group), count);
    struct numbers in = take(some_memory(group), count);
    fill_with(&out, group->rank, seed);
    snprintf(name, sizeof name, "%s/file-%d", group->folder, group->number);
    MPI_File file;
    MPI_Request request;
    MPI_Offset own = group->rank * (MPI_Offset)(count * sizeof(int));
    MPI_Offset other = before * (MPI_Offset)(count * sizeof(int));
    if (MPI_File_open(group->comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) !=
        MPI_SUCCESS) {
        is_wrong(group, "%s cannot be opened", name);
        exit(1);
    }
    switch (below(group, 3)) {
    case 0: MPI_File_write_at_all(file, own, out.there, (int)count, MPI_INT, MPI_STATUS_IGNORE); break;
    case 1:
        MPI_File_iwrite_at(file, own, out.there, (int)count, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_File_write_at_all_begin(file, own, out.there, (int)count, MPI_INT);
        MPI_File_write_at_all_end(file, out.there, MPI_STATUS_IGNORE);
    }
    MPI_File_sync(file);
    MPI_Barrier(group->comm);
    MPI_File_sync(file);
    if (below(group, 2)) {
        MPI_File_read_at_all(file, other, in.there, (int)count, MPI_INT, MPI_STATUS_IGNORE);
    } else {
        MPI_File_iread_at(file, other, in.there, (int)count, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    must_be(group, &in, before, seed, "what was read from a file");
    MPI_File_close(&file);
    if (group->rank == 0) MPI_File_delete(name, MPI_INFO_NULL);
    MPI_Barrier(group->comm);
    give_back(&out);
    give_back(&in);
}

enum { SHIFTED = 600 };

// All ranks send to the next one, and receive from the one before, in one call.
static void shift(struct group *group) {
    struct known_type type;
    make_type(group, &type);
    int next = (group->rank + 1) % group->ranks, before = (group->rank + group->ranks - 1) % group->ranks;
    size_t count = below(group, 1 + 90000 / type.size), bytes = span_of(&type, count), found;
    uint64_t seed = below(group, 1000);
    bool is_replaced = below(group, 2);
    enum handle handle = (enum handle)below(group, HANDLES);
#ifdef MPICH_VERSION
    // MPICH 4.0.2 alone says of structures that it replaces what it says of those that it buffers
    // (messages.c).
    is_replaced = is_replaced && type.type == MPI_BYTE;
    if (is_replaced) handle = THE_TYPE;
#endif
    enum memory out = some_memory(group), in = some_memory(group);
    unsigned char *here = malloc(bytes + 1), *sent = gpu_allocate(out, bytes), *received = sent;
    fill_elements(&type, count, seed + (uint64_t)group->rank, here, bytes);
    copy_bytes(sent, here, bytes);
    struct elements elements = elements_of(&type, handle, sent, count);
    MPI_Status status;
    if (is_replaced) {
        MPI_Sendrecv_replace(elements.address, elements.count, elements.type, next, SHIFTED, before, SHIFTED,
                             group->comm, &status);
    } else {
        memset(here, 0x5a, bytes);
        received = gpu_allocate(in, bytes);
        copy_bytes(received, here, bytes);
        MPI_Sendrecv(elements.address, elements.count, elements.type, next, SHIFTED,
                     address_of(&type, received), (int)count, type.type, before, SHIFTED, group->comm,
                     &status);
    }
    drop_elements(&elements);
    copy_bytes(here, received, bytes);
    found = count_wrong(&type, count, seed + (uint64_t)before, here, bytes);
    if (found > 0)
        is_wrong(group, "MPI_Sendrecv%s of %zu elements of %zu bytes (%s, %s): %zu wrong",
                 is_replaced ? "_replace" : "", count, type.size, gpu_name(out), gpu_name(in), found);
    if (!is_replaced) gpu_free(in, received, bytes);
    gpu_free(out, sent, bytes);
    free(here);
    free_type(&type);
}

void make_concurrent_call(struct group *group) {
    // Open MPI's windows and files are not for several threads (its guide says so).
    switch (below(group, group->has_threads ? 6 : 12)) {
    case 0: break;
    case 1: MPI_Barrier(group->comm); break;
    case 2: reduce(group); break;
    case 3: broadcast(group); break;
    case 4: communicators(group); break;
    case 5: shift(group); break;
    case 6:
    case 7:
    case 8: window(group); break;
    case 9: write_elements(group); break;
    case 10: write_through_view(group); break;
    default: file(group);
    }
}
