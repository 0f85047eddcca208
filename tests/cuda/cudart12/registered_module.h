// Registers device code with the CUDA runtime by hand, as the host code does that nvcc generates up to version 12.
//
// An object of nvcc 13 calls entry points that the 12.x runtimes do not have.  So for a test of those runtimes the device code
// is compiled by `nvcc -fatbin`, embedded as bytes, and its kernels and variables are made known here; the host code is plain
// C++ against the headers of the 12.x runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// The runtime's registration functions: in no public header, but part of the binary interface that every program compiled by
// nvcc up to 12 relies on (declared in crt/host_runtime.h of the compiler).
extern "C" {
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *device_name,
                            int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp_size);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *device_name, int external,
                       size_t size, int constant, int global);
}

// One fatbin, registered while this lives.  Host addresses are only keys: a kernel is launched, and a variable copied to, by
// the address it was registered with.
class RegisteredModule {
  public:
    explicit RegisteredModule(const void *fatbin) : wrapper_{0x466243b1, 1, fatbin, nullptr} {
        handle_ = __cudaRegisterFatBinary(&wrapper_);
    }
    ~RegisteredModule() { __cudaUnregisterFatBinary(handle_); }
    RegisteredModule(const RegisteredModule &) = delete;
    RegisteredModule &operator=(const RegisteredModule &) = delete;

    void add_kernel(const void *key, const char *mangled_name) {
        __cudaRegisterFunction(handle_, static_cast<const char *>(key), const_cast<char *>(mangled_name), mangled_name, -1,
                               nullptr, nullptr, nullptr, nullptr, nullptr);
    }
    void add_variable(void *key, const char *name, size_t size, bool constant) {
        __cudaRegisterVar(handle_, static_cast<char *>(key), const_cast<char *>(name), name, 0, size, constant, 0);
    }
    void finish() { __cudaRegisterFatBinaryEnd(handle_); }

  private:
    struct {
        uint32_t magic, version;
        const void *data;
        void *unused;
    } wrapper_;
    void **handle_;
};
