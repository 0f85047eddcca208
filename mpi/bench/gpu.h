// GPU functions of the MPI benchmark and the MPI test programs, through the driver of the environment.
#ifndef GPU_H
#define GPU_H

#include <stddef.h>
#include <stdint.h>

// The kinds of memory that a message may lie in.
enum memory { HOST, DEVICE, POOL, EXPORTABLE, MAPPED, MANAGED, PINNED, MEMORIES };

// Loads the driver and makes a context on the first device. Ends the program where there is none.
void gpu_start(void);
// The same on the device of this number, counted round where there are fewer.
void gpu_start_on(int number);
// Memory of the device that rank `number` has, to which this process's device copies, directly where it can;
// NULL where both have the same device. Given back as memory of the kind DEVICE.
void *gpu_allocate_on(int number, size_t bytes);
// Ends the context, and all that is in it, and makes it anew (cudaDeviceReset).
void gpu_reset(void);
// Makes the context current in another thread.
void gpu_use(void);
// Memory of a kind, of so many bytes.
void *gpu_allocate(enum memory memory, size_t bytes);
void gpu_free(enum memory memory, void *address, size_t bytes);
// Copies between any two places.
void gpu_copy(void *to, const void *from, size_t bytes);
// Begins a copy in the legacy stream, and waits for all that has begun there.
void gpu_begin_copy(void *to, const void *from, size_t bytes);
void gpu_wait(void);
// The name of a kind.
const char *gpu_name(enum memory memory);

#endif
