// A stand-in for libcuda.so.1 that carries out nothing: it writes down what it is called with, for driver_fake.rs.

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef void *Handle;
typedef unsigned long long Address;
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_PTX = 218, NOT_READY = 600 };

static char log_text[1 << 16];
static size_t log_length;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int busy;             // What queries answer until it is 0.
static Handle unfinished;    // An event that is not done, whatever the others are.
static int failing[8];       // What is answered by events that are made and recorded, host copies, contexts that are marked, and
                             // the lock, checkpoint, restore and unlock of a process.
static int process_state;    // As cuCheckpointProcessGetState tells it: running, locked, checkpointed, failed.
static int failed_half_way;  // The state that a checkpoint or restore which fails leaves behind; negative for the one before.
static const char *printed;  // What a kernel has printed and the driver still holds.
static __thread Handle current;
static uintptr_t next_handle = 0x1000;

static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&log_lock);
    int added = vsnprintf(log_text + log_length, sizeof log_text - log_length, format, arguments);
    if (added > 0) log_length += (size_t)added;
    pthread_mutex_unlock(&log_lock);
    va_end(arguments);
}

static CUresult make(Handle *out) {
    *out = (Handle)__atomic_add_fetch(&next_handle, 16, __ATOMIC_RELAXED);
    return SUCCESS;
}

// What the test calls.
void fake_take_log(char *out, size_t size) {
    pthread_mutex_lock(&log_lock);
    snprintf(out, size, "%s", log_text);
    log_length = 0;
    log_text[0] = 0;
    pthread_mutex_unlock(&log_lock);
}
void fake_set_busy(int status) { __atomic_store_n(&busy, status, __ATOMIC_SEQ_CST); }
enum { MAKE_EVENT, RECORD_EVENT, HOST_COPY, MARK_CONTEXT, LOCK, CHECKPOINT, RESTORE, UNLOCK };
void fake_set_process_state(int now, int after_failure) { process_state = now; failed_half_way = after_failure; }
void fake_fail(int what, int status) { __atomic_store_n(&failing[what], status, __ATOMIC_SEQ_CST); }
static int outcome_of(int what) { return __atomic_load_n(&failing[what], __ATOMIC_SEQ_CST); }
void fake_set_unfinished(Handle event) { __atomic_store_n(&unfinished, event, __ATOMIC_SEQ_CST); }
void fake_print(const char *text) { __atomic_store_n(&printed, text, __ATOMIC_SEQ_CST); }

// Checkpoints of the process.
enum { RUNNING, LOCKED, CHECKPOINTED };
static CUresult change_state(const char *name, int what, int pid, int from, int to) {
    note("%s%s\n", name, pid == getpid() ? "" : " of another process");
    if (process_state != from) return 401;
    if (outcome_of(what) && failed_half_way >= 0) process_state = failed_half_way;
    if (!outcome_of(what)) process_state = to;
    return outcome_of(what);
}
CUresult cuCheckpointProcessGetState(int pid, int *state) { *state = process_state; return pid == getpid() ? SUCCESS : INVALID_VALUE; }
CUresult cuCheckpointProcessLock(int pid, unsigned *arguments) {
    return arguments[0] == 0 || arguments[1] ? INVALID_VALUE : change_state("lock", LOCK, pid, RUNNING, LOCKED);
}
CUresult cuCheckpointProcessCheckpoint(int pid, void *arguments) { (void)arguments; return change_state("checkpoint", CHECKPOINT, pid, LOCKED, CHECKPOINTED); }
CUresult cuCheckpointProcessRestore(int pid, void **arguments) {
    return arguments[0] ? INVALID_VALUE : change_state("restore", RESTORE, pid, CHECKPOINTED, LOCKED);
}
CUresult cuCheckpointProcessUnlock(int pid, void *arguments) { (void)arguments; return change_state("unlock", UNLOCK, pid, LOCKED, RUNNING); }

// Start and devices.
CUresult cuInit(unsigned flags) { return flags == 0 ? SUCCESS : INVALID_VALUE; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 2; return SUCCESS; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
CUresult cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "Fake %d", device); return SUCCESS; }
CUresult cuDeviceGetPCIBusId(char *id, int size, int device) { snprintf(id, size, "0000:0%d:00.0", device); return SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)(device + 1) << 30; return SUCCESS; }
CUresult cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0xf0 + device, 16); return SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute == 3) return INVALID_VALUE;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1;
    return SUCCESS;
}
CUresult cuDeviceComputeCapability(int *major, int *minor, int device) { (void)device; *major = 9; *minor = 0; return SUCCESS; }
CUresult cuDeviceCanAccessPeer(int *can, int from, int to) { *can = from != to; return SUCCESS; }
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) { (void)from; (void)to; *value = attribute; return attribute < 5 ? SUCCESS : INVALID_VALUE; }

// Contexts.
CUresult cuDevicePrimaryCtxRetain(Handle *out, int device) { note("retain %d\n", device); *out = (Handle)(uintptr_t)(0xc0 + device); return SUCCESS; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { note("release %d\n", device); return SUCCESS; }
CUresult cuCtxSetCurrent(Handle context) { note("set current %p\n", context); current = context; return SUCCESS; }
CUresult cuCtxGetCurrent(Handle *context) { *context = current; return SUCCESS; }
CUresult cuCtxGetDevice(int *device) { *device = (int)((uintptr_t)current - 0xc0); return SUCCESS; }
CUresult cuCtxRecordEvent(Handle context, Handle event) { (void)event; note("record context %p\n", context); return outcome_of(MARK_CONTEXT); }

// Streams and events.
CUresult cuStreamCreateWithPriority(Handle *out, unsigned flags, int priority) { note("stream flags %u priority %d\n", flags, priority); return make(out); }
CUresult cuStreamDestroy_v2(Handle stream) { (void)stream; return SUCCESS; }
CUresult cuStreamCreate(Handle *out, unsigned flags) { note("stream flags %u\n", flags); return make(out); }
CUresult cuStreamSynchronize(Handle stream) { (void)stream; return SUCCESS; }
CUresult cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Handle stream) { note("fill %llx %u %zu %p\n", to, value, bytes, stream); return SUCCESS; }
CUresult cuStreamQuery(Handle stream) { (void)stream; return __atomic_load_n(&busy, __ATOMIC_SEQ_CST); }
CUresult cuEventCreate(Handle *out, unsigned flags) {
    note("event flags %u\n", flags);
    return outcome_of(MAKE_EVENT) ? outcome_of(MAKE_EVENT) : make(out);
}
CUresult cuEventDestroy_v2(Handle event) { (void)event; note("event destroyed\n"); return SUCCESS; }
CUresult cuEventRecord(Handle event, Handle stream) { (void)event; (void)stream; note("record\n"); return outcome_of(RECORD_EVENT); }
CUresult cuEventQuery(Handle event) {
    return event == __atomic_load_n(&unfinished, __ATOMIC_SEQ_CST) ? NOT_READY : __atomic_load_n(&busy, __ATOMIC_SEQ_CST);
}
CUresult cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) { note("%p waits for %p flags %u\n", stream, event, flags); return SUCCESS; }
CUresult cuEventSynchronize(Handle event) {
    (void)event;
    const char *text = __atomic_exchange_n(&printed, NULL, __ATOMIC_SEQ_CST);
    if (text) fputs(text, stdout);
    return SUCCESS;
}
CUresult cuLaunchHostFunc(Handle stream, void (*function)(void *), void *data) { note("host function in %p\n", stream); function(data); return SUCCESS; }
CUresult cuStreamWaitValue32_v2(Handle stream, Address address, uint32_t value, unsigned flags) {
    // In this fake, device addresses of host memory are 1 << 48 above the host's.
    uint32_t now = __atomic_load_n((uint32_t *)(uintptr_t)(address - (1ull << 48)), __ATOMIC_ACQUIRE);
    note("wait in %p for %u now %u flags %u\n", stream, value, now, flags);
    return SUCCESS;
}

// Memory.
CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) { (void)p; note("register %zu flags %u in %p\n", bytes, flags, current); return SUCCESS; }
CUresult cuMemHostUnregister(void *p) { (void)p; note("unregister\n"); return SUCCESS; }
CUresult cuMemGetHandleForAddressRange(void *handle, Address from, size_t bytes, int kind, unsigned long long flags) {
    if (kind != 1 || flags != 0 || from % 4096 || bytes % 4096) return INVALID_VALUE;
    note("dma-buf %llx %zu\n", from, bytes);
    *(int *)handle = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return SUCCESS;
}
struct access { int type, id, flags; };
CUresult cuMemImportFromShareableHandle(Address *handle, void *descriptor, int kind) {
    if (kind != 1 || fcntl((int)(intptr_t)descriptor, F_GETFD) < 0) return INVALID_VALUE;
    note("import\n");
    *handle = 0xa110c;
    return SUCCESS;
}
CUresult cuMemAddressReserve(Address *out, size_t bytes, size_t alignment, Address wish, unsigned long long flags) {
    note("reserve %zu %zu %llx %llu\n", bytes, alignment, wish, flags);
    *out = wish ? wish : 0x7000000;
    return SUCCESS;
}
CUresult cuMemAddressFree(Address from, size_t bytes) { note("free addresses %llx %zu\n", from, bytes); return SUCCESS; }
CUresult cuMemMap(Address at, size_t bytes, size_t offset, Address handle, unsigned long long flags) {
    note("map %llx %zu %zu %llx %llu\n", at, bytes, offset, handle, flags);
    return SUCCESS;
}
CUresult cuMemUnmap(Address from, size_t bytes) { note("unmap %llx %zu\n", from, bytes); return SUCCESS; }
CUresult cuMemCreate(Address *out, size_t bytes, const void *properties, unsigned long long flags) { (void)properties; note("create %zu %llu\n", bytes, flags); *out = 0xa110d; return SUCCESS; }
CUresult cuMemRelease(Address handle) { note("release %llx\n", handle); return SUCCESS; }
CUresult cuMemSetAccess(Address from, size_t bytes, const struct access *access, size_t count) {
    note("access %llx %zu for %d of %zu: %d\n", from, bytes, access->id, count, access->flags);
    return access->id == 0 ? SUCCESS : INVALID_VALUE;
}
CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) { note("flush %d %d\n", target, scope); return SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(Address *out, void *p, unsigned flags) { (void)flags; *out = (Address)(uintptr_t)p + (1ull << 48); return SUCCESS; }
CUresult cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Handle stream) { (void)from; note("HtoD %llx %zu %p\n", to, bytes, stream); return outcome_of(HOST_COPY); }
CUresult cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Handle stream) { memset(to, 7, bytes); note("DtoH %llx %zu %p\n", from, bytes, stream); return outcome_of(HOST_COPY); }
// What it knows of memory: a device's below 0x100000, and 4096 bytes of the host at 0x200000.
CUresult cuPointerGetAttribute(void *out, int attribute, Address p) {
    int is_host = p >= 0x200000 && p < 0x201000;
    if (p >= 0x100000 && !is_host) return INVALID_VALUE;
    switch (attribute) {
    case 2: *(unsigned *)out = is_host ? 1 : 2; return SUCCESS;
    case 11: *(Address *)out = is_host ? 0x200000 : 0; return SUCCESS;
    case 12: *(size_t *)out = is_host ? 4096 : 0x100000; return SUCCESS;
    default: return INVALID_VALUE;
    }
}
CUresult cuMemcpyAsync(Address to, Address from, size_t bytes, Handle stream) { note("DtoD %llx %llx %zu %p\n", to, from, bytes, stream); return SUCCESS; }

struct copy2d { size_t x, y; int type; const void *host; Address device; Handle array; size_t pitch;
                size_t dst_x, dst_y; int dst_type; void *dst_host; Address dst_device; Handle dst_array; size_t dst_pitch; size_t width, height; };
CUresult cuMemcpy2DAsync_v2(const struct copy2d *c, Handle stream) {
    note("2D from %d %llx pitch %zu to %d %llx pitch %zu size %zux%zu %p\n", c->type, c->device, c->pitch, c->dst_type, c->dst_device, c->dst_pitch, c->width, c->height, stream);
    return SUCCESS;
}
struct copy3d { size_t x, y, z, lod; int type; const void *host; Address device; Handle array; void *reserved; size_t pitch, rows;
                size_t dst_x, dst_y, dst_z, dst_lod; int dst_type; void *dst_host; Address dst_device; Handle dst_array; void *dst_reserved; size_t dst_pitch, dst_rows;
                size_t width, height, depth; };
CUresult cuMemcpy3DAsync_v2(const struct copy3d *c, Handle stream) {
    note("3D from %d %llx pitch %zu rows %zu to %d %llx pitch %zu rows %zu size %zux%zux%zu %p\n", c->type, c->device, c->pitch, c->rows, c->dst_type, c->dst_device,
         c->dst_pitch, c->dst_rows, c->width, c->height, c->depth, stream);
    return SUCCESS;
}

// Code.
struct wrapper { uint32_t magic, version; const uint32_t *data; const void *second; };
static const char *kind_of(const void *image) {
    const struct wrapper *w = image;
    if (w->magic == 0x466243b1) return w->version == 1 && w->data[0] == 0xba55ed50 && (uintptr_t)w->data % 8 == 0 ? "fatbin" : "wrong wrapper";
    if (w->magic == 0xba55ed50) return (uintptr_t)image % 8 == 0 ? "bare fatbin" : "unaligned fatbin";
    return w->magic == 0x464c457f ? "cubin" : "text";
}
// The first options must be those of the error log; a text that begins with "bad" is refused with a word about it.
static CUresult compile(const void *image, unsigned count, const int *options, void **values) {
    // Code of the back end's own needs no log.
    if (count == 0 && strstr(image, ".entry block_hashes(")) return SUCCESS;
    if (count < 2 || options[0] != 5 || options[1] != 6) return INVALID_VALUE;
    if (strncmp(image, "bad", 3)) return SUCCESS;
    snprintf(values[0], (size_t)values[1], "line 1: nothing is right here");
    return INVALID_PTX;
}
CUresult cuModuleLoadDataEx(Handle *out, const void *image, unsigned count, const int *options, void **values) {
    const char *kind = kind_of(image);
    note("module %s %.100s\n", kind, strcmp(kind, "text") ? "" : (const char *)image);
    CUresult result = compile(image, count, options, values);
    return result == SUCCESS ? make(out) : result;
}
CUresult cuLibraryLoadData(Handle *out, const void *image, const int *a, void **b, unsigned c, void *d, void *e, unsigned f) {
    note("library %s %s\n", kind_of(image), d || e || f ? "options" : "no options");
    CUresult result = compile(image, c, a, b);
    return result == SUCCESS ? make(out) : result;
}
CUresult cuModuleUnload(Handle module) { (void)module; return SUCCESS; }
CUresult cuModuleGetFunction(Handle *out, Handle module, const char *name) { (void)module; note("function %s\n", name); return make(out); }
CUresult cuFuncGetParamInfo(Handle function, size_t index, size_t *offset, size_t *size) {
    (void)function;
    *offset = index * 8;
    *size = index == 1 ? 4 : 8;
    return index < 2 ? SUCCESS : INVALID_VALUE;
}
CUresult cuFuncGetAttribute(int *value, int attribute, Handle function) { (void)function; *value = 100 + attribute; return attribute == 2 ? INVALID_VALUE : SUCCESS; }
CUresult cuLibraryGetKernel(Handle *out, Handle library, const char *name) { (void)library; note("kernel %s\n", name); return make(out); }
CUresult cuKernelGetParamInfo(Handle kernel, size_t index, size_t *offset, size_t *size) { return cuFuncGetParamInfo(kernel, index, offset, size); }
CUresult cuKernelGetAttribute(int *value, int attribute, Handle kernel, int device) { (void)kernel; (void)attribute; *value = device; return SUCCESS; }

static void note_launch(const char *name, const unsigned *dimensions, unsigned shared, Handle stream, void **params, void **extra) {
    const unsigned char *buffer = NULL;
    size_t size = 0;
    for (void **at = extra; at && *at; at += 2) {
        if (*at == (void *)1) buffer = at[1];
        if (*at == (void *)2) size = *(size_t *)at[1];
    }
    note("%s grid %u,%u,%u block %u,%u,%u shared %u stream %p params %p bytes", name, dimensions[0], dimensions[1], dimensions[2], dimensions[3], dimensions[4],
         dimensions[5], shared, stream, (void *)params);
    for (size_t i = 0; i < size; i++) note(" %u", buffer[i]);
    note("\n");
}
CUresult cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream, void **params, void **extra) {
    (void)f;
    note_launch("launch", (unsigned[]){gx, gy, gz, bx, by, bz}, shared, stream, params, extra);
    return SUCCESS;
}
struct attribute { unsigned id; char pad[4]; union { char bytes[64]; unsigned long long align; unsigned values[16]; } value; };
struct config { unsigned dimensions[6]; unsigned shared; Handle stream; struct attribute *attributes; unsigned count; };
CUresult cuLaunchKernelEx(const struct config *c, Handle f, void **params, void **extra) {
    (void)f;
    note_launch("launch ex", c->dimensions, c->shared, c->stream, params, extra);
    for (unsigned i = 0; i < c->count; i++) note("attribute %u value %u\n", c->attributes[i].id, c->attributes[i].value.values[0]);
    return SUCCESS;
}

CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, Handle *out) {
    for (unsigned i = 0; i < count; i++)
        if (options[i] == 5) strcpy(values[i], "a message");
    note("link options %u\n", count);
    return make(out);
}
CUresult cuLinkAddData_v2(Handle state, int kind, const uint32_t *data, size_t size, const char *name, unsigned count, int *options, void **values) {
    (void)state; (void)name; (void)options; (void)values;
    note("add kind %d magic %x size %zu options %u\n", kind, data[0], size, count);
    return SUCCESS;
}
CUresult cuLinkComplete(Handle state, void **cubin, size_t *size) {
    static char result[] = "\177ELF linked";
    (void)state;
    *cubin = result;
    *size = sizeof result - 1;
    return SUCCESS;
}
CUresult cuLinkDestroy(Handle state) { (void)state; note("link destroyed\n"); return SUCCESS; }

// Pools.
struct properties { int type, handles, location_type, location; void *security; size_t limit; unsigned short usage; unsigned char reserved[54]; };
CUresult cuMemPoolCreate(Handle *out, const struct properties *p) {
    note("pool type %d handles %d location %d %d limit %zu\n", p->type, p->handles, p->location_type, p->location, p->limit);
    return make(out);
}
CUresult cuMemPoolGetAttribute(Handle pool, int attribute, void *value) {
    (void)pool;
    if (attribute <= 3) *(int *)value = 1; else *(uint64_t *)value = 5000000000ull;
    return SUCCESS;
}
