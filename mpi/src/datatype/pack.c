// MPI_Pack and MPI_Unpack of memory on GPUs. What they make is the same as of memory of the host: the bytes
// of the elements, one behind the other.

#include <stdlib.h>
#include <string.h>

#include "datatype.h"

// Elements that are not on a GPU as a whole, by way of memory of the host where what is packed is on one.
static const char *copy_by_host(const struct runs *runs, enum memory_location location, void *typed, void *packed, uint64_t bytes,
                                bool is_pack) {
    void *memory = causeway_comm_on_gpu(packed) ? malloc(bytes + 1) : packed;
    if (memory == NULL) return "memory to pack in cannot be had";
    const char *message = NULL;
    if (memory != packed && !is_pack && causeway_comm_copy(memory, packed, bytes) != 0) message = causeway_comm_error();
    if (message == NULL && location == IN_BOTH)
        message = copy_runs_anywhere(runs, typed, memory, bytes, is_pack);
    else if (message == NULL)
        copy_runs_on_host(runs, typed, memory, bytes, is_pack);
    if (message == NULL && memory != packed && is_pack && causeway_comm_copy(packed, memory, bytes) != 0)
        message = causeway_comm_error();
    if (memory != packed) free(memory);
    return message;
}

const char *copy_elements(void *typed, MPI_Count count, MPI_Datatype type, void *packed, bool is_pack) {
    uint64_t bytes = bytes_of(count, type);
    enum memory_location location = location_of(typed, count, type);
    if (bytes == 0) return NULL;
    if (location != IN_HOST) causeway_comm_sync_memory(typed);
    if (is_contiguous(type)) {
        void *to = is_pack ? packed : typed, *from = is_pack ? typed : packed;
        if (location == ON_GPU || causeway_comm_on_gpu(packed))
            return causeway_comm_copy(to, from, bytes) == 0 ? NULL : causeway_comm_error();
        memcpy(to, from, bytes);
        return NULL;
    }
    struct runs *runs = hold_runs(type);
    if (runs == NULL) return NO_RUNS;
    const char *message = location == ON_GPU ? copy_runs(runs, typed, packed, bytes, is_pack)
                                        : copy_by_host(runs, location, typed, packed, bytes, is_pack);
    drop_runs(runs);
    return message;
}

// Packs into `packed`, or unpacks from it, at a position that moves on.
static int pack(const char *call, void *typed, MPI_Count count, MPI_Datatype type, void *packed,
                MPI_Count size, MPI_Count *position, MPI_Comm comm, bool is_pack) {
    uint64_t bytes = bytes_of(count, type);
    if (count < 0 || *position < 0 || (uint64_t)size < (uint64_t)*position + bytes) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_TRUNCATE);
        return MPI_ERR_TRUNCATE;
    }
    const char *message = copy_elements(typed, count, type, (char *)packed + *position, is_pack);
    if (message != NULL) return raise_error(comm, call, message);
    *position += (MPI_Count)bytes;
    return MPI_SUCCESS;
}

#define PACK_CALLS(suffix, number)                                                                        \
    EXPORT int MPI_Pack##suffix(const void *in, number count, MPI_Datatype type, void *out, number size,  \
                                number *position, MPI_Comm comm) {                                        \
        if (!is_on_gpu(in, count, type) && !causeway_comm_on_gpu(out))                                    \
            return PMPI_Pack##suffix(in, count, type, out, size, position, comm);                         \
        MPI_Count at = *position;                                                                         \
        int error = pack("MPI_Pack", (void *)in, count, type, out, size, &at, comm, true);                \
        /* It is in the room, which has the same type. */                                                 \
        *position = (number)at;                                                                           \
        return error;                                                                                     \
    }                                                                                                     \
    EXPORT int MPI_Unpack##suffix(const void *in, number size, number *position, void *out, number count, \
                                  MPI_Datatype type, MPI_Comm comm) {                                     \
        if (!is_on_gpu(out, count, type) && !causeway_comm_on_gpu(in))                                    \
            return PMPI_Unpack##suffix(in, size, position, out, count, type, comm);                       \
        MPI_Count at = *position;                                                                         \
        int error = pack("MPI_Unpack", out, count, type, (void *)in, size, &at, comm, false);             \
        *position = (number)at;                                                                           \
        return error;                                                                                     \
    }

PACK_CALLS(, int)
#if MPI_VERSION >= 4
PACK_CALLS(_c, MPI_Count)
#endif
