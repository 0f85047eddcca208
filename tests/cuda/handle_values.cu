// Handles look like pointers: programs keep marks in their lowest bits (PyTorch does in those of streams), and compare and hash them
// as pointers.  One handle of each kind is made; all exist at the same time.  With the argument `nowhere` a handle must lie in no memory
// that the program can reach, and leave four bits to such marks.
#include "answers.h"

#include <inttypes.h>

#include <string>
#include <vector>

__global__ void work(int *out) { *out = 1; }

struct Handle {
    const char *kind;
    uint64_t value;
};

static std::vector<Handle> handles;

template <typename Type>
static void have(const char *kind, Type handle) {
    handles.push_back({kind, (uint64_t)handle});
}

static const char IMAGE[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static void make_code() {
    CUmodule module;
    CUlibrary library;
    CUfunction function;
    CUkernel kernel;
    CUmodule of_library;
    CUlinkState linker;
    REQUIRE_DRIVER(DRIVER(cuModuleLoadData)(&module, IMAGE));
    REQUIRE_DRIVER(DRIVER(cuModuleGetFunction)(&function, module, "nothing"));
    have("module", module);
    have("function", function);
    REQUIRE_DRIVER(DRIVER(cuLibraryLoadData)(&library, IMAGE, nullptr, nullptr, 0, nullptr, nullptr, 0));
    REQUIRE_DRIVER(DRIVER(cuLibraryGetKernel)(&kernel, library, "nothing"));
    have("library", library);
    have("kernel", kernel);
    REQUIRE_DRIVER(DRIVER(cuKernelGetFunction)(&function, kernel));
    have("function of a kernel", function);
    REQUIRE_DRIVER(DRIVER(cuLibraryGetModule)(&of_library, library));
    have("module of a library", of_library);
    REQUIRE_DRIVER(DRIVER(cuLinkCreate)(0, nullptr, nullptr, &linker));
    have("link state", linker);
}

static void make_queues() {
    CUcontext current, second;
    REQUIRE_DRIVER(DRIVER(cuCtxGetCurrent)(&current));
    have("primary context", current);
    REQUIRE_DRIVER(DRIVER(cuCtxCreate)(&second, nullptr, 0, 0));
    have("context", second);
    REQUIRE_DRIVER(DRIVER(cuCtxSetCurrent)(current));
    cudaStream_t stream;
    CUstream of_driver;
    for (int i = 0; i < 3; i++) {
        CHECK_CUDA(cudaStreamCreateWithPriority(&stream, i ? cudaStreamNonBlocking : cudaStreamDefault, -i));
        have("stream", stream);
        REQUIRE_DRIVER(DRIVER(cuStreamCreate)(&of_driver, CU_STREAM_NON_BLOCKING));
        have("stream", of_driver);
        cudaEvent_t event;
        CHECK_CUDA(cudaEventCreateWithFlags(&event, i ? cudaEventDisableTiming : cudaEventDefault));
        have("event", event);
    }
    CUdevResource all = {}, part = {};
    unsigned groups = 1;
    CUdevResourceDesc description;
    CUgreenCtx green;
    // Not every device can be divided.
    if (DRIVER(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_ERROR_NOT_SUPPORTED) return;
    REQUIRE_DRIVER(DRIVER(cuDevSmResourceSplitByCount)(&part, &groups, &all, nullptr, 0, 1));
    REQUIRE_DRIVER(DRIVER(cuDevResourceGenerateDesc)(&description, &part, 1));
    have("resource description", description);
    REQUIRE_DRIVER(DRIVER(cuGreenCtxCreate)(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    have("green context", green);
    REQUIRE_DRIVER(DRIVER(cuGreenCtxStreamCreate)(&of_driver, green, CU_STREAM_NON_BLOCKING, 0));
    have("stream of a green context", of_driver);
}

static void make_graphs() {
    int *out;
    CHECK_CUDA(cudaMalloc(&out, sizeof(int)));
    cudaGraph_t graph, clone, child;
    cudaGraphNode_t nodes[4];
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaGraphCreate(&graph, 0));
    have("graph", graph);
    void *arguments[] = {&out};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)work;
    kernel.gridDim = kernel.blockDim = dim3(1);
    kernel.kernelParams = arguments;
    CHECK_CUDA(cudaGraphAddKernelNode(&nodes[0], graph, nullptr, 0, &kernel));
    CHECK_CUDA(cudaGraphAddEmptyNode(&nodes[1], graph, &nodes[0], 1));
    CHECK_CUDA(cudaGraphAddEmptyNode(&nodes[2], graph, &nodes[1], 1));
    CHECK_CUDA(cudaGraphCreate(&child, 0));
    CHECK_CUDA(cudaGraphAddChildGraphNode(&nodes[3], graph, &nodes[2], 1, child));
    for (auto node : nodes) have("graph node", node);
    have("graph to be a child", child);
    CHECK_CUDA(cudaGraphChildGraphNodeGetGraph(nodes[3], &child));
    have("child graph", child);
    CHECK_CUDA(cudaGraphClone(&clone, graph));
    have("clone of a graph", clone);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    have("executable graph", exec);
    cudaUserObject_t object;
    CHECK_CUDA(cudaUserObjectCreate(&object, out, [](void *) {}, 1, cudaUserObjectNoDestructorSync));
    have("user object", object);
}

static void make_memory() {
    cudaMemPool_t pool;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    have("default pool", pool);
    cudaMemPoolProps wanted = {};
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location = {cudaMemLocationTypeDevice, 0};
    CHECK_CUDA(cudaMemPoolCreate(&pool, &wanted));
    have("memory pool", pool);
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    cudaMipmappedArray_t mipmapped;
    CHECK_CUDA(cudaMallocArray(&array, &format, 64, 32));
    have("array", array);
    if (cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(64, 32, 0), 3) == cudaSuccess) {
        have("mipmapped array", mipmapped);
        CHECK_CUDA(cudaGetMipmappedArrayLevel(&array, mipmapped, 1));
        have("level of a mipmapped array", array);
    } else {
        (void)cudaGetLastError();
    }
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    size_t size;
    // Not every program has addresses for it.
    if (DRIVER(cuMemGetAllocationGranularity)(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_ERROR_NOT_SUPPORTED) return;
    for (int i = 0; i < 2; i++) {
        CUmemGenericAllocationHandle allocation;
        const CUresult created = DRIVER(cuMemCreate)(&allocation, size, &properties, 0);
        if (created == CUDA_ERROR_NOT_SUPPORTED) return;
        REQUIRE_DRIVER(created);
        have("memory allocation", allocation);
    }
}

// Whether the program can reach what lies at an address, and what that is.
static bool reachable(uint64_t address, std::string &what) {
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps, "/proc/self/maps cannot be read");
    char line[4096], access[5];
    bool found = false;
    while (!found && fgets(line, sizeof(line), maps)) {
        uint64_t start, end;
        REQUIRE(sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, access) == 3, "a line that is none: %s", line);
        found = address >= start && address < end && strncmp(access, "---", 3) != 0;
        what = line;
    }
    fclose(maps);
    return found;
}

int main(int argc, char **argv) {
    const bool nowhere = argc > 1 && strcmp(argv[1], "nowhere") == 0;
    CHECK_CUDA(cudaFree(nullptr));
    make_queues();
    make_code();
    make_graphs();
    make_memory();
    for (size_t i = 0; i < handles.size(); i++) {
        const Handle &handle = handles[i];
        // NVIDIA's driver has nodes of a graph in a row, at multiples of 8.
        const bool right = handle.value != 0 && handle.value % (nowhere ? 16 : 8) == 0 && handle.value >> 47 == 0;
        REQUIRE(right, "a %s is %#" PRIx64 ", which is no pointer to an object", handle.kind, handle.value);
        for (size_t j = 0; j < i; j++)
            REQUIRE(handles[j].value != handle.value, "a %s and a %s are both %#" PRIx64, handles[j].kind, handle.kind, handle.value);
        std::string what;
        REQUIRE(!nowhere || !reachable(handle.value, what), "a %s is %#" PRIx64 ", and the program uses that address: %s", handle.kind,
                handle.value, what.c_str());
    }
    REQUIRE(handles.size() > 25, "only %zu handles", handles.size());
    return pass();
}
