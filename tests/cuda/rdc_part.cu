// The second part of the program rdc: a function, a variable and a kernel that the first part uses.
#include "rdc.h"

__device__ unsigned long long evaluations;

__device__ __noinline__ float evaluate(float x) {
    atomicAdd(&evaluations, 1ull);
    float value = shape.scale;
    for (int i = 0; i < shape.power; i++) value *= x;
    return value;
}

__global__ void negate_all(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = negate(in[i]);
}
