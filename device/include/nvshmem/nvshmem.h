// SHMEM facade: Causeway's functions by the names and with the meaning of NVSHMEM's published API, so that
// sources written for it compile and give the same results. What is covered is in the book
// (docs/src/reference/nvshmem.md); what is not has no declaration here, and does not compile.
//
// Functions of the host and of kernels; those of kernels need nvcc. Programs are linked with libcauseway_comm
// and compiled with both include folders: those of causeway/ and of this file.
#pragma once

#include "by_mpi.h"
#include "host.h"
#include "types.h"

#ifdef __CUDACC__
#include "atomics.cuh"
#include "collectives.cuh"
#include "tasks.cuh"
#include "transfers.cuh"
#include "waits.cuh"
#define CAUSEWAY_SHMEM_BOTH __host__ __device__ inline
#else
#define CAUSEWAY_SHMEM_BOTH inline
#endif

#include "nvshmem_host.h"

#ifdef __CUDACC__
#include "nvshmem_device.h"
#endif
