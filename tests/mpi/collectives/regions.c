// Memory that a call reads or writes, of any kind, and whether it holds what it should.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives.h"

MPI_Aint extent_of(const struct type *type) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type->type, &lower, &extent);
    return extent;
}

void fill_region(struct region *region, size_t elements, const struct plan *plan) {
    region->bytes = elements * (size_t)extent_of(plan->type) + GUARD;
    region->before = malloc(region->bytes);
    region->expected = malloc(region->bytes);
    fill_elements(region->before, elements, plan->type, plan->operation, own);
    memset(region->before + region->bytes - GUARD, 0x5a, GUARD);
    memcpy(region->expected, region->before, region->bytes);
    region->kind = (enum memory)(own() % MEMORIES);
    if (own() % 3 == 0) region->kind = DEVICE;
    if (plan->place == ON_GPUS) region->kind = (enum memory[]){DEVICE, POOL, EXPORTABLE}[own() % 3];
    if (plan->place == FOR_ALL_KERNELS) region->kind = (enum memory[]){DEVICE, EXPORTABLE}[own() % 2];
    region->shift = own() % 3 * (size_t)extent_of(plan->type);
    // MPI knows no alignment.
    if (plan->place == ANYWHERE && own() % 4 == 0) region->shift += 1 + own() % 7;
    region->address =
        (unsigned char *)gpu_allocate(region->kind, region->shift + region->bytes) + region->shift;
    gpu_copy(region->address, region->before, region->bytes);
}

void drop_region(struct region *region) {
    gpu_free(region->kind, region->address - region->shift, region->shift + region->bytes);
    free(region->before);
    free(region->expected);
}

// Whether a region on a GPU is what it should be; behind it nothing has changed.
int is_right(const struct region *region, const struct plan *plan, size_t skip_from, size_t skip_to) {
    unsigned char *found = malloc(region->bytes);
    gpu_copy(found, region->address, region->bytes);
    size_t extent = (size_t)extent_of(plan->type), at = 0;
    for (; at < region->bytes; at++) {
        if (found[at] == region->expected[at] || (at >= skip_from && at < skip_to)) continue;
        size_t in_element = at % extent, first = plan->type->part, second = plan->type->second_at;
        int in_data = plan->type->class != PAIR || in_element < first ||
                      (in_element >= second && in_element < second + plan->type->second);
        if (plan->type->type == MPI_LONG_DOUBLE) in_data = in_element < 10;
        if (in_data || at >= region->bytes - GUARD) break;
    }
    int right = at == region->bytes;
    if (!right)
        fprintf(stderr, "rank %d: byte %zu of %zu is %d and not %d\n", rank, at, region->bytes, found[at],
                region->expected[at]);
    free(found);
    return right;
}
