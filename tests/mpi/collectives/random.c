// Numbers that are the same at all ranks, and a rank's own.
#include "../split_mix.h"
#include "collectives.h"

static uint64_t common_state, own_state;

void start_random(uint64_t seed) {
    common_state = seed;
    own_state = seed * 31 + (uint64_t)rank;
}

uint64_t advance(uint64_t *state) {
    return split_mix(state);
}

uint64_t own(void) {
    return advance(&own_state);
}

// The same at all ranks.
int common(int limit) {
    return (int)(advance(&common_state) % (uint64_t)limit);
}

uint64_t common_salt(void) {
    return advance(&common_state);
}
