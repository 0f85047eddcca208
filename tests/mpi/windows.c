// One-sided calls whose own buffers lie on a GPU, and windows of memory on GPUs: all calls and all ways to
// end them, with buffers that are used again as soon as the MPI standard lets a program do so; then random
// calls against a model.
//
// windows [host | ROUNDS [SEED [WINDOW]]]: with `host` there is no GPU, and all memory is the host's. ROUNDS
// are those of random calls, with the windows of one kind alone where it is given.
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { COUNT = 300, GAPS = 2, SPACE = COUNT * GAPS };
enum what {
    PUT,
    GET,
    ACCUMULATE,
    GET_ACCUMULATE,
    FETCH_AND_OP,
    COMPARE_AND_SWAP,
    RPUT,
    RGET,
    RACCUMULATE,
    RGET_ACCUMULATE,
    CALLS
};
enum how { FENCE, POST_START, LOCK, LOCK_FLUSH, LOCK_ALL_LOCAL, LOCK_ALL_FLUSH, WAYS };

static int rank, ranks, wrong;
static enum memory memory;
// The elements of a buffer lie one behind the other, or have gaps.
static bool has_gaps;
static MPI_Datatype with_gaps;
static MPI_Win window;

// What windows are made of: memory that the MPI allocates, memory of a kind at all ranks, at every second
// one, or at all but the last, which gives none; and memory that is attached.
enum made { ALLOCATED, OF_HOST, OF_DEVICE, OF_EXPORTABLE, OF_MANAGED, OF_BOTH, WITH_NONE, ATTACHED, MADE };
static enum made made;
static long *shared;
// The kind of memory that this rank has there, and its longs; by rank, where calls find it.
static enum memory shared_memory;
static int shared_count;
static MPI_Aint *places;

static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (memory == HOST)
        memcpy(to, from, bytes);
    else
        gpu_copy(to, from, bytes);
}

static void copy_shared(void *to, const void *from, size_t bytes) {
    if (shared_memory == HOST)
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
    fprintf(stderr, "rank %d: window %d, call %d, way %d, %s%s: %s, at %d\n", rank, made, what, how,
            gpu_name(memory), has_gaps ? " with gaps" : "", words, at);
}

static bool is_of_one(enum what what) {
    return what == FETCH_AND_OP || what == COMPARE_AND_SWAP;
}

static bool reads_window(enum what what) {
    return what == GET || what == RGET || what == GET_ACCUMULATE || what == RGET_ACCUMULATE ||
           is_of_one(what);
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
    case PUT: MPI_Put(origin, count, type, to, places[to], COUNT, MPI_LONG, window); break;
    case GET: MPI_Get(result, count, type, to, places[to], COUNT, MPI_LONG, window); break;
    case ACCUMULATE:
        MPI_Accumulate(origin, count, type, to, places[to], COUNT, MPI_LONG, MPI_SUM, window);
        break;
    case GET_ACCUMULATE:
        MPI_Get_accumulate(origin, count, type, result, count, type, to, places[to], COUNT, MPI_LONG, MPI_SUM,
                           window);
        break;
    case FETCH_AND_OP: MPI_Fetch_and_op(origin, result, MPI_LONG, to, places[to], MPI_SUM, window); break;
    case COMPARE_AND_SWAP:
        MPI_Compare_and_swap(origin, compared, result, MPI_LONG, to, places[to], window);
        break;
    case RPUT: MPI_Rput(origin, count, type, to, places[to], COUNT, MPI_LONG, window, &request); break;
    case RGET: MPI_Rget(result, count, type, to, places[to], COUNT, MPI_LONG, window, &request); break;
    case RACCUMULATE:
        MPI_Raccumulate(origin, count, type, to, places[to], COUNT, MPI_LONG, MPI_SUM, window, &request);
        break;
    default:
        MPI_Rget_accumulate(origin, count, type, result, count, type, to, places[to], COUNT, MPI_LONG,
                            MPI_SUM, window, &request);
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
        must(here[at] == (is_there ? before(to, number) : 77), what, how,
             is_there ? "the result" : "what is no result", at);
    }
    free(here);
}

static void attempt(enum what what, enum how how) {
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    size_t bytes = SPACE * sizeof(long);
    long *here = malloc(bytes), *empty = malloc(bytes);
    for (int at = 0; at < COUNT; at++) here[at] = before(rank, at);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    copy_shared(shared, here, COUNT * sizeof(long));
    MPI_Win_unlock(rank, window);
    for (int at = 0; at < SPACE; at++) here[at] = empty[at] = 77;
    for (int at = 0; at < COUNT; at++) here[place_of(at)] = given(rank, at);
    long *origin = gpu_allocate(memory, bytes), *result = gpu_allocate(memory, bytes),
         *compared = gpu_allocate(memory, sizeof(long));
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
    copy_shared(here, shared, COUNT * sizeof(long));
    MPI_Win_unlock(rank, window);
    for (int at = 0; at < COUNT; at++) must(here[at] == after(what, rank, at), what, how, "the window", at);
    gpu_free(memory, origin, bytes);
    gpu_free(memory, result, bytes);
    gpu_free(memory, compared, sizeof(long));
    free(here);
    free(empty);
}

// Open MPI 4.1.4 crashes in MPI_Compare_and_swap between processes of a host, by itself, too.
// And in windows of memory that it has not allocated MPI_Get_accumulate of elements with gaps gives wrong
// ones back.
static bool is_mpis_fault(enum what what, bool gaps) {
    (void)what, (void)gaps;
#if defined OPEN_MPI && OMPI_MAJOR_VERSION < 5
    if (what == COMPARE_AND_SWAP && made == ALLOCATED) return true;
    bool is_wrong = what == COMPARE_AND_SWAP || (gaps && (what == GET_ACCUMULATE || what == RGET_ACCUMULATE));
    return is_wrong && made != OF_DEVICE && made != OF_EXPORTABLE && made < WITH_NONE;
#else
    return false;
#endif
}

// Random calls: in a round each rank makes calls to one other, in blocks of its own there, and adds to a
// block that belongs to all. All ranks draw the same numbers, so that each knows what all windows hold.

enum {
    BLOCKS = 4,
    BLOCK = 24,
    MAX_RANKS = 4,
    OWN = BLOCKS * BLOCK,
    SUMS = 16,
    WINDOW = MAX_RANKS * OWN + SUMS
};
static long model[MAX_RANKS][WINDOW];
static uint64_t state;

static int draw(int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

// Elements of a block: all, or every second one.
struct form {
    MPI_Datatype type;
    int count, elements, stride;
};

static struct form draw_form(MPI_Datatype every_second) {
    if (draw(2) == 0) return (struct form){MPI_LONG, BLOCK, BLOCK, 1};
    return (struct form){every_second, 1, BLOCK / 2, 2};
}

// What a call makes of an element of the window.
static long new_value(enum what what, MPI_Op op, long old, long given, bool is_first) {
    if (what == GET || (is_of_one(what) && !is_first)) return old;
    if (what == PUT || what == COMPARE_AND_SWAP || op == MPI_REPLACE) return given;
    if (op == MPI_SUM) return old + given;
    return op == MPI_MAX && given > old ? given : old;
}

static void make_call(enum what what, MPI_Op op, long *origin, long *result, const long *compared, int to,
                      MPI_Aint at, struct form form) {
    int n = form.elements;
    switch (what) {
    case PUT: MPI_Put(origin, n, MPI_LONG, to, at, form.count, form.type, window); break;
    case GET: MPI_Get(result, n, MPI_LONG, to, at, form.count, form.type, window); break;
    case ACCUMULATE: MPI_Accumulate(origin, n, MPI_LONG, to, at, form.count, form.type, op, window); break;
    case GET_ACCUMULATE:
        MPI_Get_accumulate(origin, n, MPI_LONG, result, n, MPI_LONG, to, at, form.count, form.type, op,
                           window);
        break;
    case FETCH_AND_OP: MPI_Fetch_and_op(origin, result, MPI_LONG, to, at, op, window); break;
    default: MPI_Compare_and_swap(origin, compared, result, MPI_LONG, to, at, window);
    }
}

static void random_round(enum how how, MPI_Datatype every_second, long *buffers) {
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_REPLACE, MPI_NO_OP};
    // Of a call: what is given, what comes back, and what is compared.
    long (*here)[3][BLOCK] = malloc(BLOCKS * sizeof *here), expected[BLOCKS][BLOCK], ones[SUMS];
    int unit = made == ATTACHED ? (int)sizeof(long) : 1, distance = 1 + draw(ranks - 1);
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
    struct {
        enum what what;
        MPI_Op op;
        struct form form;
    } calls[BLOCKS];
    for (int of = 0; of < ranks; of++) {
        int target = (of + distance) % ranks;
        bool has_memory = made != WITH_NONE || target != ranks - 1;
        for (int block = 0; block < BLOCKS; block++) {
            enum what what = (enum what)draw(COMPARE_AND_SWAP + 1);
            MPI_Op op = ops[draw(what == ACCUMULATE ? 3 : 4)];
            struct form form = draw_form(every_second);
            if (what == FETCH_AND_OP || what == COMPARE_AND_SWAP) form = (struct form){MPI_LONG, 1, 1, 1};
            if (is_mpis_fault(what, form.stride > 1)) what = what == COMPARE_AND_SWAP ? FETCH_AND_OP : GET;
            if (of == rank) calls[block].what = what, calls[block].op = op, calls[block].form = form;
            for (int at = 0; at < BLOCK; at++) {
                long value = draw(1 << 20),
                     *old = &model[target][of * OWN + block * BLOCK + at * form.stride];
                bool is_there = at < form.elements && has_memory;
                if (of == rank) {
                    here[block][0][at] = value;
                    here[block][1][at] = 77;
                    here[block][2][at] = at == 0 && has_memory ? *old : 0;
                    bool comes_back = is_there && what != PUT && what != ACCUMULATE;
                    expected[block][at] = comes_back ? *old : 77;
                }
                if (is_there) *old = new_value(what, op, *old, value, at == 0);
            }
        }
        for (int at = 0; at < SUMS && has_memory; at++) model[target][MAX_RANKS * OWN + at] += of + 1;
    }
    for (int at = 0; at < SUMS; at++) ones[at] = rank + 1;
    copy_bytes(buffers, here, BLOCKS * sizeof *here);
    begin(how, to, from);
    for (int block = 0; block < BLOCKS && (made != WITH_NONE || to != ranks - 1); block++) {
        long *buffer = buffers + block * 3 * BLOCK;
        MPI_Aint at = places[to] + (rank * OWN + block * BLOCK) * unit;
        make_call(calls[block].what, calls[block].op, buffer, buffer + BLOCK, buffer + 2 * BLOCK, to, at,
                  calls[block].form);
        if (block == 0)
            MPI_Accumulate(ones, SUMS, MPI_LONG, to, places[to] + MAX_RANKS * OWN * unit, SUMS, MPI_LONG,
                           MPI_SUM, window);
    }
    end_here(how, to);
    end(how, to);
    copy_bytes(here, buffers, BLOCKS * sizeof *here);
    for (int block = 0; block < BLOCKS; block++)
        for (int at = 0; at < BLOCK; at++)
            must(here[block][1][at] == expected[block][at], calls[block].what, how, "a random call's result",
                 at);
    MPI_Barrier(MPI_COMM_WORLD);
    long *all = malloc(WINDOW * sizeof *all);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (shared_count > 0) copy_shared(all, shared, WINDOW * sizeof *all);
    MPI_Win_unlock(rank, window);
    for (int at = 0; at < WINDOW && shared_count > 0; at++)
        must(all[at] == model[rank][at], CALLS, how, "the window after random calls", at);
    free(all);
    free(here);
    MPI_Barrier(MPI_COMM_WORLD);
}

// All ranks update the same elements of the first one's at once: nothing is lost, and each number is fetched
// once.
static void contended(void) {
    enum { TIMES = 30 };
    int unit = made == ATTACHED ? (int)sizeof(long) : 1;
    MPI_Aint at = places[0] + MAX_RANKS * OWN * unit;
    long one = 1, fetched, sum = 0, ones[SUMS], all[WINDOW], zeros[WINDOW] = {0};
    for (int each = 0; each < SUMS; each++) ones[each] = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    if (shared_count > 0) copy_shared(shared, zeros, sizeof zeros);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int time = 0; time < TIMES; time++) {
        MPI_Accumulate(ones, SUMS, MPI_LONG, 0, at, SUMS, MPI_LONG, MPI_SUM, window);
        MPI_Fetch_and_op(&one, &fetched, MPI_LONG, 0, places[0], MPI_SUM, window);
        MPI_Win_flush(0, window);
        sum += fetched;
    }
    MPI_Win_unlock_all(window);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    long calls = (long)TIMES * ranks;
    must(sum == calls * (calls - 1) / 2, FETCH_AND_OP, WAYS, "what all have fetched", (int)sum);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    if (rank == 0) copy_shared(all, shared, sizeof all);
    MPI_Win_unlock(rank, window);
    for (int each = 0; each < SUMS && rank == 0; each++) {
        long found = all[MAX_RANKS * OWN + each];
        must(found == calls, ACCUMULATE, WAYS, "what all have added to", (int)found);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void random_calls(int rounds) {
    MPI_Datatype every_second;
    MPI_Type_vector(BLOCK / 2, 1, 2, MPI_LONG, &every_second);
    MPI_Type_commit(&every_second);
    size_t bytes = BLOCKS * 3 * BLOCK * sizeof(long);
    long *buffers = gpu_allocate(memory, bytes), *zeros = calloc(WINDOW, sizeof *zeros);
    memset(model, 0, sizeof model);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    if (shared_count > 0) copy_shared(shared, zeros, WINDOW * sizeof *zeros);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) random_round((enum how)draw(WAYS), every_second, buffers);
    gpu_free(memory, buffers, bytes);
    free(zeros);
    MPI_Type_free(&every_second);
}

// What is outside of a window's memory, or of an epoch, is an error of the MPI's; and what the window says of
// itself.
static void errors(void) {
    int to = (rank + 1) % ranks, class, flag, *unit;
    long value = 1, *base;
    MPI_Aint *bytes;
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Put(&value, 1, MPI_LONG, to, 0, 1, MPI_LONG, window), &class);
    must(class == MPI_ERR_RMA_SYNC, PUT, WAYS, "a call outside of an epoch", class);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Error_class(MPI_Put(&value, 1, MPI_LONG, to, WINDOW, 1, MPI_LONG, window), &class);
    must(class == MPI_ERR_RMA_RANGE, PUT, WAYS, "a call behind the window", class);
    MPI_Error_class(MPI_Get(&value, 1, MPI_LONG, to, -1, 1, MPI_LONG, window), &class);
    must(class != MPI_SUCCESS, GET, WAYS, "a call in front of the window", class);
    MPI_Win_unlock(to, window);
    MPI_Win_get_attr(window, MPI_WIN_BASE, &base, &flag);
    must(flag && base == shared, CALLS, WAYS, "the base", 0);
    MPI_Win_get_attr(window, MPI_WIN_SIZE, &bytes, &flag);
    must(flag && *bytes == WINDOW * (MPI_Aint)sizeof(long), CALLS, WAYS, "the size", (int)*bytes);
    MPI_Win_get_attr(window, MPI_WIN_DISP_UNIT, &unit, &flag);
    must(flag && *unit == sizeof(long), CALLS, WAYS, "the unit", *unit);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void make_window(void) {
    static const enum memory kinds[] = {HOST, HOST, DEVICE, EXPORTABLE, MANAGED, DEVICE, DEVICE, DEVICE};
    size_t bytes = WINDOW * sizeof(long);
    MPI_Aint place = 0;
    shared_memory = made == OF_BOTH && rank % 2 == 1 ? HOST : kinds[made];
    shared_count = made == WITH_NONE && rank == ranks - 1 ? 0 : WINDOW;
    if (made == ALLOCATED) {
        MPI_Win_allocate((MPI_Aint)bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &window);
    } else {
        shared = shared_count == 0 ? NULL : gpu_allocate(shared_memory, bytes);
        bytes = (size_t)shared_count * sizeof(long);
    }
    if (made == ATTACHED) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_attach(window, shared, (MPI_Aint)bytes);
        MPI_Get_address(shared, &place);
    } else if (made != ALLOCATED) {
        MPI_Win_create(shared, (MPI_Aint)bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    }
    MPI_Allgather(&place, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD);
}

static void free_window(void) {
    if (made == ATTACHED) MPI_Win_detach(window, shared);
    MPI_Win_free(&window);
    if (made != ALLOCATED && shared_count > 0) gpu_free(shared_memory, shared, WINDOW * sizeof(long));
}

int main(int argc, char **argv) {
    static const enum memory kinds[] = {HOST, MANAGED, DEVICE, POOL};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    bool has_gpu = argc == 1 || strcmp(argv[1], "host") != 0;
    int rounds = has_gpu && argc > 1 ? atoi(argv[1]) : 12;
    state = has_gpu && argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    enum made first = argc > 3 ? (enum made)atoi(argv[3]) : ALLOCATED;
    enum made end = argc > 3 ? first + 1 : has_gpu ? MADE : OF_DEVICE;
    if (has_gpu) gpu_start_on(rank);
    places = calloc((size_t)ranks, sizeof *places);
    MPI_Type_vector(COUNT, 1, GAPS, MPI_LONG, &with_gaps);
    MPI_Type_commit(&with_gaps);
    int tried = 0;
    for (made = first; made < end; made++) {
        make_window();
        for (enum what what = 0; what < CALLS && made != WITH_NONE; what++)
            for (enum how how = 0; how < WAYS; how++)
                for (size_t kind = 0; kind < (has_gpu ? 4 : 1); kind++)
                    for (int gaps = 0; gaps < 2; gaps++) {
                        // Calls with a request are for epochs with locks alone.
                        if (what >= RPUT && how < LOCK) continue;
                        // Memory of other kinds is no other case where the bytes go at once.
                        if (made != ALLOCATED && ((size_t)how + what) % 4 != kind) continue;
                        if (made != ALLOCATED && ((int)how + (int)what / 2) % 2 != gaps) continue;
                        if (is_mpis_fault(what, gaps)) continue;
                        memory = kinds[kind];
                        has_gaps = gaps != 0;
                        attempt(what, how);
                        tried++;
                    }
        has_gaps = false;
        memory = has_gpu ? DEVICE : HOST;
        if (made == OF_DEVICE || made == OF_EXPORTABLE) errors();
        random_calls(rounds);
        contended();
        free_window();
    }
    MPI_Type_free(&with_gaps);
    free(places);
    printf("rank %d: %d things are wrong in %d calls\n", rank, wrong, tried);
    MPI_Finalize();
    return wrong != 0;
}
