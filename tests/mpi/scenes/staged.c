// Partitioned messages, packing in the external representation, and buffered sends: the MPI has host memory
// that stands for the GPU's.
#include <stdlib.h>
#include <string.h>

#include "scenes.h"
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5 && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

// Open MPI 5 has them, and calls itself MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

enum { PARTS = 6, COUNT = 5, EXTENT = 12, ROUNDS = 3 };
enum { BYTES = PARTS * COUNT * EXTENT };

// Elements of two numbers, and a gap. Open MPI 5.0.11 alone loses bytes of such: there they have three
// numbers.
#ifdef OPEN_MPI
enum { NUMBERS = 3 };
#else
enum { NUMBERS = 2 };
#endif
static MPI_Datatype with_gap(void) {
    MPI_Datatype pair, type;
    MPI_Type_contiguous(NUMBERS, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, EXTENT, &type);
    MPI_Type_free(&pair);
    MPI_Type_commit(&type);
    return type;
}

static int number(int round, int part, int at) {
    return 1 + round * 1000 + part * 100 + at;
}

// The numbers of a partition, in the program's memory; those of a gap are 7.
static void write_part(char *memory, int round, int part) {
    int numbers[COUNT * 3];
    for (int at = 0; at < COUNT * 3; at++) numbers[at] = at % 3 >= NUMBERS ? 7 : number(round, part, at);
    gpu_copy(memory + part * COUNT * EXTENT, numbers, sizeof numbers);
}

static void must_have_part(const char *memory, int round, int part) {
    int numbers[COUNT * 3];
    gpu_copy(numbers, memory + part * COUNT * EXTENT, sizeof numbers);
    for (int at = 0; at < COUNT * 3; at++) {
        int wanted = at % 3 >= NUMBERS ? 7 : number(round, part, at);
        must(numbers[at] == wanted, "round %d, partition %d: number %d is %d, not %d", round, part, at,
             numbers[at], wanted);
    }
}

// Every call that says that a partition is ready. Each is written after the request was started.
static void send_parts(char *memory, MPI_Request *request, int round) {
    int list[] = {4, 1};
    MPI_Start(request);
    for (int part = 0; part < PARTS; part++)
        if (part != 2 && part != 3) write_part(memory, round, part);
    MPI_Pready(5, *request);
    MPI_Pready_list(2, list, *request);
    write_part(memory, round, 2);
    write_part(memory, round, 3);
    MPI_Pready_range(2, 3, *request);
    MPI_Pready(0, *request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

// Some partitions are asked for, and complete before the others; then the rest.
static void receive_parts(char *memory, MPI_Request *request, int round) {
    int flag = 0, asked = (2 * round + 1) % PARTS;
    MPI_Start(request);
    while (!flag) MPI_Parrived(*request, asked, &flag);
    must_have_part(memory, round, asked);
    MPI_Wait(request, MPI_STATUS_IGNORE);
    for (int part = 0; part < PARTS; part++) must_have_part(memory, round, part);
}

static void exchange_parts(enum memory out, enum memory in) {
    char *memory = gpu_allocate(rank == 0 ? out : in, BYTES);
    MPI_Datatype type = with_gap();
    MPI_Request request;
    for (int part = 0; part < PARTS; part++) write_part(memory, -1, part);
    if (rank == 0)
        MPI_Psend_init(memory, PARTS, COUNT, type, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Precv_init(memory, PARTS, COUNT, type, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int round = 0; round < ROUNDS; round++)
        rank == 0 ? send_parts(memory, &request, round) : receive_parts(memory, &request, round);
    MPI_Request_free(&request);
    MPI_Type_free(&type);
    gpu_free(rank == 0 ? out : in, memory, BYTES);
}

void partitioned(void) {
    enum memory kinds[][2] = {{DEVICE, DEVICE}, {DEVICE, HOST}, {HOST, POOL}, {EXPORTABLE, MANAGED}};
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) exchange_parts(kinds[at][0], kinds[at][1]);
}

#else

void partitioned(void) {}

#endif

// Numbers with gaps are packed from a GPU or from the host, to either, and come back; before and behind
// nothing changes.
static void pack_and_unpack(enum memory typed, enum memory packed) {
    enum { NUMBERS = 30, SPACE = 200, START = 9 };
    int numbers[2 * NUMBERS], found[2 * NUMBERS];
    unsigned char bytes[SPACE], expected[SPACE];
    MPI_Datatype type;
    MPI_Aint at = START, expected_at = START;
    for (int place = 0; place < 2 * NUMBERS; place++) numbers[place] = place % 2 == 0 ? place * 77 : -1;
    memset(bytes, 0x5a, SPACE);
    memset(expected, 0x5a, SPACE);
    MPI_Type_vector(NUMBERS, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    char *from = gpu_allocate(typed, sizeof numbers), *to = gpu_allocate(packed, SPACE);
    gpu_copy(from, numbers, sizeof numbers);
    gpu_copy(to, bytes, SPACE);
    PMPI_Pack_external("external32", numbers, 1, type, expected, SPACE, &expected_at);
    int error = MPI_Pack_external("external32", from, 1, type, to, SPACE, &at);
    gpu_copy(bytes, to, SPACE);
    must(error == MPI_SUCCESS && at == expected_at, "packed up to %ld, not %ld", (long)at, (long)expected_at);
    must(memcmp(bytes, expected, SPACE) == 0, "what is packed is wrong");
    // The gaps stay.
    for (int place = 0; place < 2 * NUMBERS; place++) found[place] = -1;
    gpu_copy(from, found, sizeof found);
    at = START;
    error = MPI_Unpack_external("external32", to, SPACE, &at, from, 1, type);
    gpu_copy(found, from, sizeof found);
    must(error == MPI_SUCCESS && at == expected_at, "unpacked up to %ld, not %ld", (long)at,
         (long)expected_at);
    must(memcmp(found, numbers, sizeof numbers - sizeof(int)) == 0, "what is unpacked is wrong");
    // There is no place for all of it.
    at = SPACE - 8;
    must(MPI_Pack_external("external32", from, 1, type, to, SPACE, &at) != MPI_SUCCESS, "too much is packed");
    MPI_Type_free(&type);
    gpu_free(typed, from, sizeof numbers);
    gpu_free(packed, to, SPACE);
}

void external(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    enum memory kinds[][2] = {{DEVICE, DEVICE}, {DEVICE, HOST}, {HOST, DEVICE}, {POOL, MANAGED}};
    for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) pack_and_unpack(kinds[at][0], kinds[at][1]);
}

// The buffer of buffered sends lies on a GPU: messages of both kinds of memory pass, nothing of it changes,
// and the program gets it back.
static void send_buffered(enum memory memory, int round) {
    enum { ROOM = 2 * (LONG + MPI_BSEND_OVERHEAD) };
    char *buffer = filled(memory, ROOM, 9);
    char *gpu = filled(DEVICE, LONG, round), *host = filled(HOST, LONG, round + 1);
    void *returned = NULL;
    MPI_Request request;
    if (rank == 0) {
#if MPI_VERSION >= 4
        MPI_Count bytes = 0;
        must(MPI_Buffer_attach_c(buffer, ROOM) == MPI_SUCCESS, "a buffer is refused");
#else
        int bytes = 0;
        must(MPI_Buffer_attach(buffer, ROOM) == MPI_SUCCESS, "a buffer is refused");
#endif
        MPI_Bsend(gpu, LONG, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Ibsend(host, LONG, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
        MPI_Buffer_detach_c(&returned, &bytes);
#else
        MPI_Buffer_detach(&returned, &bytes);
#endif
        must(returned == buffer && bytes == ROOM, "another buffer comes back, of %ld bytes", (long)bytes);
        // What the processor does not reach is the program's alone.
        if (memory == DEVICE || memory == POOL) must_hold(buffer, ROOM, 9);
    } else if (rank == 1) {
        for (int tag = 0; tag < 2; tag++) {
            MPI_Recv(buffer, LONG, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            must_hold(buffer, LONG, round + tag);
        }
    }
    gpu_free(memory, buffer, ROOM);
    gpu_free(DEVICE, gpu, LONG);
    gpu_free(HOST, host, LONG);
}

void buffered(void) {
    enum memory kinds[] = {DEVICE, HOST, POOL, MANAGED};
    for (int at = 0; at < (int)(sizeof kinds / sizeof *kinds); at++) send_buffered(kinds[at], at);
}

// Persistent collective calls, which Open MPI 4 has as an extension.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PERSISTENT(name, ...) MPI_##name##_init(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, &request)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT(name, ...) MPIX_##name##_init(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, &request)
#endif

#ifdef PERSISTENT

enum { NUMBERS_EACH = 500, STARTS = 3 };

// Starts a request several times, each time with other numbers at all ranks; `wanted` says what comes of
// them.
static void start_often(MPI_Request request, int *out, int *in, int count, int wanted(int start, int at)) {
    int *host = calloc((size_t)count, sizeof *host);
    for (int start = 0; start < STARTS; start++) {
        for (int at = 0; at < count; at++) host[at] = start * 1000 + rank * 100 + at;
        gpu_copy(out, host, (size_t)count * sizeof *host);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        gpu_copy(host, in, (size_t)count * sizeof *host);
        for (int at = 0; at < count; at++)
            must(host[at] == wanted(start, at), "start %d: number %d is %d, not %d", start, at, host[at],
                 wanted(start, at));
    }
    MPI_Request_free(&request);
    free(host);
}

static int largest(int start, int at) {
    return start * 1000 + (ranks - 1) * 100 + at;
}

// This rank's block of each rank.
static int blocks_of_all(int start, int at) {
    return start * 1000 + at / NUMBERS_EACH * 100 + rank * NUMBERS_EACH + at % NUMBERS_EACH;
}

static int of_the_first(int start, int at) {
    return start * 1000 + at;
}

void persistent_collectives(void) {
    int count = NUMBERS_EACH * ranks;
    size_t bytes = (size_t)count * sizeof(int);
    int *out = (int *)gpu_allocate(DEVICE, bytes), *in = (int *)gpu_allocate(POOL, bytes);
    MPI_Request request;
    PERSISTENT(Allreduce, out, in, count, MPI_INT, MPI_MAX);
    start_often(request, out, in, count, largest);
    PERSISTENT(Alltoall, out, NUMBERS_EACH, MPI_INT, in, NUMBERS_EACH, MPI_INT);
    start_often(request, out, in, count, blocks_of_all);
    PERSISTENT(Bcast, out, count, MPI_INT, 0);
    start_often(request, out, out, count, of_the_first);
    gpu_free(DEVICE, out, bytes);
    gpu_free(POOL, in, bytes);
}

#else

void persistent_collectives(void) {}

#endif
