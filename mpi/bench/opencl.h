// OpenCL buffers for messages: the library places them in host memory, mapped for the program.
#ifndef OPENCL_H
#define OPENCL_H

#include <stdbool.h>
#include <stddef.h>

// What kernels may do with a buffer: `CL_MEM_READ_WRITE`, `CL_MEM_WRITE_ONLY`, `CL_MEM_READ_ONLY`.
enum opencl { READ_WRITE = 1, WRITE_ONLY = 2, READ_ONLY = 4 };

// A buffer that is mapped.
struct opencl_memory {
    void *buffer, *address;
};

// Loads libOpenCL.so.1 and takes the first GPU that it knows, or the first device of another kind, where
// there is no GPU. Says on standard error why not.
bool opencl_start(void);
// A buffer of so many bytes with `CL_MEM_ALLOC_HOST_PTR`, mapped for reading and writing by a call that
// waits.
bool opencl_allocate(enum opencl flag, size_t bytes, struct opencl_memory *memory);
void opencl_free(struct opencl_memory *memory);

#endif
