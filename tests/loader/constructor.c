// A library whose constructor starts CUDA, as UCX's does, and with -DPROGRAM what loads it: `program LIBRARY DEVICES`.
// While a constructor runs its thread has the lock of the dynamic loader, and other threads wait for that.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PROGRAM
int main(int argc, char **argv) {
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    const int *devices = library ? dlsym(library, "devices") : NULL;
    if (devices == NULL || *devices != atoi(argv[2])) {
        fprintf(stderr, "%d devices: %s\n", devices ? *devices : -1, dlerror());
        return 1;
    }
    return 0;
}
#else
int devices = -1;

__attribute__((constructor)) static void start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? dlsym(driver, "cuInit") : NULL;
    int (*count)(int *) = driver ? dlsym(driver, "cuDeviceGetCount") : NULL;
    if (init && count && init(0) == 0) count(&devices);
}
#endif
