// What a driver says of a device, its context, its pools and a kernel: every attribute by its number, and
// every field of the runtime's properties.  See answers.h.
#include "answers.h"

__global__ void __launch_bounds__(256) plain(int *out) {
    __shared__ int values[256];
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[255 - threadIdx.x];
}

static void tell_device() {
    auto attribute = DRIVER(cuDeviceGetAttribute);
    for (int which = 0; which <= 160; which++) {
        int value = -77;
        tell_number("device attribute", which, attribute(&value, CUdevice_attribute(which), 0), value);
    }
    for (int type = 0; type <= 2; type++) {
        int value = -77;
        tell_number("execution affinity", type,
                    DRIVER(cuDeviceGetExecAffinitySupport)(&value, CUexecAffinityType(type), 0), value);
    }
    for (int which = 0; which <= 6; which++) {
        int value = -77;
        tell_number("peer attribute", which,
                    DRIVER(cuDeviceGetP2PAttribute)(&value, CUdevice_P2PAttribute(which), 0, 0), value);
    }
    int value = -77, driver = 0;
    tell_number("peer access", 0, DRIVER(cuDeviceCanAccessPeer)(&value, 0, 0), value);
    tell_number("driver version", 0, DRIVER(cuDriverGetVersion)(&driver), driver);
    size_t bytes = 0;
    tell_number("total memory", 0, DRIVER(cuDeviceTotalMem)(&bytes, 0), bytes);
    char text[256] = "", luid[8] = "";
    unsigned mask = 0;
    CUuuid uuid = {};
    CUresult result = DRIVER(cuDeviceGetName)(text, sizeof(text), 0);
    tell("name = %d %s", result, text);
    result = DRIVER(cuDeviceGetPCIBusId)(text, sizeof(text), 0);
    tell("bus id = %d %s", result, text);
    result = DRIVER(cuDeviceGetUuid)(&uuid, 0);
    printf("uuid = %d ", result);
    for (unsigned char byte : uuid.bytes) printf("%02x", byte);
    tell("%s", "");
    tell("luid = %d", DRIVER(cuDeviceGetLuid)(luid, &mask, 0));
    for (int format : {1, 2, 3, 8, 9, 10, 16, 32})
        for (int channels : {1, 2, 4}) {
            bytes = 0;
            result = DRIVER(cuDeviceGetTexture1DLinearMaxWidth)(&bytes, CUarray_format(format), channels, 0);
            tell("linear texture of format %d, %d channels = %d %zu", format, channels, result, bytes);
        }
    for (int type = 0; type <= 2; type++) {
        CUdevResource resource = {};
        result = DRIVER(cuDeviceGetDevResource)(0, &resource, CUdevResourceType(type));
        tell("device resource %d = %d %u %u %u", type, result, resource.sm.smCount,
             resource.sm.minSmPartitionSize, resource.sm.smCoscheduledAlignment);
    }
    for (int operation = 0; operation <= CU_ATOMIC_OPERATION_MAX; operation++) {
        const CUatomicOperation which = CUatomicOperation(operation);
        unsigned host = 0, peer = 0;
        CUresult of_host = DRIVER(cuDeviceGetHostAtomicCapabilities)(&host, &which, 1, 0);
        CUresult of_peer = DRIVER(cuDeviceGetP2PAtomicCapabilities)(&peer, &which, 1, 0, 0);
        tell("atomic operation %d = host %d %#x, peer %d %#x", operation, of_host, host, of_peer, peer);
    }
}

static void tell_properties() {
    cudaDeviceProp all;
    CHECK_CUDA(cudaGetDeviceProperties(&all, 0));
    tell("property name = %s", all.name);
#define TELL(field) tell("property " #field " = %lld", (long long)all.field)
#define TELL_LIST(field)                                                                                     \
    for (size_t i = 0; i < sizeof(all.field) / sizeof(all.field[0]); i++)                                    \
    tell("property " #field " %zu = %d", i, all.field[i])
    TELL(regsPerBlock);
    TELL(warpSize);
    TELL(maxThreadsPerBlock);
    TELL_LIST(maxThreadsDim);
    TELL_LIST(maxGridSize);
    TELL(major);
    TELL(minor);
    TELL(multiProcessorCount);
    TELL(integrated);
    TELL(canMapHostMemory);
    TELL(maxTexture1D);
    TELL(maxTexture1DMipmap);
    TELL_LIST(maxTexture2D);
    TELL_LIST(maxTexture2DMipmap);
    TELL_LIST(maxTexture2DLinear);
    TELL_LIST(maxTexture2DGather);
    TELL_LIST(maxTexture3D);
    TELL_LIST(maxTexture3DAlt);
    TELL(maxTextureCubemap);
    TELL_LIST(maxTexture1DLayered);
    TELL_LIST(maxTexture2DLayered);
    TELL_LIST(maxTextureCubemapLayered);
    TELL(maxSurface1D);
    TELL_LIST(maxSurface2D);
    TELL_LIST(maxSurface3D);
    TELL_LIST(maxSurface1DLayered);
    TELL_LIST(maxSurface2DLayered);
    TELL(maxSurfaceCubemap);
    TELL_LIST(maxSurfaceCubemapLayered);
    TELL(concurrentKernels);
    TELL(ECCEnabled);
    TELL(pciBusID);
    TELL(pciDeviceID);
    TELL(pciDomainID);
    TELL(tccDriver);
    TELL(asyncEngineCount);
    TELL(unifiedAddressing);
    TELL(memoryBusWidth);
    TELL(l2CacheSize);
    TELL(persistingL2CacheMaxSize);
    TELL(maxThreadsPerMultiProcessor);
    TELL(streamPrioritiesSupported);
    TELL(globalL1CacheSupported);
    TELL(localL1CacheSupported);
    TELL(regsPerMultiprocessor);
    TELL(managedMemory);
    TELL(isMultiGpuBoard);
    TELL(multiGpuBoardGroupID);
    TELL(hostNativeAtomicSupported);
    TELL(pageableMemoryAccess);
    TELL(concurrentManagedAccess);
    TELL(computePreemptionSupported);
    TELL(canUseHostPointerForRegisteredMem);
    TELL(cooperativeLaunch);
    TELL(pageableMemoryAccessUsesHostPageTables);
    TELL(directManagedMemAccessFromHost);
    TELL(maxBlocksPerMultiProcessor);
    TELL(accessPolicyMaxWindowSize);
    TELL(hostRegisterSupported);
    TELL(sparseCudaArraySupported);
    TELL(hostRegisterReadOnlySupported);
    TELL(timelineSemaphoreInteropSupported);
    TELL(memoryPoolsSupported);
    TELL(gpuDirectRDMASupported);
    TELL(gpuDirectRDMAFlushWritesOptions);
    TELL(gpuDirectRDMAWritesOrdering);
    TELL(memoryPoolSupportedHandleTypes);
    TELL(deferredMappingCudaArraySupported);
    TELL(ipcEventSupported);
    TELL(clusterLaunch);
    TELL(unifiedFunctionPointers);
    TELL(deviceNumaConfig);
    TELL(deviceNumaId);
    TELL(mpsEnabled);
    TELL(hostNumaId);
    TELL(gpuPciDeviceID);
    TELL(gpuPciSubsystemID);
    TELL(hostNumaMultinodeIpcSupported);
    TELL(totalGlobalMem);
    TELL(sharedMemPerBlock);
    TELL(memPitch);
    TELL(totalConstMem);
    TELL(textureAlignment);
    TELL(texturePitchAlignment);
    TELL(surfaceAlignment);
    TELL(sharedMemPerMultiprocessor);
    TELL(sharedMemPerBlockOptin);
    TELL(reservedSharedMemPerBlock);
#undef TELL
#undef TELL_LIST
}

static void tell_granularity() {
    for (int location : {CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST,
                         CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT})
        for (int handles : {0, 1, 8})
            for (int which = 0; which <= 1; which++) {
                CUmemAllocationProp wanted = {};
                wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
                wanted.requestedHandleTypes = CUmemAllocationHandleType(handles);
                wanted.location.type = CUmemLocationType(location);
                size_t bytes = 0;
                CUresult result = DRIVER(cuMemGetAllocationGranularity)(
                    &bytes, &wanted, CUmemAllocationGranularity_flags(which));
                tell("granularity %d at location %d with handles %d = %d %zu", which, location, handles,
                     result, bytes);
            }
    CUmulticastObjectProp multicast = {};
    multicast.numDevices = 2;
    multicast.size = 2 << 20;
    size_t bytes = 0;
    tell_number("multicast granularity", 0,
                DRIVER(cuMulticastGetGranularity)(&bytes, &multicast, CU_MULTICAST_GRANULARITY_MINIMUM),
                (long long)bytes);
}

static void tell_pool(const char *what, CUmemoryPool pool) {
    for (int which = 0; which <= 9; which++) {
        unsigned long long value = 0;
        CUresult result = DRIVER(cuMemPoolGetAttribute)(pool, CUmemPool_attribute(which), &value);
        tell_number(what, which, result, value);
    }
    CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    tell_number(what, 100, DRIVER(cuMemPoolGetAccess)(&access, pool, &place), access);
}

static void tell_pools() {
    CUmemoryPool ours = nullptr, other = nullptr, made = nullptr;
    REQUIRE_DRIVER(DRIVER(cuDeviceGetDefaultMemPool)(&ours, 0));
    tell_pool("default pool", ours);
    CUresult result = DRIVER(cuDeviceGetMemPool)(&other, 0);
    tell("current pool is the default = %d %d", result, other == ours);
    CUmemPoolProps wanted = {};
    wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    REQUIRE_DRIVER(DRIVER(cuMemPoolCreate)(&made, &wanted));
    tell_pool("made pool", made);
    REQUIRE_DRIVER(DRIVER(cuMemPoolDestroy)(made));
    for (int type = 0; type <= 2; type++)
        for (int location : {1, 2, 3, 4}) {
            CUmemLocation place = {CUmemLocationType(location), 0};
            other = nullptr;
            result = DRIVER(cuMemGetDefaultMemPool)(&other, &place, CUmemAllocationType(type));
            tell("default pool of location %d, type %d = %d %s", location, type, result,
                 other == ours ? "the device's"
                 : other       ? "another"
                               : "none");
        }
    for (int which = 0; which <= 4; which++) {
        unsigned long long value = 0;
        tell_number("graph memory", which,
                    DRIVER(cuDeviceGetGraphMemAttribute)(0, CUgraphMem_attribute(which), &value), value);
    }
}

static void tell_context() {
    CUcontext context = nullptr;
    REQUIRE_DRIVER(DRIVER(cuCtxGetCurrent)(&context));
    for (int which = 0; which <= 10; which++) {
        size_t value = 0;
        tell_number("limit", which, DRIVER(cuCtxGetLimit)(&value, CUlimit(which)), value);
    }
    unsigned flags = 0, version = 0;
    int active = 0, least = 0, greatest = 0;
    tell_number("context flags", 0, DRIVER(cuCtxGetFlags)(&flags), flags);
    tell_number("context version", 0, DRIVER(cuCtxGetApiVersion)(context, &version), version);
    tell_number("context version", 1, DRIVER(cuCtxGetApiVersion)(nullptr, &version), version);
    CUresult result = DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active);
    tell("primary context = %d flags %u active %d", result, flags, active);
    result = DRIVER(cuCtxGetStreamPriorityRange)(&least, &greatest);
    tell("stream priorities = %d %d to %d", result, least, greatest);
    CUfunc_cache cache = CUfunc_cache(77);
    tell_number("cache preference", 0, DRIVER(cuCtxGetCacheConfig)(&cache), cache);
    CUsharedconfig banks = CUsharedconfig(77);
    tell_number("shared memory banks", 0, DRIVER(cuCtxGetSharedMemConfig)(&banks), banks);
    CUexecAffinityParam affinity = {};
    result = DRIVER(cuCtxGetExecAffinity)(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    tell("context affinity = %d %u", result, affinity.param.smCount.val);
    CUdevResource resource = {};
    result = DRIVER(cuCtxGetDevResource)(context, &resource, CU_DEV_RESOURCE_TYPE_SM);
    tell("context resource = %d %u %u %u", result, resource.sm.smCount, resource.sm.minSmPartitionSize,
         resource.sm.smCoscheduledAlignment);
    for (long long stream : {0, 1, 2}) {
        int priority = 77;
        CUdevice device = 77;
        flags = 77;
        tell_number("stream flags", int(stream), DRIVER(cuStreamGetFlags)(CUstream(stream), &flags), flags);
        tell_number("stream priority", int(stream), DRIVER(cuStreamGetPriority)(CUstream(stream), &priority),
                    priority);
        tell_number("stream device", int(stream), DRIVER(cuStreamGetDevice)(CUstream(stream), &device),
                    device);
    }
    for (int attribute = 0; attribute <= 12; attribute++) {
        CUstreamAttrValue value = {};
        result = DRIVER(cuStreamGetAttribute)(nullptr, CUstreamAttrID(attribute), &value);
        tell_number("default stream's attribute", attribute, result, *reinterpret_cast<int *>(&value));
    }
    size_t free_bytes = 0, total = 0;
    tell_number("memory of the context", 0, DRIVER(cuMemGetInfo)(&free_bytes, &total), total);
    CUmoduleLoadingMode mode = CUmoduleLoadingMode(77);
    tell_number("loading mode", 0, DRIVER(cuModuleGetLoadingMode)(&mode), mode);
}

static void tell_kernel() {
    int *out;
    CHECK_CUDA(cudaMalloc(&out, 256 * sizeof(int)));
    plain<<<1, 256>>>(out);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaFree(out));
    cudaFunction_t found;
    cudaKernel_t of_library;
    CHECK_CUDA(cudaGetFuncBySymbol(&found, reinterpret_cast<const void *>(plain)));
    CHECK_CUDA(cudaGetKernel(&of_library, reinterpret_cast<const void *>(plain)));
    const CUfunction kernel = reinterpret_cast<CUfunction>(found);
    for (int which = 0; which <= 17; which++) {
        int value = -77;
        tell_number("function attribute", which,
                    DRIVER(cuFuncGetAttribute)(&value, CUfunction_attribute(which), kernel), value);
        value = -77;
        tell_number("kernel attribute", which,
                    DRIVER(cuKernelGetAttribute)(&value, CUfunction_attribute(which),
                                                 reinterpret_cast<CUkernel>(of_library), 0),
                    value);
    }
    cudaFuncAttributes all = {};
    CHECK_CUDA(cudaFuncGetAttributes(&all, plain));
    tell("function attributes = %zu %zu %zu %d %d %d %d %d %d %d", all.sharedSizeBytes, all.constSizeBytes,
         all.localSizeBytes, all.maxThreadsPerBlock, all.numRegs, all.ptxVersion, all.binaryVersion,
         all.cacheModeCA, all.maxDynamicSharedSizeBytes, all.preferredShmemCarveout);
    CUfunctionLoadingState state = CUfunctionLoadingState(77);
    tell_number("loading state", 0, DRIVER(cuFuncIsLoaded)(&state, kernel), state);
    for (int threads : {32, 96, 128, 256, 512, 1024}) {
        int blocks = -77;
        size_t bytes = 0;
        CUresult of_blocks =
            DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, kernel, threads, 1000);
        CUresult of_bytes = DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, kernel, 2, threads);
        tell("occupancy of %d threads = %d %d blocks, %d %zu bytes", threads, of_blocks, blocks, of_bytes,
             bytes);
    }
    int grid = 0, block = 0;
    CUresult result = DRIVER(cuOccupancyMaxPotentialBlockSize)(&grid, &block, kernel, nullptr, 0, 0);
    tell("block size = %d %d %d", result, grid, block);
    for (int which = 0; which <= 1; which++) {
        size_t offset = 77, bytes = 77;
        result = DRIVER(cuFuncGetParamInfo)(kernel, which, &offset, &bytes);
        tell("parameter %d = %d %zu %zu", which, result, offset, bytes);
    }
}

static void tell_arrays() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    const struct {
        const char *what;
        cudaExtent extent;
        unsigned flags;
    } shapes[] = {
        {"row", {100, 0, 0}, 0},
        {"plane", {100, 50, 0}, 0},
        {"box", {100, 50, 20}, 0},
        {"layers", {100, 50, 20}, cudaArrayLayered},
        {"surface", {100, 50, 20}, cudaArraySurfaceLoadStore},
    };
    for (const auto &shape : shapes) {
        cudaArray_t array;
        CHECK_CUDA(cudaMalloc3DArray(&array, &format, shape.extent, shape.flags));
        CUDA_ARRAY_MEMORY_REQUIREMENTS memory = {};
        CUDA_ARRAY_SPARSE_PROPERTIES sparse = {};
        CUarray driver_array = reinterpret_cast<CUarray>(array), plane = nullptr;
        CUresult of_memory = DRIVER(cuArrayGetMemoryRequirements)(&memory, driver_array, 0);
        CUresult of_sparse = DRIVER(cuArrayGetSparseProperties)(&sparse, driver_array);
        CUresult of_plane = DRIVER(cuArrayGetPlane)(&plane, driver_array, 0);
        CUDA_ARRAY3D_DESCRIPTOR told = {};
        CUresult of_shape = DRIVER(cuArray3DGetDescriptor)(&told, driver_array);
        tell("array %s = memory %d %zu %zu, sparse %d, plane %d, %d %zu %zu %zu %d %u %#x", shape.what,
             of_memory, memory.size, memory.alignment, of_sparse, of_plane, of_shape, told.Width, told.Height,
             told.Depth, told.Format, told.NumChannels, told.Flags);
        CHECK_CUDA(cudaFreeArray(array));
    }
    for (size_t row : {1, 100, 512, 5000, 70000}) {
        void *pitched;
        size_t pitch;
        CHECK_CUDA(cudaMallocPitch(&pitched, &pitch, row, 3));
        tell("pitch of %zu = %zu", row, pitch);
        CHECK_CUDA(cudaFree(pitched));
    }
}

int main() {
    DRIVER(cuInit)(0);
    unsigned flags = 77;
    int active = 77;
    CUresult result = DRIVER(cuDevicePrimaryCtxGetState)(0, &flags, &active);
    tell("primary context before = %d flags %u active %d", result, flags, active);
    tell_device();
    tell_properties();
    CHECK_CUDA(cudaFree(nullptr));
    tell_granularity();
    tell_pools();
    tell_context();
    tell_kernel();
    tell_arrays();
    return pass();
}
