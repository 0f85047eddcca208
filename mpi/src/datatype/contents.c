// How was a datatype made? The same words for calls with small counts, and with large ones (_c).

#include <stdlib.h>
#include <string.h>

#include "datatype.h"

void free_contents(struct contents *contents) {
    for (int at = 0; at < contents->type_count; at++) {
        if (!is_predefined(contents->types[at])) PMPI_Type_free(&contents->types[at]);
    }
    free(contents->numbers);
    free(contents->addresses);
    free(contents->types);
}

static bool reserve(struct contents *contents, size_t numbers, size_t addresses, size_t types) {
    contents->numbers = calloc(numbers + 1, sizeof *contents->numbers);
    contents->addresses = calloc(addresses + 1, sizeof *contents->addresses);
    contents->types = calloc(types + 1, sizeof(MPI_Datatype));
    return contents->numbers != NULL && contents->addresses != NULL && contents->types != NULL;
}

static bool read_small(MPI_Datatype type, const struct envelope *envelope, struct contents *contents) {
    size_t count = (size_t)envelope->integers, address_count = (size_t)envelope->addresses;
    int *integers = calloc(count + 1, sizeof *integers);
    MPI_Aint *addresses = calloc(address_count + 1, sizeof *addresses);
    bool is_read = integers != NULL && addresses != NULL &&
                   PMPI_Type_get_contents(type, (int)count, (int)address_count, (int)envelope->types, integers, addresses,
                                          contents->types) == MPI_SUCCESS;
    for (size_t at = 0; at < count && is_read; at++) contents->numbers[at] = integers[at];
    for (size_t at = 0; at < address_count && is_read; at++) contents->addresses[at] = addresses[at];
    free(integers);
    free(addresses);
    return is_read;
}

#if MPI_VERSION >= 4

// So many of the counts are numbers, and the others addresses.
static void divide(const MPI_Count *counts, size_t numbers, size_t addresses, struct contents *contents) {
    for (size_t at = 0; at < numbers; at++) contents->numbers[at] = counts[at];
    for (size_t at = 0; at < addresses; at++) contents->addresses[at] = counts[numbers + at];
}

// An array's sizes are counts, and stand behind the first integers.
static void insert(const int *integers, size_t before, size_t behind, const MPI_Count *counts, size_t sizes,
                   struct contents *contents) {
    int64_t *number = contents->numbers;
    for (size_t at = 0; at < before; at++) *number++ = integers[at];
    for (size_t at = 0; at < sizes; at++) *number++ = counts[at];
    for (size_t at = 0; at < behind; at++) *number++ = integers[before + at];
}

static bool read_large(MPI_Datatype type, const struct envelope *envelope, struct contents *contents) {
    size_t integer_count = (size_t)envelope->integers, count = (size_t)envelope->large;
    int *integers = calloc(integer_count + 1, sizeof *integers);
    MPI_Aint *addresses = calloc((size_t)envelope->addresses + 1, sizeof *addresses);
    MPI_Count *counts = calloc(count + 1, sizeof *counts);
    bool is_read = integers != NULL && addresses != NULL && counts != NULL &&
                   PMPI_Type_get_contents_c(type, envelope->integers, envelope->addresses, envelope->large,
                                            envelope->types, integers, addresses, counts,
                                            contents->types) == MPI_SUCCESS;
    if (is_read) switch (contents->combiner) {
        case MPI_COMBINER_HVECTOR: divide(counts, 2, 1, contents); break;
        case MPI_COMBINER_HINDEXED:
        case MPI_COMBINER_STRUCT: divide(counts, (size_t)counts[0] + 1, (size_t)counts[0], contents); break;
        case MPI_COMBINER_HINDEXED_BLOCK: divide(counts, 2, (size_t)counts[0], contents); break;
        case MPI_COMBINER_SUBARRAY: insert(integers, 1, integer_count - 1, counts, count, contents); break;
        case MPI_COMBINER_DARRAY: insert(integers, 3, integer_count - 3, counts, count, contents); break;
        default: divide(counts, count, 0, contents);
        }
    free(integers);
    free(addresses);
    free(counts);
    return is_read;
}

#endif

bool contents_of(MPI_Datatype type, struct contents *contents) {
    struct envelope envelope;
    *contents = (struct contents){0};
    contents->combiner = combiner_of(type, &envelope);
    // One of Fortran's types of a given precision has no type inside, and neither has a structure of nothing.
    bool has_contents = envelope.types > 0 || contents->combiner == MPI_COMBINER_STRUCT;
    if (contents->combiner == MPI_COMBINER_NAMED || !has_contents) return true;
    size_t numbers = (size_t)(envelope.integers + envelope.large);
    bool is_read = reserve(contents, numbers, (size_t)(envelope.addresses + envelope.large), (size_t)envelope.types);
#if MPI_VERSION >= 4
    if (is_read && envelope.large > 0)
        is_read = read_large(type, &envelope, contents);
    else
#endif
        is_read = is_read && read_small(type, &envelope, contents);
    if (is_read)
        contents->type_count = (int)envelope.types;
    else
        free_contents(contents);
    return is_read;
}
