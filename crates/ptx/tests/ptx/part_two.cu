// nvcc: -rdc=true
#include <cstdio>

__device__ int counter = 100;
__constant__ float scale[4] = {1, 2, 3, 4};
static __device__ int own = 7;
__device__ const char *words[2] = {"even", "odd"};

__device__ float from_the_other(float x, int i) {
    if (i < 2) printf("%s %d\n", words[i & 1], i);
    return x * 10 + own;
}
