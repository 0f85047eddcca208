// Is the libcauseway_comm.so that was found the one that the interposer was built for? Functions of another
// one may take other arguments, so that nothing of it may be called.

#include <stdio.h>
#include <unistd.h>

#include "shim.h"

// A library from before this function was made has none.
extern uint32_t causeway_comm_version(void) __attribute__((weak));

__attribute__((constructor)) static void refuse_other_library(void) {
    if (causeway_comm_version != NULL && causeway_comm_version() == CAUSEWAY_COMM_VERSION) return;
    fprintf(stderr, "causeway: libcauseway_mpi.so needs version %d of libcauseway_comm.so, and has found ",
            CAUSEWAY_COMM_VERSION);
    if (causeway_comm_version != NULL)
        fprintf(stderr, "version %u", causeway_comm_version());
    else
        fprintf(stderr, "an older one");
    fprintf(stderr, ": use the two of one release, side by side in one folder, and look at LD_LIBRARY_PATH and "
                    "LD_PRELOAD\n");
    _exit(125);
}
