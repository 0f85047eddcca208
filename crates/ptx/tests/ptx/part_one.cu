// nvcc: -rdc=true
// A program of two sources, linked by us: functions and variables of one are used by the other.

extern __device__ int counter;
extern __constant__ float scale[4];
__device__ float from_the_other(float x, int i);
__device__ int shared_name(int x) { return x + 1; }
static __device__ int own = 5;

extern "C" __global__ void linked(float *out) {
    int i = threadIdx.x;
    out[i] = from_the_other(scale[i & 3], i) + shared_name(own);
    atomicAdd(&counter, 1);
}
