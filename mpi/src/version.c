// Version check of libcauseway_comm.so: whether the loaded library is the one that the interposer was built
// for. Functions of another version may have other arguments, so none of them may be called.

#include <stdio.h>
#include <unistd.h>

#include "interposer.h"

// A library that is older than this function has none.
extern uint32_t causeway_comm_version(void) __attribute__((weak));

__attribute__((constructor)) static void refuse_other_library(void) {
    if (causeway_comm_version != NULL && causeway_comm_version() == CAUSEWAY_COMM_VERSION) return;
    fprintf(stderr, "causeway: libcauseway_mpi.so needs version %d of libcauseway_comm.so, but found ",
            CAUSEWAY_COMM_VERSION);
    if (causeway_comm_version != NULL)
        fprintf(stderr, "version %u", causeway_comm_version());
    else
        fprintf(stderr, "an older version");
    fprintf(stderr, ": put both libraries of one release into one folder, and check LD_LIBRARY_PATH and "
                    "LD_PRELOAD\n");
    _exit(125);
}
