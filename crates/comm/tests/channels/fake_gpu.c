/* A GPU that is none: libcuda.so.1 with the calls that crates/comm makes, whose memory is memory of the host,
 * and the kernel module gdrdrv, put in front of open, ioctl and mmap. So an RDMA device reaches the "GPU's"
 * memory, and the processor does through the "BAR", as on machines that have the real ones.
 *
 * It lacks all that crates/comm can do without: cudaIPC, virtual memory management, kernels, cuStreamQuery.
 *
 * FAKE_GPU_GPUDIRECT=1: cards reach its memory. FAKE_GPU_GDRDRV=1: gdrdrv is there, =old in a version that is
 * too old. FAKE_GPU_DMA_BUF=1: dma-bufs can be made, and mapped. FAKE_GPU_COPY_US: microseconds that each copy takes.
 * FAKE_GPU_BAR_US: microseconds that each access of the processor to a dma-buf takes at its begin and its end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NOT_SUPPORTED = 801 };
enum { MAX_ALLOCATIONS = 256, SLACK = 64 << 10 };

/* An allocation: part of a file in memory, so that it can be mapped again. */
struct allocation {
    uint64_t start, bytes, number;
    int file, is_ordered;
};

static struct allocation allocations[MAX_ALLOCATIONS];
static uint64_t last_number;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int the_context, the_stream;

static size_t whole(size_t bytes) { return (bytes + SLACK - 1) / SLACK * SLACK; }

static int is_set(const char *name) { return getenv(name) != NULL; }

/* The allocation that holds an address; needs the lock. */
static struct allocation *at(uint64_t address) {
    for (int i = 0; i < MAX_ALLOCATIONS; i++)
        if (allocations[i].bytes && address >= allocations[i].start &&
            address - allocations[i].start < allocations[i].bytes)
            return &allocations[i];
    return NULL;
}

int cuInit(unsigned flags) { return flags ? INVALID : OK; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    size_t all = whole(bytes);
    int file = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)all)) return INVALID;
    /* At a multiple of 64 KiB, as GPUs' pages are. */
    char *space = mmap(NULL, all + SLACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *start = (char *)(((uintptr_t)space + SLACK - 1) / SLACK * SLACK);
    void *mapped = mmap(start, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    if (mapped == MAP_FAILED) return INVALID;
    pthread_mutex_lock(&mutex);
    int status = INVALID;
    for (int i = 0; i < MAX_ALLOCATIONS && status; i++)
        if (!allocations[i].bytes) {
            allocations[i] = (struct allocation){(uint64_t)start, bytes, ++last_number, file, 0};
            *address = (uint64_t)start;
            status = OK;
        }
    pthread_mutex_unlock(&mutex);
    return status;
}

int cuMemFree_v2(uint64_t address) {
    pthread_mutex_lock(&mutex);
    struct allocation *found = at(address);
    int status = found && found->start == address ? OK : INVALID;
    if (!status) {
        munmap((void *)found->start, whole(found->bytes));
        close(found->file);
        found->bytes = 0;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Writes an attribute of an address; needs the lock. */
static int attribute(void *value, int name, uint64_t address) {
    struct allocation *found = at(address);
    if (!found) return INVALID;
    switch (name) {
    case 1: *(void **)value = &the_context; return OK;
    case 2: *(int *)value = 2; return OK;
    case 6: *(char *)value = (char)found->is_ordered; return OK;
    case 7: *(uint64_t *)value = found->number; return OK;
    case 8: *(char *)value = 0; return OK;
    case 9: *(int *)value = 0; return OK;
    case 10: *(char *)value = 0; return OK;
    case 11: *(uint64_t *)value = found->start; return OK;
    case 12: *(uint64_t *)value = found->bytes; return OK;
    case 14: *(uint64_t *)value = 0; return OK;
    default: return INVALID;
    }
}

int cuPointerGetAttribute(void *value, int name, uint64_t address) {
    pthread_mutex_lock(&mutex);
    int status = attribute(value, name, address);
    pthread_mutex_unlock(&mutex);
    return status;
}

int cuPointerGetAttributes(unsigned count, const int *names, void **values, uint64_t address) {
    pthread_mutex_lock(&mutex);
    int status = OK;
    for (unsigned i = 0; i < count && !status; i++) status = attribute(values[i], names[i], address);
    pthread_mutex_unlock(&mutex);
    return status;
}

int cuPointerSetAttribute(const void *value, int name, uint64_t address) {
    pthread_mutex_lock(&mutex);
    struct allocation *found = at(address);
    if (found && name == 6) found->is_ordered = *(const int *)value;
    pthread_mutex_unlock(&mutex);
    return found ? OK : INVALID;
}

static __thread void *current;
int cuCtxPushCurrent_v2(void *context) { current = context; return OK; }
int cuCtxPopCurrent_v2(void **context) { *context = current; return OK; }
int cuCtxGetCurrent(void **context) { *context = &the_context; return OK; }
int cuCtxGetDevice(int *device) { *device = 0; return OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &the_context;
    return device ? INVALID : OK;
}
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    memset(uuid, 7, 16);
    return device ? INVALID : OK;
}
int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "fake GPU");
    return device ? INVALID : OK;
}
int cuDeviceGetAttribute(int *value, int name, int device) {
    /* GPUDirect RDMA, whose writes need a flush, and dma-bufs. */
    *value = (name == 116 && is_set("FAKE_GPU_GPUDIRECT")) || (name == 124 && is_set("FAKE_GPU_DMA_BUF"));
    return device ? INVALID : OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode > 2 ? INVALID : OK; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return OK;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    *stream = &the_stream;
    return flags > 1 || priority != -5 ? INVALID : OK;
}

int cuStreamSynchronize(void *stream) { (void)stream; return OK; }
int cuStreamIsCapturing(void *stream, int *is) { (void)stream; *is = 0; return OK; }
int cuEventCreate(void **event, unsigned flags) { *event = malloc(1); return flags > 2 ? INVALID : OK; }
int cuEventRecord(void *event, void *stream) { (void)stream; return event ? OK : INVALID; }
int cuEventQuery(void *event) { return event ? OK : INVALID; }
int cuEventSynchronize(void *event) { return event ? OK : INVALID; }
int cuEventDestroy_v2(void *event) { free(event); return OK; }
int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    *address = flags == 3 ? calloc(1, bytes) : NULL;
    return *address ? OK : INVALID;
}

int cuMemFreeHost(void *address) {
    free(address);
    return OK;
}

/* Copies that its engines have made, told at the end. */
static _Atomic uint64_t copies;

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    (void)stream;
    copies++;
    const char *takes = getenv("FAKE_GPU_COPY_US");
    if (takes) usleep((useconds_t)atoi(takes));
    memcpy((void *)to, (const void *)from, bytes);
    return OK;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    memcpy((void *)to, from, bytes);
    return OK;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    memcpy(to, (const void *)from, bytes);
    return OK;
}
int cuFlushGPUDirectRDMAWrites(int target, int scope) { return target == 0 && scope == 100 ? OK : INVALID; }

int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t bytes, int kind,
                                  unsigned long long flags) {
    (void)flags;
    if (!is_set("FAKE_GPU_DMA_BUF") || kind != 1) return NOT_SUPPORTED;
    pthread_mutex_lock(&mutex);
    struct allocation *found = at(address);
    /* The whole of one: offsets in files begin at its start. */
    int status = found && found->start == address && bytes >= found->bytes ? OK : INVALID;
    if (!status) *(int *)handle = fcntl(found->file, F_DUPFD_CLOEXEC, 3);
    pthread_mutex_unlock(&mutex);
    return status;
}

/* gdrdrv: what is pinned is mapped from the allocation's file. Its descriptor is one of /dev/null. */

struct pin {
    uint64_t start, bytes;
};
static struct pin pins[MAX_ALLOCATIONS];
static int gdrdrv = -1;
/* What is mapped and pinned now, and the most at a time, told at the end. */
static int pinned, most_pinned;

struct pin_buffer {
    uint64_t address, bytes, token;
    uint32_t space;
    uint64_t handle;
};

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = va_arg(arguments, mode_t);
    va_end(arguments);
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    if (strcmp(path, "/dev/gdrdrv")) return real(path, flags, mode);
    if (!is_set("FAKE_GPU_GDRDRV")) {
        errno = ENOENT;
        return -1;
    }
    return gdrdrv = real("/dev/null", flags, mode);
}

int ioctl(int file, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (request == 0x40086200 && is_set("FAKE_GPU_BAR_US")) { /* DMA_BUF_IOCTL_SYNC */
        usleep((useconds_t)atoi(getenv("FAKE_GPU_BAR_US")));
        return 0;
    }
    if (file != gdrdrv || gdrdrv < 0) {
        int (*real)(int, unsigned long, ...) = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
        return real(file, request, argument);
    }
    int status = -1;
    errno = EINVAL;
    pthread_mutex_lock(&mutex);
    if (request == 0xc008daff) { /* GDRDRV_IOC_GET_VERSION */
        uint32_t *version = argument;
        version[0] = !strcmp(getenv("FAKE_GPU_GDRDRV"), "old") ? 1 << 16 | 3 : 2 << 16 | 4;
        version[1] = version[0] & ~0xffffu;
        status = 0;
    } else if (request == 0xc028da01) { /* GDRDRV_IOC_PIN_BUFFER */
        struct pin_buffer *wanted = argument;
        struct allocation *found = at(wanted->address);
        int is_whole = wanted->address % SLACK == 0 && wanted->bytes % SLACK == 0 && wanted->bytes;
        if (found && is_whole && wanted->address - found->start + wanted->bytes <= whole(found->bytes))
            for (uint64_t i = 0; i < MAX_ALLOCATIONS && status; i++)
                if (!pins[i].bytes) {
                    pins[i] = (struct pin){wanted->address, wanted->bytes};
                    wanted->handle = i + 1;
                    if (++pinned > most_pinned) most_pinned = pinned;
                    status = 0;
                }
    } else if (request == 0xc008da02) { /* GDRDRV_IOC_UNPIN_BUFFER */
        uint64_t handle = *(uint64_t *)argument;
        if (handle && handle <= MAX_ALLOCATIONS && pins[handle - 1].bytes) {
            pins[handle - 1].bytes = 0;
            pinned--;
            status = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    void *(*real)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    if (file != gdrdrv || gdrdrv < 0) return real(address, bytes, protection, flags, file, offset);
    void *mapped = MAP_FAILED;
    errno = EINVAL;
    pthread_mutex_lock(&mutex);
    uint64_t handle = (uint64_t)offset >> 12;
    struct allocation *found = handle && handle <= MAX_ALLOCATIONS ? at(pins[handle - 1].start) : NULL;
    if (found && bytes == pins[handle - 1].bytes)
        mapped = real(address, bytes, protection, flags, found->file, (off_t)(pins[handle - 1].start - found->start));
    pthread_mutex_unlock(&mutex);
    return mapped;
}

__attribute__((destructor)) static void tell(void) {
    if (is_set("FAKE_GPU_COPY_US")) fprintf(stderr, "copies: %llu\n", (unsigned long long)copies);
    if (most_pinned) fprintf(stderr, "gdrdrv: %d pinned at the end, %d at the most\n", pinned, most_pinned);
}
