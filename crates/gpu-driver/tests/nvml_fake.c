// A library in the shape of NVIDIA's libnvidia-ml.so.1, with two devices and three processes, that needs no GPU.
#include <string.h>

struct device {
    unsigned index;
};
static struct device devices[2] = {{0}, {1}};

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process;
// Those of other people have the numbers 11 and 13.
static const process processes[3] = {{11, 100, -1, -1}, {12, 200, -1, -1}, {13, 300, -1, -1}};

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    if (index >= 2) return 2;
    *device = &devices[index];
    return 0;
}

int nvmlDeviceGetIndex(struct device *device, unsigned *index) {
    *index = device->index;
    return 0;
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned length) {
    if (length < 9) return 7;
    strcpy(name, device->index ? "Fake GPU" : "Fake gpu");
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, process *list) {
    unsigned there = device->index ? 3 : 0, room = *count;
    *count = there;
    if (room < there) return 7;
    memcpy(list, processes, there * sizeof *list);
    return 0;
}

int nvmlDeviceGetTopologyNearestGpus(struct device *device, int level, unsigned *count, struct device **list) {
    *count = 1;
    if (level == 20) list[0] = &devices[1 - device->index];
    return level == 20 ? 0 : 2;
}

int nvmlDeviceGetMemoryErrorCounter(struct device *device, int type, int counter, int place, unsigned long long *errors) {
    *errors = device->index * 1000 + type * 100 + counter * 10 + place;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, unsigned *memory) {
    if (memory[0] != (2u << 24 | 40)) return 25;
    ((unsigned long long *)memory)[1] = 1ull << (40 + device->index);
    return 0;
}
