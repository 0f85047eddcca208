// One-sided calls whose own buffers lie on a GPU, on windows of the host's memory: all calls and all ways to end them, with
// buffers that are used again as soon as the MPI standard lets a program do so.
//
// windows [host]: with `host` there is no GPU, and the buffers are the host's.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { COUNT = 600, GAPS = 2, SPACE = COUNT * GAPS };
enum what { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, RPUT, RGET, RACCUMULATE, RGET_ACCUMULATE, CALLS };
enum how { FENCE, POST_START, LOCK, LOCK_FLUSH, LOCK_ALL_LOCAL, LOCK_ALL_FLUSH, WAYS };

static int rank, ranks, wrong;
static enum memory memory;
// The elements of a buffer lie one behind the other, or have gaps.
static bool has_gaps;
static MPI_Datatype with_gaps;
static MPI_Win window;
static long *shared;

static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (memory == HOST)
        memcpy(to, from, bytes);
    else
        gpu_copy(to, from, bytes);
}

static int place_of(int at) {
    return has_gaps ? at * GAPS : at;
}

// What a rank's window and its origin hold before.
static long before(int of, int at) {
    return of * 100000 + at;
}

static long given(int of, int at) {
    return -(of * 7000 + 3 * at + 1);
}

static void must(bool is_right, enum what what, enum how how, const char *words, int at) {
    static enum what last_what = CALLS;
    static enum how last_how;
    if (is_right || (wrong++ > 0 && what == last_what && how == last_how)) return;
    last_what = what;
    last_how = how;
    fprintf(stderr, "rank %d: call %d, way %d, %s%s: %s, at %d\n", rank, what, how, gpu_name(memory),
            has_gaps ? " with gaps" : "", words, at);
}

static bool is_of_one(enum what what) {
    return what == FETCH_AND_OP || what == COMPARE_AND_SWAP;
}

static bool reads_window(enum what what) {
    return what == GET || what == RGET || what == GET_ACCUMULATE || what == RGET_ACCUMULATE || is_of_one(what);
}

// What the window of `of` holds after the call of the rank before it.
static long after(enum what what, int of, int at) {
    int from = (of + ranks - 1) % ranks;
    if (what == GET || what == RGET || (is_of_one(what) && at > 0)) return before(of, at);
    if (what == PUT || what == RPUT || what == COMPARE_AND_SWAP) return given(from, at);
    return before(of, at) + given(from, at);
}

static void begin(enum how how, int to, int from) {
    MPI_Group all, one;
    if (how == FENCE) MPI_Win_fence(0, window);
    if (how == LOCK || how == LOCK_FLUSH) MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    if (how == LOCK_ALL_LOCAL || how == LOCK_ALL_FLUSH) MPI_Win_lock_all(0, window);
    if (how != POST_START) return;
    MPI_Win_get_group(window, &all);
    MPI_Group_incl(all, 1, &from, &one);
    MPI_Win_post(one, 0, window);
    MPI_Group_free(&one);
    MPI_Group_incl(all, 1, &to, &one);
    MPI_Win_start(one, 0, window);
    MPI_Group_free(&one);
    MPI_Group_free(&all);
}

// Ends the call at this rank, if the epoch can go on then; says whether it has.
static bool end_here(enum how how, int to) {
    if (how == LOCK_FLUSH) MPI_Win_flush(to, window);
    if (how == LOCK_ALL_LOCAL) MPI_Win_flush_local(to, window);
    if (how == LOCK_ALL_FLUSH) MPI_Win_flush_all(window);
    return how == LOCK_FLUSH || how == LOCK_ALL_LOCAL || how == LOCK_ALL_FLUSH;
}

static void end(enum how how, int to) {
    if (how == FENCE) MPI_Win_fence(0, window);
    if (how == LOCK || how == LOCK_FLUSH) MPI_Win_unlock(to, window);
    if (how == LOCK_ALL_LOCAL || how == LOCK_ALL_FLUSH) MPI_Win_unlock_all(window);
    if (how != POST_START) return;
    MPI_Win_complete(window);
    MPI_Win_wait(window);
}

// Says whether the call has a request, which has ended.
static bool call(enum what what, long *origin, long *result, const long *compared, int to) {
    MPI_Datatype type = has_gaps ? with_gaps : MPI_LONG;
    int count = has_gaps ? 1 : COUNT;
    MPI_Request request = MPI_REQUEST_NULL;
    switch (what) {
    case PUT: MPI_Put(origin, count, type, to, 0, COUNT, MPI_LONG, window); break;
    case GET: MPI_Get(result, count, type, to, 0, COUNT, MPI_LONG, window); break;
    case ACCUMULATE: MPI_Accumulate(origin, count, type, to, 0, COUNT, MPI_LONG, MPI_SUM, window); break;
    case GET_ACCUMULATE:
        MPI_Get_accumulate(origin, count, type, result, count, type, to, 0, COUNT, MPI_LONG, MPI_SUM, window);
        break;
    case FETCH_AND_OP: MPI_Fetch_and_op(origin, result, MPI_LONG, to, 0, MPI_SUM, window); break;
    case COMPARE_AND_SWAP: MPI_Compare_and_swap(origin, compared, result, MPI_LONG, to, 0, window); break;
    case RPUT: MPI_Rput(origin, count, type, to, 0, COUNT, MPI_LONG, window, &request); break;
    case RGET: MPI_Rget(result, count, type, to, 0, COUNT, MPI_LONG, window, &request); break;
    case RACCUMULATE: MPI_Raccumulate(origin, count, type, to, 0, COUNT, MPI_LONG, MPI_SUM, window, &request); break;
    default:
        MPI_Rget_accumulate(origin, count, type, result, count, type, to, 0, COUNT, MPI_LONG, MPI_SUM, window,
                            &request);
    }
    if (what < RPUT) return false;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return true;
}

static void must_have(enum what what, enum how how, const long *result, int to) {
    long *here = malloc(SPACE * sizeof *here);
    copy_bytes(here, result, SPACE * sizeof *here);
    for (int at = 0; at < SPACE; at++) {
        bool is_gap = has_gaps && at % GAPS != 0 && !is_of_one(what);
        int number = has_gaps ? at / GAPS : at;
        bool is_there = !is_gap && number < (is_of_one(what) ? 1 : COUNT) && reads_window(what);
        if (is_of_one(what) && at > 0) is_there = false;
        must(here[at] == (is_there ? before(to, number) : 77), what, how, is_there ? "the result" : "what is no result",
             at);
    }
    free(here);
}

static void attempt(enum what what, enum how how) {
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    size_t bytes = SPACE * sizeof(long);
    long *here = malloc(bytes), *empty = malloc(bytes);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    for (int at = 0; at < COUNT; at++) shared[at] = before(rank, at);
    MPI_Win_unlock(rank, window);
    for (int at = 0; at < SPACE; at++) here[at] = empty[at] = 77;
    for (int at = 0; at < COUNT; at++) here[place_of(at)] = given(rank, at);
    long *origin = gpu_take(memory, bytes), *result = gpu_take(memory, bytes), *compared = gpu_take(memory, sizeof(long));
    copy_bytes(origin, here, bytes);
    copy_bytes(result, empty, bytes);
    copy_bytes(compared, &(long){before(to, 0)}, sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);
    begin(how, to, from);
    bool has_request = call(what, origin, result, compared, to);
    if (has_request || end_here(how, to)) {
        copy_bytes(origin, empty, bytes);
        copy_bytes(compared, empty, sizeof(long));
        // MPICH 4.0.2 ends this request before the bytes are in the host's memory, by itself, too.
        bool is_on_gpu = memory == DEVICE || memory == POOL;
        if (what != RGET || !has_gaps || is_on_gpu) must_have(what, how, result, to);
    }
    end(how, to);
    must_have(what, how, result, to);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int at = 0; at < COUNT; at++) must(shared[at] == after(what, rank, at), what, how, "the window", at);
    MPI_Win_unlock(rank, window);
    gpu_give_back(memory, origin, bytes);
    gpu_give_back(memory, result, bytes);
    gpu_give_back(memory, compared, sizeof(long));
    free(here);
    free(empty);
}

// Open MPI 4.1.4 crashes in MPI_Compare_and_swap between processes of a host, by itself, too.
static bool is_mpis_fault(enum what what) {
    (void)what;
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
    return what == COMPARE_AND_SWAP;
#else
    return false;
#endif
}

int main(int argc, char **argv) {
    static const enum memory kinds[] = {HOST, MANAGED, DEVICE, POOL};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bool has_gpu = argc == 1;
    if (has_gpu) gpu_start_on(rank);
    MPI_Type_vector(COUNT, 1, GAPS, MPI_LONG, &with_gaps);
    MPI_Type_commit(&with_gaps);
    MPI_Win_allocate(COUNT * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
    int tried = 0;
    for (enum what what = 0; what < CALLS; what++)
        for (enum how how = 0; how < WAYS; how++)
            for (size_t kind = 0; kind < (has_gpu ? 4 : 1); kind++)
                for (int gaps = 0; gaps < 2; gaps++) {
                    // Calls with a request are for epochs with locks alone.
                    if (what >= RPUT && how < LOCK) continue;
                    if (is_mpis_fault(what)) continue;
                    memory = kinds[kind];
                    has_gaps = gaps != 0;
                    attempt(what, how);
                    tried++;
                }
    MPI_Win_free(&window);
    MPI_Type_free(&with_gaps);
    printf("rank %d: %d things are wrong in %d calls\n", rank, wrong, tried);
    MPI_Finalize();
    return wrong != 0;
}
