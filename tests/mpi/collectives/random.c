// Numbers that are the same at all ranks, and a rank's own.
#include "collectives.h"

static uint64_t common_state, own_state;

void start_random(uint64_t seed) {
    common_state = seed;
    own_state = seed * 31 + (uint64_t)rank;
}

uint64_t advance(uint64_t *state) {
    // splitmix64 (Steele, Lea and Flood, 2014).
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
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
