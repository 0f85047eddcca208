// How fast does a device read what cores have just written, and write where they have just read?
//
// Eight threads, or as many as are named, copy between ordinary memory and pinned memory, each its own share, and then the device
// copies the pinned memory. To the device the threads write as memcpy does, or past their caches; from it the device goes on
// to the next of so many buffers each time. Prints the medians of 200 times of both steps.
//
//     cc -O2 -o device_caches bench/device_caches.c -ldl -lpthread && ./device_caches [THREADS]

#include <dlfcn.h>
#include <emmintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 200, MOST_THREADS = 64, MOST_BUFFERS = 8 };
static const size_t MOST_BYTES = (size_t)16 << 20;

typedef unsigned long long device_address;

// The share of a round that each thread has.
static struct {
    char *to;
    const char *from;
    size_t share;
    int past_caches;
} work;
static int threads = 8;
static atomic_int round_number, done;

static void copy_past_caches(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 16) {
        _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
    }
    _mm_sfence();
}

static void *copy_for_ever(void *number) {
    size_t place = (size_t)number;
    for (int seen = 0;;) {
        while (atomic_load(&round_number) == seen) {
            _mm_pause();
        }
        seen = atomic_load(&round_number);
        char *to = work.to + place * work.share;
        const char *from = work.from + place * work.share;
        if (work.past_caches) {
            copy_past_caches(to, from, work.share);
        } else {
            memcpy(to, from, work.share);
        }
        atomic_fetch_add(&done, 1);
    }
    return NULL;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

// Has all threads copy; how long that takes, in microseconds.
static double copy_by_threads(char *to, const char *from, size_t bytes, int past_caches) {
    double begun = microseconds();
    work.to = to;
    work.from = from;
    work.share = bytes / (size_t)threads;
    work.past_caches = past_caches;
    atomic_store(&done, 0);
    atomic_fetch_add(&round_number, 1);
    while (atomic_load(&done) < threads) {
        _mm_pause();
    }
    return microseconds() - begun;
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

static double median(double *times) {
    qsort(times, ROUNDS, sizeof *times, compare);
    return times[ROUNDS / 2];
}

static void *cuda;

static void *function(const char *name) {
    void *found = dlsym(cuda, name);
    if (!found) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return found;
}

static void must(int status, const char *what) {
    if (status) {
        fprintf(stderr, "%s fails with status %d\n", what, status);
        exit(1);
    }
}

int main(int count, char **words) {
    threads = count > 1 ? atoi(words[1]) : threads;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "device_caches: %s is no number of threads from 1 to %d\n", words[1], MOST_THREADS);
        return 2;
    }
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        fprintf(stderr, "device_caches: %s\n", dlerror());
        return 1;
    }
    int (*initialize)(unsigned) = function("cuInit");
    int (*create_context)(void **, unsigned, int) = function("cuCtxCreate_v2");
    int (*allocate_host)(void **, size_t, unsigned) = function("cuMemHostAlloc");
    int (*allocate)(device_address *, size_t) = function("cuMemAlloc_v2");
    int (*to_device)(device_address, const void *, size_t) = function("cuMemcpyHtoD_v2");
    int (*from_device)(void *, device_address, size_t) = function("cuMemcpyDtoH_v2");
    void *context;
    char *pinned;
    device_address device;
    must(initialize(0), "cuInit");
    must(create_context(&context, 0, 0), "cuCtxCreate");
    must(allocate_host((void **)&pinned, MOST_BUFFERS * MOST_BYTES, 0), "cuMemHostAlloc");
    must(allocate(&device, MOST_BYTES), "cuMemAlloc");
    char *ordinary = aligned_alloc(4096, MOST_BYTES);
    memset(ordinary, 1, MOST_BYTES);
    memset(pinned, 0, MOST_BUFFERS * MOST_BYTES);
    for (int thread = 0; thread < threads; thread++) {
        pthread_t id;
        must(pthread_create(&id, NULL, copy_for_ever, (void *)(size_t)thread), "pthread_create");
    }
    printf("%d threads; microseconds (GB/s)\n", threads);
    for (size_t wanted = (size_t)1 << 20; wanted <= MOST_BYTES; wanted *= 4) {
        size_t bytes = wanted / ((size_t)threads * 4096) * ((size_t)threads * 4096);
        double copied[ROUNDS], moved[ROUNDS];
        for (int past_caches = 0; past_caches < 2; past_caches++) {
            for (int round = 0; round < ROUNDS; round++) {
                copied[round] = copy_by_threads(pinned, ordinary, bytes, past_caches);
                double begun = microseconds();
                must(to_device(device, pinned, bytes), "cuMemcpyHtoD");
                moved[round] = microseconds() - begun;
            }
            double copying = median(copied), moving = median(moved);
            printf("to the device   %9zu bytes, written %s: threads %4.0f (%.0f), device %4.0f (%.0f)\n", bytes,
                   past_caches ? "past the caches" : "by memcpy      ", copying, bytes / copying / 1e3, moving, bytes / moving / 1e3);
        }
        for (int buffers = 1; buffers <= MOST_BUFFERS; buffers *= 2) {
            for (int round = 0; round < ROUNDS; round++) {
                char *buffer = pinned + (size_t)(round % buffers) * wanted;
                double begun = microseconds();
                must(from_device(buffer, device, bytes), "cuMemcpyDtoH");
                moved[round] = microseconds() - begun;
                copied[round] = copy_by_threads(ordinary, buffer, bytes, 0);
            }
            double copying = median(copied), moving = median(moved);
            printf("from the device %9zu bytes, %d buffers in turn:    threads %4.0f (%.0f), device %4.0f (%.0f)\n", bytes, buffers,
                   copying, bytes / copying / 1e3, moving, bytes / moving / 1e3);
        }
    }
    return 0;
}
