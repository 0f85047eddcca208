// Two processes share memory of one device: by cuIpc handles, by a descriptor of memory that one made, and by a pool. The parent
// makes it and fills it, the child finds its bytes and changes them, for which a stream of the parent waits.
// Where events can be shared, the child waits for the parent's.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <cuda.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

static int line;
static CUdevice device;
static const char *who;

// What the parent tells the child of one kind of sharing.
struct Offer {
    CUipcMemHandle memory[2];
    CUipcEventHandle event;
    CUmemPoolPtrExportData pointer;
    size_t unit;
};

static void send_bytes(const void *bytes, size_t size) {
    REQUIRE(send(line, bytes, size, MSG_NOSIGNAL) == (ssize_t)size, "%s: sending failed: %s", who, strerror(errno));
}

static void receive_bytes(void *bytes, size_t size) {
    REQUIRE(recv(line, bytes, size, MSG_WAITALL) == (ssize_t)size, "%s: the other process has gone", who);
}

static void tell() {
    send_bytes("", 1);
}

static void wait_for_other() {
    char byte;
    receive_bytes(&byte, 1);
}

static void send_descriptor(int descriptor) {
    char byte = 0;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    REQUIRE(sendmsg(line, &message, MSG_NOSIGNAL) == 1, "%s: sending a descriptor failed: %s", who, strerror(errno));
    close(descriptor);
}

static int receive_descriptor() {
    char byte;
    iovec part = {&byte, 1};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    REQUIRE(recvmsg(line, &message, 0) == 1 && CMSG_FIRSTHDR(&message), "%s: no descriptor came", who);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

static void require_bytes(CUdeviceptr data, size_t size, unsigned char value, const char *what) {
    std::vector<unsigned char> host(size);
    CHECK_DRIVER(cuMemcpyDtoH(host.data(), data, size));
    for (size_t i = 0; i < size; i++)
        REQUIRE(host[i] == value, "%s, %s: byte %zu is %d, not %d", who, what, i, host[i], value);
}

static void fill(CUdeviceptr data, size_t size, unsigned char value) {
    CHECK_DRIVER(cuMemsetD8(data, value, size));
    CHECK_DRIVER(cuCtxSynchronize());
}

static void open_device() {
    CUcontext context;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_DRIVER(cuCtxSetCurrent(context));
}

static bool shares_events() {
    int supported = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device));
    return supported != 0;
}

constexpr size_t SIZES[] = {1000, 3 << 20};

static void parent() {
    Offer offer = {};
    CUdeviceptr memory[2];
    for (int i = 0; i < 2; i++) {
        CHECK_DRIVER(cuMemAlloc(&memory[i], SIZES[i]));
        fill(memory[i], SIZES[i], (unsigned char)(10 + i));
        CHECK_DRIVER(cuIpcGetMemHandle(&offer.memory[i], memory[i]));
    }
    CUdeviceptr own;
    REQUIRE(cuIpcOpenMemHandle(&own, offer.memory[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_CONTEXT,
            "a process opens its own memory");
    CUipcMemHandle none;
    REQUIRE(cuIpcGetMemHandle(&none, 0x12345000) != CUDA_SUCCESS, "an address of nothing has a handle");
    CUevent event = nullptr, plain;
    if (shares_events()) {
        CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
        CHECK_DRIVER(cuIpcGetEventHandle(&offer.event, event));
        CHECK_DRIVER(cuEventRecord(event, nullptr));
        CHECK_DRIVER(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
        CUipcEventHandle unused;
        REQUIRE(cuIpcGetEventHandle(&unused, plain) != CUDA_SUCCESS, "an event for one process has a handle");
        CHECK_DRIVER(cuEventDestroy(plain));
    }

    CUmemAllocationProp asked = {};
    asked.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    asked.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&offer.unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle made;
    CHECK_DRIVER(cuMemCreate(&made, 2 * offer.unit, &asked, 0));
    CUdeviceptr mapped;
    CHECK_DRIVER(cuMemAddressReserve(&mapped, 2 * offer.unit, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(mapped, 2 * offer.unit, 0, made, 0));
    CUmemAccessDesc access = {asked.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemSetAccess(mapped, 2 * offer.unit, &access, 1));
    fill(mapped, 2 * offer.unit, 20);
    int descriptor = -1;
    CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

    CUmemPoolProps pool_properties = {};
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location = asked.location;
    pool_properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool;
    CHECK_DRIVER(cuMemPoolCreate(&pool, &pool_properties));
    CUdeviceptr pooled;
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&pooled, 5000, pool, nullptr));
    fill(pooled, 5000, 30);
    int pool_descriptor = -1;
    CHECK_DRIVER(cuMemPoolExportToShareableHandle(&pool_descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_DRIVER(cuMemPoolExportPointer(&offer.pointer, pooled));

    // Nothing that this process does lets the stream continue.
    CUstream waiting;
    CHECK_DRIVER(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamWaitValue32(waiting, memory[0], 0x6e6e6e6e, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_DRIVER(cuStreamWaitValue32(waiting, mapped, 0x78787878, CU_STREAM_WAIT_VALUE_EQ));
    CHECK_DRIVER(cuStreamWaitValue32(waiting, pooled, 0x82828282, CU_STREAM_WAIT_VALUE_EQ));

    send_bytes(&offer, sizeof offer);
    send_descriptor(descriptor);
    send_descriptor(pool_descriptor);
    wait_for_other();
    CHECK_DRIVER(cuStreamSynchronize(waiting));
    CHECK_DRIVER(cuStreamDestroy(waiting));
    for (int i = 0; i < 2; i++) require_bytes(memory[i], SIZES[i], (unsigned char)(110 + i), "what the child wrote");
    require_bytes(mapped, 2 * offer.unit, 120, "what the child wrote into mapped memory");
    require_bytes(pooled, 5000, 130, "what the child wrote into memory of the pool");
    tell();
    wait_for_other();
    for (CUdeviceptr address : memory) CHECK_DRIVER(cuMemFree(address));
    CHECK_DRIVER(cuMemFreeAsync(pooled, nullptr));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    CHECK_DRIVER(cuMemUnmap(mapped, 2 * offer.unit));
    CHECK_DRIVER(cuMemRelease(made));
    CHECK_DRIVER(cuMemAddressFree(mapped, 2 * offer.unit));
    if (event) CHECK_DRIVER(cuEventDestroy(event));
}

static void child() {
    Offer offer;
    receive_bytes(&offer, sizeof offer);
    int descriptor = receive_descriptor(), pool_descriptor = receive_descriptor();

    if (shares_events()) {
        CUevent event;
        CHECK_DRIVER(cuIpcOpenEventHandle(&event, offer.event));
        CHECK_DRIVER(cuStreamWaitEvent(nullptr, event, 0));
        CHECK_DRIVER(cuEventSynchronize(event));
        CHECK_DRIVER(cuEventQuery(event));
        CHECK_DRIVER(cuEventDestroy(event));
    }
    CUdeviceptr memory[2], nothing;
    CUipcMemHandle garbage;
    memset(&garbage, 0x5a, sizeof garbage);
    REQUIRE(cuIpcOpenMemHandle(&nothing, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS, "garbage opens memory");
    for (int i = 0; i < 2; i++) {
        CHECK_DRIVER(cuIpcOpenMemHandle(&memory[i], offer.memory[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        require_bytes(memory[i], SIZES[i], (unsigned char)(10 + i), "what the parent wrote");
        fill(memory[i], SIZES[i], (unsigned char)(110 + i));
    }

    CUmemGenericAllocationHandle made;
    CHECK_DRIVER(cuMemImportFromShareableHandle(&made, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    CUdeviceptr mapped;
    CHECK_DRIVER(cuMemAddressReserve(&mapped, 2 * offer.unit, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(mapped, 2 * offer.unit, 0, made, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemSetAccess(mapped, 2 * offer.unit, &access, 1));
    require_bytes(mapped, 2 * offer.unit, 20, "what the parent wrote into mapped memory");
    fill(mapped, 2 * offer.unit, 120);

    CUmemoryPool pool;
    void *pool_handle = (void *)(uintptr_t)pool_descriptor;
    CHECK_DRIVER(cuMemPoolImportFromShareableHandle(&pool, pool_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(pool_descriptor);
    CUdeviceptr pooled;
    CHECK_DRIVER(cuMemPoolImportPointer(&pooled, pool, &offer.pointer));
    require_bytes(pooled, 5000, 30, "what the parent wrote into memory of the pool");
    fill(pooled, 5000, 130);

    tell();
    wait_for_other();
    CHECK_DRIVER(cuMemFreeAsync(pooled, nullptr));
    CHECK_DRIVER(cuStreamSynchronize(nullptr));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    CHECK_DRIVER(cuMemUnmap(mapped, 2 * offer.unit));
    CHECK_DRIVER(cuMemRelease(made));
    CHECK_DRIVER(cuMemAddressFree(mapped, 2 * offer.unit));
    for (CUdeviceptr address : memory) CHECK_DRIVER(cuIpcCloseMemHandle(address));
    REQUIRE(cuIpcCloseMemHandle(memory[0]) != CUDA_SUCCESS, "memory can be closed twice");
    tell();
}

int main() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets: %s", strerror(errno));
    pid_t pid = fork();
    REQUIRE(pid >= 0, "fork failed: %s", strerror(errno));
    who = pid == 0 ? "the child" : "the parent";
    line = ends[pid == 0];
    close(ends[pid != 0]);
    open_device();
    if (pid == 0) {
        child();
        _exit(0);
    }
    parent();
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
    return pass();
}
