// NVML beside CUDA in one program, as PyTorch and NCCL use it: the library is opened by name, and what it says of a device is
// what CUDA says.  Errors, lengths of texts and lists, counting of init and shutdown, several threads, a forked child.
//
//   nvml            all that holds on every machine
//   nvml own        through Causeway: this process is listed among those that use the device, and no event ever comes
//   nvml several    through Causeway: the devices of all servers are told of, in CUDA's order
//   nvml lost       waits until the device is lost, then starts anew
//   nvml gone       waits until the device is lost, and nothing can be started anew
//   nvml none       there is no driver
#include "check.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

// The part of nvml.h that this program needs; the toolkit does not always come with that header.
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned int pid;
    unsigned long long used_memory;
    unsigned int gpu_instance, compute_instance;
} nvmlProcessInfo_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };

static void *library;

template <class... Arguments>
static int nvml(const char *name, Arguments... arguments) {
    auto *function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
    REQUIRE(function, "libnvidia-ml.so.1 has no %s", name);
    return function(arguments...);
}

#define EXPECT(status, ...) \
    do { \
        int status_ = nvml(__VA_ARGS__); \
        if (status_ != (status)) fail("line %d: NVML answered %d instead of %d", __LINE__, status_, status); \
    } while (0)

static nvmlDevice_t device_of_cuda(void) {
    char address[32];
    CHECK_CUDA(cudaDeviceGetPCIBusId(address, sizeof address, 0));
    nvmlDevice_t device;
    EXPECT(SUCCESS, "nvmlDeviceGetHandleByPciBusId_v2", (const char *)address, &device);
    return device;
}

static void says_what_cuda_says(nvmlDevice_t device) {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    char name[96], uuid[96], expected[96] = "GPU-";
    EXPECT(SUCCESS, "nvmlDeviceGetName", device, (char *)name, (unsigned)sizeof name);
    REQUIRE(strcmp(name, properties.name) == 0, "NVML calls the device `%s`, CUDA `%s`", name, properties.name);
    for (int i = 0, at = 4; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) expected[at++] = '-';
        at += sprintf(expected + at, "%02x", (unsigned char)properties.uuid.bytes[i]);
    }
    EXPECT(SUCCESS, "nvmlDeviceGetUUID", device, (char *)uuid, (unsigned)sizeof uuid);
    REQUIRE(strcmp(uuid, expected) == 0, "NVML says %s, CUDA %s", uuid, expected);
    nvmlDevice_t again;
    EXPECT(SUCCESS, "nvmlDeviceGetHandleByUUID", (const char *)uuid, &again);
    REQUIRE(again == device, "one device has two handles");
    int major, minor;
    EXPECT(SUCCESS, "nvmlDeviceGetCudaComputeCapability", device, &major, &minor);
    REQUIRE(major == properties.major && minor == properties.minor, "compute capability %d.%d", major, minor);
    nvmlPciInfo_t pci;
    EXPECT(SUCCESS, "nvmlDeviceGetPciInfo_v3", device, &pci);
    REQUIRE((int)pci.bus == properties.pciBusID && (int)pci.device == properties.pciDeviceID, "PCI %s", pci.bus_id);
    EXPECT(SUCCESS, "nvmlDeviceGetHandleByPciBusId_v2", (const char *)pci.bus_id, &again);
    REQUIRE(again == device, "the device is not at its own address %s", pci.bus_id);
    nvmlMemory_t memory;
    EXPECT(SUCCESS, "nvmlDeviceGetMemoryInfo", device, &memory);
    REQUIRE(memory.total >= properties.totalGlobalMem && memory.free + memory.used == memory.total,
            "%llu bytes, of them %llu free and %llu used", memory.total, memory.free, memory.used);
    nvmlMemory_v2_t newer = {(unsigned)(sizeof newer | 2u << 24), 0, 0, 0, 0};
    EXPECT(SUCCESS, "nvmlDeviceGetMemoryInfo_v2", device, &newer);
    REQUIRE(newer.total == memory.total, "two sizes of one memory");
    int version, cuda;
    EXPECT(SUCCESS, "nvmlSystemGetCudaDriverVersion", &version);
    CHECK_CUDA(cudaDriverGetVersion(&cuda));
    REQUIRE(version == cuda, "NVML says CUDA %d, CUDA %d", version, cuda);
}

static void refuses_what_makes_no_sense(nvmlDevice_t device) {
    char text[96] = "untouched";
    EXPECT(INSUFFICIENT_SIZE, "nvmlDeviceGetName", device, (char *)text, 2u);
    EXPECT(INVALID_ARGUMENT, "nvmlDeviceGetName", (nvmlDevice_t)0, (char *)text, (unsigned)sizeof text);
    EXPECT(INVALID_ARGUMENT, "nvmlDeviceGetUUID", device, (char *)0, 96u);
    nvmlDevice_t none;
    unsigned count;
    EXPECT(SUCCESS, "nvmlDeviceGetCount_v2", &count);
    EXPECT(INVALID_ARGUMENT, "nvmlDeviceGetHandleByIndex_v2", count, &none);
    EXPECT(NOT_FOUND, "nvmlDeviceGetHandleByUUID", (const char *)"GPU-00000000-0000-0000-0000-000000000001", &none);
    nvmlMemory_v2_t wrong = {7, 0, 0, 0, 0};
    // Drivers differ in what they call it.
    REQUIRE(nvml("nvmlDeviceGetMemoryInfo_v2", device, &wrong) != SUCCESS, "a structure of an unknown version is filled");
    const char *words = reinterpret_cast<const char *(*)(int)>(dlsym(library, "nvmlErrorString"))(INSUFFICIENT_SIZE);
    REQUIRE(strcmp(words, "Insufficient Size") == 0, "nvmlErrorString says `%s`", words);
}

static void lists_this_process(nvmlDevice_t device) {
    nvmlProcessInfo_t processes[64];
    unsigned count = 64, none = 0;
    EXPECT(SUCCESS, "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, (nvmlProcessInfo_t *)processes);
    bool found = false;
    for (unsigned i = 0; i < count; i++) found |= processes[i].pid == (unsigned)getpid();
    REQUIRE(found, "%u processes are listed, and this one is not among them", count);
    EXPECT(INSUFFICIENT_SIZE, "nvmlDeviceGetComputeRunningProcesses_v3", device, &none, (nvmlProcessInfo_t *)0);
    REQUIRE(none == count, "%u processes are counted, and %u listed", none, count);
    char name[256];
    EXPECT(SUCCESS, "nvmlSystemGetProcessName", (unsigned)getpid(), (char *)name, (unsigned)sizeof name);
    REQUIRE(strstr(name, "nvml"), "this process is called `%s`", name);
}

// Through Causeway no device can be registered with a set of events, so that none ever comes.
static void waits_for_no_event(nvmlDevice_t device) {
    void *events;
    char data[32];
    EXPECT(SUCCESS, "nvmlEventSetCreate", &events);
    EXPECT(NOT_SUPPORTED, "nvmlDeviceRegisterEvents", device, 1ull, events);
    EXPECT(TIMEOUT, "nvmlEventSetWait_v2", events, (void *)data, 1u);
    EXPECT(SUCCESS, "nvmlEventSetFree", events);
}

static void a_child_goes_on(nvmlDevice_t device) {
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0, "fork failed");
    if (child == 0) {
        char name[96];
        int status = nvml("nvmlDeviceGetName", device, (char *)name, (unsigned)sizeof name);
        // NVIDIA's library may want to be started again in the child; Causeway's goes on.
        if (status == 1) status = nvml("nvmlInit_v2");
        _exit(status);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child did not end by itself");
    REQUIRE(WEXITSTATUS(status) == SUCCESS, "NVML answered %d in the child", WEXITSTATUS(status));
}

// Uses every device by CUDA, and finds each in the same place, with this process among its own.
static void counts_as_cuda_does(unsigned count) {
    int of_cuda;
    CHECK_CUDA(cudaGetDeviceCount(&of_cuda));
    REQUIRE(count > 1 && (int)count == of_cuda, "NVML counts %u devices, CUDA %d", count, of_cuda);
    nvmlDevice_t before = 0, device;
    for (unsigned i = 0; i < count; i++) {
        size_t free, total;
        CHECK_CUDA(cudaSetDevice((int)i));
        CHECK_CUDA(cudaMemGetInfo(&free, &total));
        EXPECT(SUCCESS, "nvmlDeviceGetHandleByIndex_v2", i, &device);
        REQUIRE(device != before, "devices %u and %u have one handle", i - 1, i);
        unsigned index;
        EXPECT(SUCCESS, "nvmlDeviceGetIndex", device, &index);
        REQUIRE(index == i, "device %u is said to be device %u", i, index);
        nvmlMemory_t memory;
        EXPECT(SUCCESS, "nvmlDeviceGetMemoryInfo", device, &memory);
        REQUIRE(memory.total >= total, "device %u has %llu bytes, by CUDA %zu", i, memory.total, total);
        lists_this_process(device);
        before = device;
    }
    EXPECT(INVALID_ARGUMENT, "nvmlDeviceGetHandleByIndex_v2", count, &device);
    a_child_goes_on(before);
}

static void *ask_often(void *device) {
    for (int i = 0; i < 200; i++) {
        unsigned index;
        EXPECT(SUCCESS, "nvmlDeviceGetIndex", (nvmlDevice_t)device, &index);
    }
    return 0;
}

// What a call answers once the device is lost, which takes a while.
static void wait_for_loss(nvmlDevice_t device) {
    printf("waiting\n");
    fflush(stdout);
    for (int i = 0; i < 400; i++) {
        unsigned index;
        int status = nvml("nvmlDeviceGetIndex", device, &index);
        if (status == GPU_IS_LOST) return;
        REQUIRE(status == SUCCESS, "NVML answered %d", status);
        usleep(50000);
    }
    fail("the device was not lost");
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    REQUIRE(library, "%s", dlerror());
    unsigned devices;
    EXPECT(UNINITIALIZED, "nvmlDeviceGetCount_v2", &devices);
    EXPECT(UNINITIALIZED, "nvmlShutdown");
    if (strcmp(what, "none") == 0) {
        EXPECT(DRIVER_NOT_LOADED, "nvmlInit_v2");
        return pass();
    }
    EXPECT(SUCCESS, "nvmlInit_v2");
    EXPECT(SUCCESS, "nvmlInit_v2");
    EXPECT(SUCCESS, "nvmlShutdown");
    EXPECT(SUCCESS, "nvmlDeviceGetCount_v2", &devices);
    if (strcmp(what, "lost") == 0 || strcmp(what, "gone") == 0) {
        nvmlDevice_t device;
        EXPECT(SUCCESS, "nvmlDeviceGetHandleByIndex_v2", 0u, &device);
        wait_for_loss(device);
        EXPECT(strcmp(what, "lost") == 0 ? SUCCESS : DRIVER_NOT_LOADED, "nvmlInit_v2");
        EXPECT(strcmp(what, "lost") == 0 ? SUCCESS : GPU_IS_LOST, "nvmlDeviceGetCount_v2", &devices);
        return pass();
    }
    if (strcmp(what, "several") == 0) {
        counts_as_cuda_does(devices);
        return pass();
    }
    nvmlDevice_t device = device_of_cuda();
    says_what_cuda_says(device);
    refuses_what_makes_no_sense(device);
    if (strcmp(what, "own") == 0) {
        lists_this_process(device);
        waits_for_no_event(device);
    }
    pthread_t threads[4];
    for (pthread_t &thread : threads) REQUIRE(pthread_create(&thread, 0, ask_often, device) == 0, "no thread");
    for (pthread_t &thread : threads) pthread_join(thread, 0);
    a_child_goes_on(device);
    EXPECT(SUCCESS, "nvmlShutdown");
    EXPECT(UNINITIALIZED, "nvmlDeviceGetCount_v2", &devices);
    return pass();
}
