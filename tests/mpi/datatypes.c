// Random datatypes with gaps in memory of all kinds: messages, collective calls, MPI_Pack and MPI_Unpack,
// compared with the same on memory of the host by the MPI itself (PMPI_*).
//
// datatypes SEED ROUNDS: all ranks make the same types from the seed.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "split_mix.h"

enum { MAX_EXTENT = 20000, MAX_PARTITIONS = 4 };

struct region {
    enum memory kind;
    size_t bytes;
    unsigned char *before, *expected, *address;
};

static uint64_t common_state, own_state;
static int rank, ranks;

static int common(int limit) {
    return (int)(split_mix(&common_state) % (uint64_t)limit);
}

static MPI_Aint extent_of(MPI_Datatype type) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type, &lower, &extent);
    return extent;
}

static MPI_Aint end_of(MPI_Datatype type) {
    MPI_Aint lower, extent;
    int size;
    // Of a type of nothing Open MPI 4.1.4 gives the largest number there is.
    MPI_Type_size(type, &size);
    MPI_Type_get_true_extent(type, &lower, &extent);
    return size == 0 ? 0 : lower + extent;
}

// The share that a random process of a grid has of an array.
static MPI_Datatype share_of(MPI_Datatype inner, MPI_Datatype base) {
    enum { DIMENSIONS = 3 };
    const int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    int sizes[DIMENSIONS], ways[DIMENSIONS], arguments[DIMENSIONS], places[DIMENSIONS], processes = 1, size;
    // Open MPI 5.0 refuses shares of a type of nothing. Elements are sent as predefined ones, too: what is
    // made has nothing else in it.
    MPI_Type_size(inner, &size);
    if (size == 0) inner = base;
    for (int at = 0; at < DIMENSIONS; at++) {
        sizes[at] = 1 + common(6);
        ways[at] = distributions[common(3)];
        places[at] = ways[at] == MPI_DISTRIBUTE_NONE ? 1 : 1 + common(3);
        arguments[at] = MPI_DISTRIBUTE_DFLT_DARG;
        // Blocks must be long enough for all.
        int least = ways[at] == MPI_DISTRIBUTE_BLOCK ? (sizes[at] + places[at] - 1) / places[at] : 1;
        if (ways[at] != MPI_DISTRIBUTE_NONE && common(2)) arguments[at] = least + common(3);
        processes *= places[at];
    }
    MPI_Datatype made;
    MPI_Type_create_darray(processes, common(processes), DIMENSIONS, sizes, ways, arguments, places,
                           common(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner, &made);
    return made;
}

// A structure with another one that has nothing in it.
static MPI_Datatype with_nothing(MPI_Datatype inner) {
    MPI_Datatype nothing, made;
    MPI_Type_create_struct(0, NULL, NULL, NULL, &nothing);
    MPI_Aint places[] = {common(9), common(9)};
    MPI_Datatype types[] = {nothing, inner};
    MPI_Type_create_struct(2, (int[]){1 + common(3), 1 + common(3)}, places, types, &made);
    MPI_Type_free(&nothing);
    return made;
}

// A type made of another one, whose elements do not lie upon each other.
static MPI_Datatype around(MPI_Datatype inner, MPI_Datatype base) {
    MPI_Datatype made;
    MPI_Aint extent = extent_of(inner), places[MAX_PARTITIONS];
    int parts = 1 + common(MAX_PARTITIONS), length = 1 + common(3), lengths[MAX_PARTITIONS],
        steps[MAX_PARTITIONS], at = 0;
    for (int part = 0; part < parts; part++) {
        at += common(3);
        steps[part] = at;
        places[part] = at * extent + (extent > 1 ? 0 : common(2));
        lengths[part] = 1 + common(3);
        at += lengths[part] > length ? lengths[part] + 1 : length + 1;
    }
    MPI_Datatype same[MAX_PARTITIONS] = {inner, inner, inner, inner};
    switch (common(13)) {
    case 0: MPI_Type_contiguous(parts, inner, &made); break;
    case 1: MPI_Type_vector(parts, length, length + common(3), inner, &made); break;
    case 2: MPI_Type_create_hvector(parts, length, (length + common(3)) * extent, inner, &made); break;
    case 3: MPI_Type_indexed(parts, lengths, steps, inner, &made); break;
    case 4: MPI_Type_create_hindexed(parts, lengths, places, inner, &made); break;
    case 5: MPI_Type_create_indexed_block(parts, length, steps, inner, &made); break;
    case 6: MPI_Type_create_hindexed_block(parts, length, places, inner, &made); break;
    case 7: MPI_Type_create_struct(parts, lengths, places, same, &made); break;
    case 8: {
        int sizes[3], wanted[3], starts[3];
        for (int dimension = 0; dimension < 3; dimension++) {
            sizes[dimension] = 1 + common(4);
            wanted[dimension] = 1 + common(sizes[dimension]);
            starts[dimension] = common(sizes[dimension] - wanted[dimension] + 1);
        }
        int order = common(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        MPI_Type_create_subarray(3, sizes, wanted, starts, order, inner, &made);
        break;
    }
    case 9: MPI_Type_create_resized(inner, 0, end_of(inner) + common(20), &made); break;
    case 10: return share_of(inner, base);
    case 11: return with_nothing(inner);
    default: MPI_Type_dup(inner, &made);
    }
    return made;
}

// A type, with the predefined one that it is made of.
static MPI_Datatype some_type(MPI_Datatype *base) {
    const MPI_Datatype bases[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE};
    *base = bases[common(4)];
    MPI_Datatype type;
    MPI_Type_dup(*base, &type);
    for (int depth = 1 + common(3); depth > 0; depth--) {
        MPI_Datatype next = around(type, *base);
        if (extent_of(next) > MAX_EXTENT) {
            MPI_Type_free(&next);
            break;
        }
        MPI_Type_free(&type);
        type = next;
    }
    MPI_Type_commit(&type);
    return type;
}

static void make_region(struct region *region, size_t bytes) {
    region->bytes = bytes + 1;
    region->before = malloc(region->bytes);
    region->expected = malloc(region->bytes);
    for (size_t at = 0; at < region->bytes; at++) region->before[at] = (unsigned char)split_mix(&own_state);
    memcpy(region->expected, region->before, region->bytes);
    region->kind = (enum memory)(split_mix(&own_state) % MEMORIES);
    if (split_mix(&own_state) % 2) region->kind = DEVICE;
    region->address = gpu_allocate(region->kind, region->bytes);
    gpu_copy(region->address, region->before, region->bytes);
}

static int must_agree(struct region *region, const char *what, int way) {
    unsigned char *found = malloc(region->bytes);
    gpu_copy(found, region->address, region->bytes);
    size_t at = 0;
    while (at < region->bytes && found[at] == region->expected[at]) at++;
    if (at < region->bytes)
        fprintf(stderr, "rank %d: %s, way %d, %s memory: byte %zu of %zu is %d and not %d (before: %d)\n",
                rank, what, way, gpu_name(region->kind), at, region->bytes, found[at], region->expected[at],
                region->before[at]);
    gpu_free(region->kind, region->address, region->bytes);
    free(found);
    free(region->before);
    free(region->expected);
    return at < region->bytes;
}

#define MPI(name, ...) (host ? PMPI_##name(__VA_ARGS__) : MPI_##name(__VA_ARGS__))

// Elements, or the predefined ones that they are made of.
struct pattern {
    MPI_Datatype type;
    int count;
};

static void move(int host, int way, void *out, struct pattern sent, void *in, struct pattern received) {
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, count = -1;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    switch (way) {
    case 0:
        MPI(Sendrecv, out, sent.count, sent.type, to, 1, in, received.count, received.type, from, 1, world,
            &statuses[0]);
        break;
    case 1: {
        // The program may free what is used by calls that are under way.
        MPI_Datatype a, b;
        PMPI_Type_dup(sent.type, &a);
        PMPI_Type_dup(received.type, &b);
        MPI(Irecv, in, received.count, b, from, 1, world, &requests[0]);
        MPI(Isend, out, sent.count, a, to, 1, world, &requests[1]);
        PMPI_Type_free(&a);
        PMPI_Type_free(&b);
        MPI(Waitall, 2, requests, statuses);
        break;
    }
    case 2:
        MPI(Irecv, in, received.count, received.type, from, 1, world, &requests[0]);
        MPI(Bsend, out, sent.count, sent.type, to, 1, world);
        MPI(Wait, &requests[0], &statuses[0]);
        break;
    case 3: {
        MPI_Datatype a, b;
        PMPI_Type_dup(sent.type, &a);
        PMPI_Type_dup(received.type, &b);
        MPI(Recv_init, in, received.count, b, from, 1, world, &requests[0]);
        MPI(Ssend_init, out, sent.count, a, to, 1, world, &requests[1]);
        PMPI_Type_free(&a);
        PMPI_Type_free(&b);
        MPI(Startall, 2, requests);
        MPI(Waitall, 2, requests, statuses);
        MPI(Request_free, &requests[0]);
        MPI(Request_free, &requests[1]);
        break;
    }
    case 4: MPI(Sendrecv_replace, in, sent.count, sent.type, to, 1, from, 1, world, &statuses[0]); break;
    case 5: MPI(Bcast, rank == 0 ? out : in, sent.count, sent.type, 0, world); return;
    case 6: MPI(Allgather, out, sent.count, sent.type, in, received.count, received.type, world); return;
    case 7: MPI(Gather, out, sent.count, sent.type, in, received.count, received.type, 0, world); return;
    case 8: {
        // Displacements are addresses.
        int lengths[] = {sent.count};
        MPI_Aint place;
        MPI_Datatype absolute;
        PMPI_Get_address(rank == 0 ? out : in, &place);
        PMPI_Type_create_hindexed(1, lengths, &place, sent.type, &absolute);
        PMPI_Type_commit(&absolute);
        if (rank == 0) MPI(Send, MPI_BOTTOM, 1, absolute, 1, 2, world);
        if (rank == 1) MPI(Recv, MPI_BOTTOM, 1, absolute, 0, 2, world, &statuses[0]);
        MPI(Bcast, MPI_BOTTOM, 1, absolute, 0, world);
        PMPI_Type_free(&absolute);
        return;
    }
    default: {
        int room, position = 3;
        PMPI_Pack_size(sent.count, sent.type, world, &room);
        enum memory kind = host ? HOST : rank % 2 ? DEVICE : PINNED;
        void *packed = gpu_allocate(kind, (size_t)room + 3);
        MPI(Pack, out, sent.count, sent.type, packed, room + 3, &position, world);
        int packed_bytes = position;
        position = 3;
#ifdef MPICH_VERSION
        // MPICH 4.0.2 divides by 0 when it unpacks some types of no bytes, by itself, too.
        if (packed_bytes == 3) {
            gpu_free(kind, packed, (size_t)room + 3);
            return;
        }
#endif
        MPI(Unpack, packed, packed_bytes, &position, in, received.count, received.type, world);
        if (position != packed_bytes)
            fprintf(stderr, "rank %d: MPI_Unpack ends at %d of %d\n", rank, position, packed_bytes);
        gpu_free(kind, packed, (size_t)room + 3);
        return;
    }
    }
    // The status tells how many predefined elements have come.
    PMPI_Get_count(&statuses[0], MPI_BYTE, &count);
    int size;
    PMPI_Type_size(sent.type, &size);
    if (count != size * sent.count)
        fprintf(stderr, "rank %d: way %d: the status says %d bytes and not %d\n", rank, way, count,
                size * sent.count);
}

enum { WAYS = 10 };

static int try(int way) {
    MPI_Datatype base, type = some_type(&base);
    int size, base_size, count = common(30);
    PMPI_Type_size(type, &size);
    PMPI_Type_size(base, &base_size);
    if (size % base_size != 0) fprintf(stderr, "%d bytes are not elements of %d bytes\n", size, base_size);
    int copies = way == 6 || way == 7 ? ranks : 1, plain = count * size / base_size;
    struct pattern typed = {type, count}, elements = {base, plain}, sent = typed, received = typed;
    int which = way == 4 || way == 5 || way == 8 ? 2 : common(3);
    // Of elements of nothing MPICH 4.0.2 sends a message where the count is not 0, and receives none where it
    // is.
    if (size == 0) which = 2;
    if (which == 0) sent = elements;
    if (which == 1) received = elements;
    // More room than there are elements: what comes ends in the midst of one.
    if (way < 3 && which == 0 && plain > 1) sent.count -= common(plain);
    struct region out, in;
    size_t bytes = (size_t)extent_of(type) * (size_t)(count + 1) + (size_t)end_of(type);
    make_region(&out, bytes);
    make_region(&in, bytes * (size_t)copies);
    move(1, way, out.expected, sent, in.expected, received);
    move(0, way, out.address, sent, in.address, received);
    PMPI_Barrier(MPI_COMM_WORLD);
    char what[100];
    snprintf(what, sizeof what, "%d elements of %d bytes, extent %ld, pattern %d", count, size,
             (long)extent_of(type), which);
    int wrong = must_agree(&out, what, way) + must_agree(&in, what, way);
    MPI_Type_free(&type);
    return wrong;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) return 2;
    gpu_start_on(rank);
    common_state = strtoull(argv[1], NULL, 0);
    own_state = common_state * 31 + (uint64_t)rank;
    void *buffer = malloc(1 << 22);
    MPI_Buffer_attach(buffer, 1 << 22);
    int wrong = 0, all = 0, rounds = atoi(argv[2]), size;
    for (int round = 0; round < rounds; round++) wrong += try(round % WAYS);
    PMPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Buffer_detach(&buffer, &size);
    MPI_Finalize();
    if (rank == 0) printf("%d of %d rounds are wrong\n", all, rounds);
    return all != 0;
}
