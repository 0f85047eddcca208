// Attributes of streams, batches of stream memory operations, flags of contexts, and small questions about devices.  With the
// argument `set`, attributes are changed too.
#include "check.h"

#include <cuda.h>

#include <string>

template <typename Function>
static Function driver_function(const char *name, unsigned version = 12050) {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
    REQUIRE(found == cudaDriverEntryPointSuccess && function, "the driver has no %s", name);
    return reinterpret_cast<Function>(function);
}

static void require_result(CUresult got, CUresult want, const char *what) {
    REQUIRE(got == want, "%s: the driver returned %d instead of %d", what, got, want);
}

static void check_attributes(cudaStream_t stream, int priority) {
    cudaStreamAttrValue value = {};
    CHECK_CUDA(cudaStreamGetAttribute(stream, cudaLaunchAttributePriority, &value));
    REQUIRE(value.priority == priority, "a stream of priority %d says %d", priority, value.priority);
    memset(&value, 0, sizeof(value));
    CHECK_CUDA(cudaStreamGetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
    // One that was never set is -1 on some drivers.
    REQUIRE(int(value.syncPolicy) == -1 || value.syncPolicy == cudaSyncPolicyAuto, "the policy is %d", int(value.syncPolicy));
    cudaStream_t other;
    CHECK_CUDA(cudaStreamCreate(&other));
    CHECK_CUDA(cudaStreamCopyAttributes(other, stream));
    CHECK_CUDA(cudaStreamDestroy(other));
}

static void set_attributes(cudaStream_t stream) {
    cudaStreamAttrValue value = {}, told = {};
    value.syncPolicy = cudaSyncPolicyYield;
    CHECK_CUDA(cudaStreamSetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
    CHECK_CUDA(cudaStreamGetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &told));
    REQUIRE(told.syncPolicy == cudaSyncPolicyYield, "the policy is %d after it was set", int(told.syncPolicy));
    value = {};
    value.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    CHECK_CUDA(cudaStreamSetAttribute(stream, cudaLaunchAttributeMemSyncDomain, &value));
    told = {};
    CHECK_CUDA(cudaStreamGetAttribute(stream, cudaLaunchAttributeMemSyncDomain, &told));
    REQUIRE(told.memSyncDomain == cudaLaunchMemSyncDomainRemote, "the domain is %d after it was set", int(told.memSyncDomain));
    cudaStream_t copy;
    CHECK_CUDA(cudaStreamCreate(&copy));
    CHECK_CUDA(cudaStreamCopyAttributes(copy, stream));
    CHECK_CUDA(cudaStreamGetAttribute(copy, cudaLaunchAttributeMemSyncDomain, &told));
    REQUIRE(told.memSyncDomain == cudaLaunchMemSyncDomainRemote, "the copied domain is %d", int(told.memSyncDomain));
    CHECK_CUDA(cudaStreamDestroy(copy));
}

// One stream waits for what a batch in another one writes; then it writes itself.
static void check_batches(cudaStream_t waiting, cudaStream_t writing) {
    auto batch = driver_function<decltype(&cuStreamBatchMemOp)>("cuStreamBatchMemOp");
    unsigned *words;
    CHECK_CUDA(cudaMalloc(&words, 32));
    CHECK_CUDA(cudaMemset(words, 0, 32));
    CHECK_CUDA(cudaDeviceSynchronize());
    CUstreamBatchMemOpParams wait[3] = {}, write[2] = {};
    wait[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait[0].waitValue.address = CUdeviceptr(words);
    wait[0].waitValue.value = 7;
    wait[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    wait[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    wait[1].waitValue.address = CUdeviceptr(words + 2);
    wait[1].waitValue.value64 = 1ull << 40;
    wait[1].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    wait[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    wait[2].writeValue.address = CUdeviceptr(words + 4);
    wait[2].writeValue.value = 99;
    write[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write[0].writeValue.address = CUdeviceptr(words);
    write[0].writeValue.value = 7;
    write[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write[1].writeValue.address = CUdeviceptr(words + 2);
    write[1].writeValue.value64 = (1ull << 40) + 5;
    require_result(batch(waiting, 3, wait, 0), CUDA_SUCCESS, "waits and a write");
    EXPECT_CUDA(cudaStreamQuery(waiting), cudaErrorNotReady);
    require_result(batch(writing, 2, write, 0), CUDA_SUCCESS, "writes");
    CHECK_CUDA(cudaStreamSynchronize(waiting));
    unsigned back[8];
    CHECK_CUDA(cudaMemcpy(back, words, 32, cudaMemcpyDeviceToHost));
    REQUIRE(back[0] == 7 && back[2] == 5 && back[3] == 256 && back[4] == 99, "the words are %u, %u, %u, %u", back[0], back[2], back[3],
            back[4]);
    require_result(batch(waiting, 3, wait, 1), CUDA_ERROR_INVALID_VALUE, "flags");
    // All of a batch, or none: so it was on an H200 with driver 580.159, and this is what devices of today say to the last one.
    write[0].writeValue.value = 55;
    write[1].writeValue.address += 4;
    require_result(batch(writing, 2, write, 0), CUDA_ERROR_INVALID_VALUE, "a write to no multiple of its size");
    CHECK_CUDA(cudaStreamSynchronize(writing));
    CHECK_CUDA(cudaMemcpy(back, words, 4, cudaMemcpyDeviceToHost));
    REQUIRE(back[0] == 7, "a batch that was refused has written %u", back[0]);
    CUstreamBatchMemOpParams other = {};
    other.operation = CU_STREAM_MEM_OP_BARRIER;
    require_result(batch(writing, 1, &other, 0), CUDA_SUCCESS, "a barrier");
    CHECK_CUDA(cudaStreamSynchronize(writing));
    other.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    require_result(batch(writing, 1, &other, 0), CUDA_ERROR_NOT_SUPPORTED, "a flush of remote writes");
    require_result(batch(writing, 0, nullptr, 0), CUDA_SUCCESS, "nothing");
    require_result(batch(waiting, 300, wait, 0), CUDA_ERROR_INVALID_VALUE, "too many operations");
    CHECK_CUDA(cudaFree(words));
}

static void check_context(cudaStream_t stream) {
    auto get_context = driver_function<decltype(&cuStreamGetCtx_v2)>("cuStreamGetCtx");
    auto current = driver_function<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent");
    auto get_flags = driver_function<decltype(&cuCtxGetFlags)>("cuCtxGetFlags");
    auto set_flags = driver_function<decltype(&cuCtxSetFlags)>("cuCtxSetFlags");
    CUcontext context, of_stream;
    CUgreenCtx green = reinterpret_cast<CUgreenCtx>(1);
    require_result(current(&context), CUDA_SUCCESS, "the current context");
    require_result(get_context(stream, &of_stream, &green), CUDA_SUCCESS, "the stream's context");
    REQUIRE(of_stream == context && !green, "the stream says that it belongs elsewhere");
    unsigned before = 0, after = 0;
    require_result(get_flags(&before), CUDA_SUCCESS, "flags");
    require_result(set_flags(before | CU_CTX_SCHED_YIELD), CUDA_SUCCESS, "new flags");
    require_result(get_flags(&after), CUDA_SUCCESS, "flags");
    REQUIRE((after & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD, "the flags are %u after they were set", after);
    require_result(set_flags(1u << 30), CUDA_ERROR_INVALID_VALUE, "flags that there are not");
    require_result(set_flags(before), CUDA_SUCCESS, "the flags that were");
}

int main(int argc, char **argv) {
    int least, greatest;
    CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream, other;
    CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    check_attributes(stream, greatest);
    check_batches(stream, other);
    check_context(stream);
    if (argc > 1 && argv[1] == std::string("set")) set_attributes(stream);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaStreamDestroy(other));
    return pass();
}
