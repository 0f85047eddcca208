// Integers on a GPU or in the host, which follow from a rank and a seed.

#include <stdlib.h>

#include "random_calls.h"

struct numbers take(enum memory memory, size_t count) {
    struct numbers numbers = {memory, count, calloc(count + 1, sizeof(int)), NULL};
    numbers.there = gpu_allocate(memory, (count + 1) * sizeof(int));
    copy_bytes(numbers.there, numbers.here, count * sizeof(int));
    return numbers;
}

void write_out(struct numbers *numbers) {
    copy_bytes(numbers->there, numbers->here, numbers->count * sizeof(int));
}

void read_in(struct numbers *numbers) {
    copy_bytes(numbers->here, numbers->there, numbers->count * sizeof(int));
}

void give_back(struct numbers *numbers) {
    gpu_free(numbers->memory, numbers->there, (numbers->count + 1) * sizeof(int));
    free(numbers->here);
}

int value(int rank, size_t at, uint64_t seed) {
    return (int)(seed % 1000) + rank * 100000 + (int)at;
}

void fill_with(struct numbers *numbers, int rank, uint64_t seed) {
    for (size_t at = 0; at < numbers->count; at++) numbers->here[at] = value(rank, at, seed);
    write_out(numbers);
}

void must_be(const struct group *group, struct numbers *numbers, int rank, uint64_t seed, const char *call) {
    read_in(numbers);
    for (size_t at = 0; at < numbers->count; at++)
        if (numbers->here[at] != value(rank, at, seed)) {
            is_wrong(group, "%s: number %zu of %zu (%s) is %d, not %d", call, at, numbers->count,
                     gpu_name(numbers->memory), numbers->here[at], value(rank, at, seed));
            return;
        }
}
