// What libstdc++.a of the machine that builds takes of a glibc newer than 2.28, for programs that are to run on that, too.

#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// Whether there is one thread alone (2.32): never said, so that counts of references are always atomic.
char __libc_single_threaded = 0;

// Random bytes (2.36), as that of glibc: it does not come back without.
uint32_t arc4random(void) {
    uint32_t word;
    if (getrandom(&word, sizeof word, 0) != sizeof word) abort();
    return word;
}
