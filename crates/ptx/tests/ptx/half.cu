// Half precision and bfloat16, single and in pairs.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void halves(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half a = __float2half(in[i]), b = __float2half(in[i] * 0.37f);
    __half2 p = __halves2half2(a, b), q = __hfma2(p, p, __float2half2_rn(0.25f));
    __nv_bfloat16 c = __float2bfloat16(in[i]), d = __float2bfloat16(in[i] * 0.37f);
    __nv_bfloat162 e = __hmul2(__halves2bfloat162(c, d), __halves2bfloat162(d, c));
    float r[] = {__half2float(__hadd(a, b)), __half2float(__hmul(a, b)), __half2float(__hfma(a, b, a)), __half2float(__hsub(a, b)), __low2float(q), __high2float(q), (float)__hlt(a, b),
                 __bfloat162float(__hadd(c, d)), __bfloat162float(__hmul(c, d)), __bfloat162float(e.x), __bfloat162float(e.y), (float)(int)__half2int_rz(a), __half2float(__int2half_rn(i)), __half2float(hsqrt(__habs(a))), __half2float(__hmax(a, b)), __half2float(__hneg(a))};
    for (int k = 0; k < 16; k++) out[i * 16 + k] = r[k];
}
