// Starts the benchmark where it names no library of an MPI, since one file serves all MPIs of a binary
// interface, and their libraries have several names. The MPI's library is loaded first, for all to see, as if
// this program had been linked with it; then the benchmark, causeway_mpi_bench.so beside this program, whose
// calls find the interposer before the MPI.

#include <dlfcn.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(MPI_ABI_VERSION)
#define INTERFACE "the standard ABI"
static const char *const NAMES[] = {"libmpi_abi.so.0", "libmpi_abi.so.1", "libmpi_abi.so"};
#else
#define INTERFACE "MPICH's interface"
// What all MPIs of this interface call it, and Debian.
static const char *const NAMES[] = {"libmpi.so.12", "libmpich.so.12"};
#endif

static int give_up(const char *what) {
    fprintf(stderr, "causeway_mpi_bench: %s\n", what);
    return 127;
}

int main(int argc, char **argv) {
    void *mpi = NULL;
    for (size_t at = 0; at < sizeof NAMES / sizeof *NAMES && mpi == NULL; at++)
        mpi = dlopen(NAMES[at], RTLD_LAZY | RTLD_GLOBAL);
    if (mpi == NULL)
        return give_up("there is no library of an MPI with " INTERFACE
                       " where the loader looks: name its folder in "
                       "LD_LIBRARY_PATH");
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof ".so");
    if (length < 0) return give_up("cannot find the path of this program");
    strcpy(path + length, ".so");
    void *bench = dlopen(path, RTLD_LAZY);
    if (bench == NULL) return give_up(dlerror());
    int (*start)(int, char **) = (int (*)(int, char **))dlsym(bench, "main");
    if (start == NULL) return give_up(dlerror());
    return start(argc, argv);
}
