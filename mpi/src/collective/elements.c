// Which of the MPI's predefined types and operations do kernels reduce?

#include <stddef.h>

#include "collective.h"

static int signed_of(size_t bytes) {
    switch (bytes) {
    case 1: return CAUSEWAY_COMM_INT8;
    case 2: return CAUSEWAY_COMM_INT16;
    case 4: return CAUSEWAY_COMM_INT32;
    case 8: return CAUSEWAY_COMM_INT64;
    default: return 0;
    }
}

static int unsigned_of(size_t bytes) {
    return signed_of(bytes) + CAUSEWAY_COMM_UINT8 - CAUSEWAY_COMM_INT8;
}

int element_of(MPI_Datatype type) {
    // An MPI's handles need not be constants.
    const struct {
        MPI_Datatype type;
        int element;
    } known[] = {
        {MPI_FLOAT, CAUSEWAY_COMM_FLOAT32},
        {MPI_DOUBLE, CAUSEWAY_COMM_FLOAT64},
        {MPI_INT, signed_of(sizeof(int))},
        {MPI_LONG, signed_of(sizeof(long))},
        {MPI_LONG_LONG, signed_of(sizeof(long long))},
        {MPI_SHORT, signed_of(sizeof(short))},
        {MPI_SIGNED_CHAR, CAUSEWAY_COMM_INT8},
        {MPI_UNSIGNED, unsigned_of(sizeof(unsigned))},
        {MPI_UNSIGNED_LONG, unsigned_of(sizeof(unsigned long))},
        {MPI_UNSIGNED_LONG_LONG, unsigned_of(sizeof(unsigned long long))},
        {MPI_UNSIGNED_SHORT, unsigned_of(sizeof(unsigned short))},
        {MPI_UNSIGNED_CHAR, CAUSEWAY_COMM_UINT8},
        {MPI_INT8_T, CAUSEWAY_COMM_INT8},
        {MPI_INT16_T, CAUSEWAY_COMM_INT16},
        {MPI_INT32_T, CAUSEWAY_COMM_INT32},
        {MPI_INT64_T, CAUSEWAY_COMM_INT64},
        {MPI_UINT8_T, CAUSEWAY_COMM_UINT8},
        {MPI_UINT16_T, CAUSEWAY_COMM_UINT16},
        {MPI_UINT32_T, CAUSEWAY_COMM_UINT32},
        {MPI_UINT64_T, CAUSEWAY_COMM_UINT64},
        {MPI_AINT, signed_of(sizeof(MPI_Aint))},
        {MPI_OFFSET, signed_of(sizeof(MPI_Offset))},
        {MPI_COUNT, signed_of(sizeof(MPI_Count))},
        {MPI_BYTE, CAUSEWAY_COMM_UINT8},
        {MPI_C_BOOL, CAUSEWAY_COMM_UINT8},
        {MPI_C_FLOAT_COMPLEX, CAUSEWAY_COMM_COMPLEX64},
        {MPI_C_DOUBLE_COMPLEX, CAUSEWAY_COMM_COMPLEX128},
        {MPI_SHORT_INT, CAUSEWAY_COMM_SHORT_INT},
        {MPI_2INT, CAUSEWAY_COMM_INT_INT},
        {MPI_LONG_INT, sizeof(long) == 8 ? CAUSEWAY_COMM_LONG_INT : CAUSEWAY_COMM_INT_INT},
        {MPI_FLOAT_INT, CAUSEWAY_COMM_FLOAT_INT},
        {MPI_DOUBLE_INT, CAUSEWAY_COMM_DOUBLE_INT},
        {MPI_REAL, CAUSEWAY_COMM_FLOAT32},
        {MPI_DOUBLE_PRECISION, CAUSEWAY_COMM_FLOAT64},
        {MPI_INTEGER, CAUSEWAY_COMM_INT32},
        {MPI_COMPLEX, CAUSEWAY_COMM_COMPLEX64},
        {MPI_DOUBLE_COMPLEX, CAUSEWAY_COMM_COMPLEX128},
#ifdef MPIX_C_FLOAT16
        {MPIX_C_FLOAT16, CAUSEWAY_COMM_FLOAT16},
#endif
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at].type == type) return known[at].element;
    return 0;
}

int operation_of(MPI_Op op) {
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,   MPI_BAND,
                            MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (known[at] == op) return CAUSEWAY_COMM_MAX + (int)at;
    return 0;
}
