// nvcc: --use_fast_math
// Approximate functions and flushing of subnormal numbers.

extern "C" __global__ void fast_functions(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    float r[] = {expf(x), logf(x), sinf(x), cosf(x), powf(x, 1.7f), sqrtf(x), rsqrtf(x), 1 / x, x / 3, tanhf(x), __saturatef(x), __fdividef(x, 7)};
    for (int k = 0; k < (int)(sizeof r / sizeof *r); k++) out[i * 16 + k] = r[k];
}
extern "C" __global__ void subnormal(const float *in, float *out) { out[threadIdx.x] = in[threadIdx.x] * 0.5f; }
