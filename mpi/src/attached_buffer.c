// The buffer of buffered sends (MPI_Buffer_attach) on a GPU: the MPI gets host memory of the same size
// instead, which it alone uses. MPI_Buffer_detach returns the program's buffer.

#include <stdlib.h>

#include "operation/operation.h"

// The program's buffer, and the memory that the MPI has instead of it; null if it has the program's.
static void *attached, *replacement;

// The MPI has another buffer now, or none: only one is attached at a time.
static void replace_attached(void *program, void *host) {
    lock();
    free(replacement);
    attached = program;
    replacement = host;
    unlock();
}

// Puts the program's buffer where the MPI has returned its own.
static int return_attached(void *address, int error) {
    void **returned = address;
    if (error != MPI_SUCCESS || replacement == NULL || *returned != replacement) return error;
    *returned = attached;
    replace_attached(NULL, NULL);
    return error;
}

// The MPI waits in a detach until the buffer's messages are sent.
#define BUFFER_CALLS(suffix, N)                                                                              \
    EXPORT int MPI_Buffer_attach##suffix(void *buffer, N bytes) {                                            \
        void *host = NULL;                                                                                   \
        if (bytes > 0 && is_inaccessible(buffer, bytes, MPI_BYTE) && (host = malloc((size_t)bytes)) == NULL) \
            return raise_error(error_comm(), "MPI_Buffer_attach" #suffix,                                    \
                               "cannot allocate host memory of the size of the buffer on a GPU");            \
        int error = PMPI_Buffer_attach##suffix(host != NULL ? host : buffer, bytes);                         \
        if (error == MPI_SUCCESS)                                                                            \
            replace_attached(buffer, host);                                                                  \
        else                                                                                                 \
            free(host);                                                                                      \
        return error;                                                                                        \
    }                                                                                                        \
    EXPORT int MPI_Buffer_detach##suffix(void *address, N *bytes) {                                          \
        bool has_entered = enter_mpi();                                                                      \
        return return_attached(address, leave_mpi(has_entered, PMPI_Buffer_detach##suffix(address, bytes))); \
    }

BUFFER_CALLS(, int)
#if MPI_VERSION >= 4
BUFFER_CALLS(_c, MPI_Count)
#endif
