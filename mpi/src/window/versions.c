// Versions of the tables of attached memory, in memory that all ranks of a dynamic window share: so a rank
// sees without the MPI that another one has attached nothing since. Under MPICH, a call that reads the table
// may wait until the target is in a call of the MPI. Ranks that share no such memory, which are in containers
// of their own or on other hosts, read the table each time.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "window.h"

// A name that no other file has; false if the system has no random numbers.
static bool make_name(char *name, size_t bytes) {
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return false;
    snprintf(name, bytes, "/dev/shm/causeway-window-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return true;
}

static void *map_file(int file, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

// The file has its memory from the beginning: a write later must not fail.
static void *make_file(const char *name, size_t bytes) {
    int file = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return NULL;
    void *memory = posix_fallocate(file, 0, (off_t)bytes) == 0 ? map_file(file, bytes) : NULL;
    close(file);
    return memory;
}

static void *open_file(const char *name, size_t bytes) {
    int file = open(name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return NULL;
    void *memory = lseek(file, 0, SEEK_END) == (off_t)bytes ? map_file(file, bytes) : NULL;
    close(file);
    return memory;
}

static size_t bytes_of_versions(const struct window *window) {
    return (size_t)window->ranks * sizeof *window->versions;
}

int share_versions(struct window *window) {
    char name[64] = "";
    size_t bytes = bytes_of_versions(window);
    if (window->rank == 0 && make_name(name, sizeof name)) window->versions = make_file(name, bytes);
    int error = PMPI_Bcast(name, sizeof name, MPI_BYTE, 0, window->comm);
    name[sizeof name - 1] = 0;
    if (error == MPI_SUCCESS && window->rank != 0 && name[0] != 0) window->versions = open_file(name, bytes);
    int has_all = window->versions != NULL;
    if (error == MPI_SUCCESS)
        error = PMPI_Allreduce(MPI_IN_PLACE, &has_all, 1, MPI_INT, MPI_MIN, window->comm);
    if (window->rank == 0 && name[0] != 0) unlink(name);
    if (error != MPI_SUCCESS || !has_all) drop_versions(window);
    return error;
}

void drop_versions(struct window *window) {
    if (window->versions != NULL) munmap(window->versions, bytes_of_versions(window));
    window->versions = NULL;
}

uint64_t version_of(const struct window *window, int rank) {
    // What the rank has written before, it has written with the MPI or into this memory.
    return window->versions != NULL ? __atomic_load_n(&window->versions[rank], __ATOMIC_ACQUIRE)
                                    : UNKNOWN_VERSION;
}

void change_version(struct window *window) {
    // The table has been written.
    if (window->versions != NULL) __atomic_add_fetch(&window->versions[window->rank], 1, __ATOMIC_RELEASE);
}
