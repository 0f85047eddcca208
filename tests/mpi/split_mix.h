// SplitMix64: numbers that look random and follow from a seed (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014).
#ifndef SPLIT_MIX_H
#define SPLIT_MIX_H

#include <stdint.h>

static inline uint64_t split_mix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

#endif
