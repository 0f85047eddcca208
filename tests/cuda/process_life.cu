// A process that ends, or loses what it has, in each of many ways at each of many moments. Arguments: the moment, the
// end. It ends with 3, or as the end says; what is left undefined may be an error, never a hang.
#include "check.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { NOBODY = 65534 };

// Works for a while: some end while it does.
__global__ void work(int *values, int rounds) {
    for (int i = 0; i < rounds; i++) values[threadIdx.x] += i;
}

static const char *the_moment = "", *the_end = "";
static int *device;

static void wait_for(pid_t child) {
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "the child ended with %#x", status);
}

static void limit(__rlimit_resource resource) {
    struct rlimit none = {0, 0};
    setrlimit(resource, &none);
}

static void use_device(void) {
    int value = 7;
    if (!strcmp(the_moment, "callback")) {
        // The device waits for the callback, and who waits for the device there waits for ever.
        cudaStreamQuery(0);
        return;
    }
    cudaMemcpy(device, &value, sizeof value, cudaMemcpyHostToDevice);
    work<<<1, 32>>>(device, 100);
    cudaDeviceSynchronize();
}

static void *exit_thread(void *) {
    use_device();
    pthread_exit(NULL);
}

static void *work_until_cancelled(void *begun) {
    for (;;) {
        use_device();
        __atomic_store_n((int *)begun, 1, __ATOMIC_RELEASE);
        pthread_testcancel();
    }
    return NULL;
}

static void end_thread(bool is_cancelled) {
    pthread_t thread;
    int begun = 0;
    REQUIRE(pthread_create(&thread, NULL, is_cancelled ? work_until_cancelled : exit_thread, &begun) == 0,
            "no thread can be started");
    while (is_cancelled && !__atomic_load_n(&begun, __ATOMIC_ACQUIRE)) usleep(100);
    if (is_cancelled) pthread_cancel(thread);
    void *result;
    REQUIRE(pthread_join(thread, &result) == 0, "the thread is not joined");
    REQUIRE(!is_cancelled || result == PTHREAD_CANCELED, "the thread was not cancelled");
}

// Ends the process as the argument says; comes back where that leaves it going on.
static void end(void) {
    const char *name = the_end;
    if (!strcmp(name, "exit")) exit(3);
    if (!strcmp(name, "_exit")) _exit(3);
    if (!strcmp(name, "quick_exit")) quick_exit(3);
    if (!strcmp(name, "abort")) abort();
    if (!strcmp(name, "signal")) {
        // To the process: threads of the library take no signals.
        kill(getpid(), SIGTERM);
        for (;;) pause();
    }
    if (!strcmp(name, "exec")) execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
    if (!strcmp(name, "fork")) {
        pid_t child = fork();
        if (child == 0) exit(0);
        wait_for(child);
    } else if (!strcmp(name, "vfork")) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        wait_for(child);
    } else if (!strcmp(name, "pthread_exit")) {
        end_thread(false);
    } else if (!strcmp(name, "pthread_cancel")) {
        end_thread(true);
    } else if (!strcmp(name, "dlclose")) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        REQUIRE(library != NULL, "%s", dlerror());
        // Once for this and once for the runtime's own.
        dlclose(library);
        dlclose(library);
    } else if (!strcmp(name, "streams")) {
        for (int stream = 0; stream < 3; stream++) close(stream);
    } else if (!strcmp(name, "files")) {
        limit(RLIMIT_FSIZE);
    } else if (!strcmp(name, "descriptors")) {
        limit(RLIMIT_NOFILE);
    } else if (!strcmp(name, "memory")) {
        limit(RLIMIT_AS);
    } else if (!strcmp(name, "threads")) {
        // Nothing limits the threads of the administrator.
        if (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0) REQUIRE(setuid(NOBODY) == 0, "%s", strerror(errno));
        limit(RLIMIT_NPROC);
    } else if (!strcmp(name, "setuid")) {
        if (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0) REQUIRE(setuid(NOBODY) == 0, "%s", strerror(errno));
    } else if (!strcmp(name, "chroot")) {
        // A folder in which nothing is found that the library might look for. Only the administrator may do so.
        if (chroot("/proc/self/fdinfo") == 0) REQUIRE(chdir("/") == 0, "%s", strerror(errno));
    } else if (!strcmp(name, "unshare")) {
        // Only the administrator may do so.
        unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_FS);
    }
}

static void in_callback(void *) { end(); }

static void *wait_for_device(void *) {
    cudaDeviceSynchronize();
    return NULL;
}

__attribute__((destructor)) static void in_destructor(void) {
    if (!strcmp(the_moment, "destructor")) end();
}

int main(int argc, char **argv) {
    REQUIRE(argc == 3, "a moment and an end are wanted");
    const char *moment = the_moment = argv[1];
    the_end = argv[2];
    if (!strcmp(moment, "at_exit")) atexit(end);
    CHECK_CUDA(cudaMalloc(&device, 1 << 20));
    if (!strcmp(moment, "start")) end();
    work<<<1, 32>>>(device, 20000);
    if (!strcmp(moment, "working")) end();
    if (!strcmp(moment, "waiting")) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, wait_for_device, NULL) == 0, "no thread can be started");
        end();
        pthread_join(thread, NULL);
    }
    if (!strcmp(moment, "callback")) CHECK_CUDA(cudaLaunchHostFunc(0, in_callback, NULL));
    cudaDeviceSynchronize();
    // What needs threads, files and memory anew.
    cudaStream_t stream;
    void *pinned;
    if (cudaStreamCreate(&stream) == cudaSuccess && cudaMallocHost(&pinned, 3 << 20) == cudaSuccess)
        cudaMemcpyAsync(pinned, device, 1 << 20, cudaMemcpyDeviceToHost, stream);
    cudaDeviceSynchronize();
    cudaFree(device);
    return 3;
}
