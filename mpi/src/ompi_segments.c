// Shared memory segments of Open MPI's ranks, if each rank is in a PID namespace of its own.
//
// A rank that attaches a segment compares the process id of its creator with its own, and uses the creator's
// address if they are equal (opal/mca/shmem of 4.1 and 5.0). In PID namespaces most ranks are process 1:
// their first message ended with a segmentation fault. The interposer defines the two functions of Open MPI
// that create and attach segments, which the loader finds before the MPI's own. Other MPIs have no such
// functions.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "interposer.h"

// The description of a segment that Open MPI sends to other ranks (opal_shmem_ds_t of 4.1 and 5.0).
struct segment {
    pid_t creator;
    unsigned char flags;
    int number;
    size_t bytes;
    void *address;
    // The name of the file, or of what replaces it; with the creator's rank in it.
    char name[];
};

// Names of the last segments that this process has created. A forgotten one is mapped a second time.
enum { MAX_KNOWN_RANGES = 64 };
static char *known[MAX_KNOWN_RANGES];
static unsigned known_count;
static pthread_mutex_t known_mutex = PTHREAD_MUTEX_INITIALIZER;

// The MPI's own function. A program may have loaded its MPI with local scope: then it is in the library of
// the caller.
static void *next(const char *name, const void *caller) {
    void *found = dlsym(RTLD_NEXT, name);
    Dl_info info;
    if (found != NULL || dladdr(caller, &info) == 0) return found;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return NULL;
    found = dlsym(library, name);
    dlclose(library);
    return found;
}

EXPORT int opal_shmem_segment_create(struct segment *segment, const char *file, size_t bytes);
EXPORT int opal_shmem_segment_create(struct segment *segment, const char *file, size_t bytes) {
    int (*create)(struct segment *, const char *, size_t) = next(__func__, __builtin_return_address(0));
    // OPAL_ERROR
    if (create == NULL) return -1;
    int error = create(segment, file, bytes);
    if (error == 0) {
        pthread_mutex_lock(&known_mutex);
        char **entry = &known[known_count++ % MAX_KNOWN_RANGES];
        free(*entry);
        *entry = strdup(segment->name);
        pthread_mutex_unlock(&known_mutex);
    }
    return error;
}

static bool is_own(const struct segment *segment) {
    bool found = false;
    pthread_mutex_lock(&known_mutex);
    for (unsigned at = 0; at < MAX_KNOWN_RANGES && !found; at++)
        found = known[at] != NULL && strcmp(known[at], segment->name) == 0;
    pthread_mutex_unlock(&known_mutex);
    return found;
}

EXPORT void *opal_shmem_segment_attach(struct segment *segment);
EXPORT void *opal_shmem_segment_attach(struct segment *segment) {
    void *(*attach)(struct segment *) = next(__func__, __builtin_return_address(0));
    if (attach == NULL) return NULL;
    // No process has this id.
    if (segment->creator == getpid() && !is_own(segment)) segment->creator = -1;
    return attach(segment);
}
