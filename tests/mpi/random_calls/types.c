// Types of bytes with gaps, the order of whose bytes is known.

#include <stdlib.h>
#include <string.h>

#include "random_calls.h"

static void add_run(struct known_type *type, size_t offset, size_t length) {
    type->offsets[type->count] = offset;
    type->lengths[type->count++] = length;
    type->size += length;
    if (offset + length > type->extent) type->extent = offset + length;
}

static void make_indexed(struct group *group, struct known_type *type) {
    int lengths[MAX_RUNS], runs = 1 + (int)below(group, MAX_RUNS);
    MPI_Aint offsets[MAX_RUNS];
    size_t at = 0;
    for (int run = 0; run < runs; run++) {
        lengths[run] = 1 + (int)below(group, 40);
        offsets[run] = (MPI_Aint)at;
        at += (size_t)lengths[run] + below(group, 9);
    }
    // The order in which they are sent is any.
    for (int run = runs - 1; run > 0; run--) {
        int other = (int)below(group, (size_t)run + 1), length = lengths[run];
        MPI_Aint offset = offsets[run];
        lengths[run] = lengths[other], offsets[run] = offsets[other];
        lengths[other] = length, offsets[other] = offset;
    }
    for (int run = 0; run < runs; run++) add_run(type, (size_t)offsets[run], (size_t)lengths[run]);
    MPI_Type_create_hindexed(runs, lengths, offsets, MPI_BYTE, &type->type);
}

static void make_vector(struct group *group, struct known_type *type) {
    size_t blocks = 1 + below(group, MAX_RUNS), length = 1 + below(group, 300),
           stride = length + below(group, 20);
    for (size_t at = 0; at < blocks; at++) add_run(type, at * stride, length);
    MPI_Type_vector((int)blocks, (int)length, (int)stride, MPI_BYTE, &type->type);
}

// A structure of numbers and bytes.
static void make_structure(struct group *group, struct known_type *type) {
    int lengths[3] = {1 + (int)below(group, 5), 1 + (int)below(group, 5), 1 + (int)below(group, 9)};
    MPI_Aint offsets[3] = {0, 24 + 8 * (MPI_Aint)below(group, 2), 80};
    MPI_Datatype types[3] = {MPI_INT, MPI_DOUBLE, MPI_BYTE}, packed;
    size_t sizes[3] = {sizeof(int), sizeof(double), 1};
    for (int at = 0; at < 3; at++) add_run(type, (size_t)offsets[at], (size_t)lengths[at] * sizes[at]);
    MPI_Type_create_struct(3, lengths, offsets, types, &packed);
    type->extent = 96;
    MPI_Type_create_resized(packed, 0, 96, &type->type);
    MPI_Type_free(&packed);
}

// The elements lie far from the address that calls get, on either side of it.
static void move_base(struct group *group, struct known_type *type) {
    MPI_Datatype inner = type->type;
    int one = 1;
    type->base = (MPI_Aint)below(group, 1u << 26) - (1 << 25);
    MPI_Type_create_hindexed(1, &one, &type->base, inner, &type->type);
    if (inner != MPI_BYTE) MPI_Type_free(&inner);
}

void make_type(struct group *group, struct known_type *type) {
    *type = (struct known_type){.type = MPI_BYTE};
    switch (below(group, 5)) {
    case 0: make_indexed(group, type); break;
    case 1: make_vector(group, type); break;
    case 2: make_structure(group, type); break;
    default: add_run(type, 0, 1);
    }
    if (below(group, 4) == 0) move_base(group, type);
    if (type->type != MPI_BYTE) MPI_Type_commit(&type->type);
}

void *address_of(const struct known_type *type, void *memory) {
    return (void *)((uintptr_t)memory - (uintptr_t)type->base);
}

struct elements elements_of(const struct known_type *type, enum handle handle, void *memory, size_t count) {
    struct elements elements = {address_of(type, memory), (int)count, type->type, handle != THE_TYPE};
    if (handle == DUPLICATE) MPI_Type_dup(type->type, &elements.type);
    if (handle == ABSOLUTE) {
        MPI_Aint address = (MPI_Aint)elements.address;
        MPI_Type_create_hindexed(1, &elements.count, &address, type->type, &elements.type);
        elements.address = MPI_BOTTOM;
        elements.count = 1;
    }
    if (elements.is_own) MPI_Type_commit(&elements.type);
    return elements;
}

void drop_elements(struct elements *elements) {
    if (elements->is_own) MPI_Type_free(&elements->type);
}

void free_type(struct known_type *type) {
    if (type->type != MPI_BYTE) MPI_Type_free(&type->type);
}

size_t span_of(const struct known_type *type, size_t count) {
    return count * type->extent;
}

void fill_elements(const struct known_type *type, size_t count, uint64_t seed, unsigned char *memory,
                   size_t bytes) {
    size_t sent = 0;
    memset(memory, 0x5a, bytes);
    for (size_t element = 0; element < count; element++)
        for (size_t run = 0; run < type->count; run++)
            for (size_t at = 0; at < type->lengths[run]; at++)
                memory[element * type->extent + type->offsets[run] + at] = byte_at(seed, sent++);
}

size_t count_wrong(const struct known_type *type, size_t count, uint64_t seed, const unsigned char *memory,
                   size_t bytes) {
    unsigned char *expected = malloc(bytes + 1);
    size_t found = 0;
    fill_elements(type, count, seed, expected, bytes);
    for (size_t at = 0; at < bytes; at++) found += memory[at] != expected[at];
    free(expected);
    return found;
}
