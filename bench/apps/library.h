// A library of NVIDIA's that is opened when it is needed, so that neither its headers nor the library itself are needed to build.
#pragma once

#include "app.h"

#include <dlfcn.h>

class Library {
  public:
    // Opens the first of `names` that the loader finds, or else that lies in the usual folder of CUDA.
    Library(const char *title, const std::vector<std::string> &names) : title(title) {
        std::string tried;
        for (const char *folder : {"", "/usr/local/cuda/lib64/"})
            for (const std::string &name : names) {
                handle = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
                if (handle != nullptr) return;
                tried += std::string("\n  ") + dlerror();
            }
        fail("%s cannot be opened:%s\nAdd its folder to LD_LIBRARY_PATH (a CUDA toolkit's lib64, or nvidia/cu13/lib where Python's "
             "packages are), or use --kernels own.", title, tried.c_str());
    }

    // The function `name`, which must be of type `Function`.
    template <class Function>
    void find(Function *&function, const char *name) const {
        function = reinterpret_cast<Function *>(dlsym(handle, name));
        REQUIRE(function != nullptr, "%s has no function %s", title, name);
    }

  private:
    const char *title;
    void *handle = nullptr;
};

// A call of a library whose functions return 0 when they succeed.
#define CHECK_LIBRARY(call) \
    do { \
        int status_ = (call); \
        if (status_ != 0) fail("%s returned status %d", #call, status_); \
    } while (0)
