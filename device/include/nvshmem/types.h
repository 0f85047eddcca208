// Types and constants of the SHMEM facade: the names that stand in its functions, and what they are in C++.
//
// X is called with a name and a type. Which families have which types is the published API's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CAUSEWAY_SHMEM_WHOLE_TYPES(X)                                                                        \
    X(short, short)                                                                                          \
    X(int, int)                                                                                              \
    X(long, long)                                                                                            \
    X(longlong, long long)                                                                                   \
    X(ushort, unsigned short)                                                                                \
    X(uint, unsigned int)                                                                                    \
    X(ulong, unsigned long)                                                                                  \
    X(ulonglong, unsigned long long)                                                                         \
    X(int32, int32_t)                                                                                        \
    X(int64, int64_t)                                                                                        \
    X(uint32, uint32_t)                                                                                      \
    X(uint64, uint64_t)                                                                                      \
    X(size, size_t)                                                                                          \
    X(ptrdiff, ptrdiff_t)

// Of put, get, p, g, and all collectives but those of bits.
#define CAUSEWAY_SHMEM_RMA_TYPES(X)                                                                          \
    CAUSEWAY_SHMEM_WHOLE_TYPES(X)                                                                            \
    X(float, float)                                                                                          \
    X(double, double)                                                                                        \
    X(char, char)                                                                                            \
    X(schar, signed char)                                                                                    \
    X(uchar, unsigned char)                                                                                  \
    X(int8, int8_t)                                                                                          \
    X(int16, int16_t)                                                                                        \
    X(uint8, uint8_t)                                                                                        \
    X(uint16, uint16_t)

// Of put8 to put128 and get8 to get128: bits, and bytes.
#define CAUSEWAY_SHMEM_SIZES(X) X(8, 1) X(16, 2) X(32, 4) X(64, 8) X(128, 16)

// Of bitwise atomic operations; of all that count; and of those that read and write alone.
#define CAUSEWAY_SHMEM_BITWISE_TYPES(X)                                                                      \
    X(uint, unsigned int)                                                                                    \
    X(ulong, unsigned long)                                                                                  \
    X(ulonglong, unsigned long long)                                                                         \
    X(int32, int32_t)                                                                                        \
    X(int64, int64_t)                                                                                        \
    X(uint32, uint32_t)                                                                                      \
    X(uint64, uint64_t)

#define CAUSEWAY_SHMEM_ATOMIC_TYPES(X)                                                                       \
    CAUSEWAY_SHMEM_BITWISE_TYPES(X)                                                                          \
    X(int, int)                                                                                              \
    X(long, long)                                                                                            \
    X(longlong, long long)                                                                                   \
    X(size, size_t)                                                                                          \
    X(ptrdiff, ptrdiff_t)

#define CAUSEWAY_SHMEM_SWAPPED_TYPES(X)                                                                      \
    CAUSEWAY_SHMEM_ATOMIC_TYPES(X)                                                                           \
    X(float, float)                                                                                          \
    X(double, double)

// Of reductions by and, or and xor.
#define CAUSEWAY_SHMEM_REDUCED_BITS_TYPES(X)                                                                 \
    X(uchar, unsigned char)                                                                                  \
    X(ushort, unsigned short)                                                                                \
    X(uint, unsigned int)                                                                                    \
    X(ulong, unsigned long)                                                                                  \
    X(ulonglong, unsigned long long)                                                                         \
    X(int8, int8_t)                                                                                          \
    X(int16, int16_t)                                                                                        \
    X(int32, int32_t)                                                                                        \
    X(int64, int64_t)                                                                                        \
    X(uint8, uint8_t)                                                                                        \
    X(uint16, uint16_t)                                                                                      \
    X(uint32, uint32_t)                                                                                      \
    X(uint64, uint64_t)                                                                                      \
    X(size, size_t)

// A comparison of what is waited for, `found CMP expected`.
enum {
    NVSHMEM_CMP_EQ = 0,
    NVSHMEM_CMP_NE = 1,
    NVSHMEM_CMP_GT = 2,
    NVSHMEM_CMP_LE = 3,
    NVSHMEM_CMP_LT = 4,
    NVSHMEM_CMP_GE = 5,
};

// What a signal does to its word.
enum { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 };

// Teams: all PEs, and those of this host.
typedef int32_t nvshmem_team_t;
enum {
    NVSHMEM_TEAM_INVALID = -1,
    NVSHMEM_TEAM_WORLD = 0,
    NVSHMEM_TEAM_SHARED = 1,
    NVSHMEMX_TEAM_NODE = 2,
};

enum {
    NVSHMEMX_SUCCESS = 0,
    NVSHMEMX_ERROR_INVALID_VALUE = 1,
    NVSHMEMX_ERROR_NOT_SUPPORTED = 5,
    NVSHMEMX_ERROR_INTERNAL = 7
};
