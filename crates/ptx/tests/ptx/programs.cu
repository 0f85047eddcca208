// Kernels of the usual CUDA programs, one or two of each.
#include <cstdio>

// ---- exclusive scan of one block (Blelloch's work-efficient algorithm), dynamic shared memory
extern "C" __global__ void scan_block(const int *in, int *out, int *sums, int n) {
    extern __shared__ int values[];
    int t = threadIdx.x, first = blockIdx.x * n;
    values[2 * t] = in[first + 2 * t];
    values[2 * t + 1] = in[first + 2 * t + 1];
    int stride = 1;
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) {
            int a = stride * (2 * t + 1) - 1, b = stride * (2 * t + 2) - 1;
            values[b] += values[a];
        }
        stride *= 2;
    }
    if (t == 0) {
        if (sums) sums[blockIdx.x] = values[n - 1];
        values[n - 1] = 0;
    }
    for (int d = 1; d < n; d *= 2) {
        stride >>= 1;
        __syncthreads();
        if (t < d) {
            int a = stride * (2 * t + 1) - 1, b = stride * (2 * t + 2) - 1;
            int left = values[a];
            values[a] = values[b];
            values[b] += left;
        }
    }
    __syncthreads();
    out[first + 2 * t] = values[2 * t];
    out[first + 2 * t + 1] = values[2 * t + 1];
}

// ---- histogram with shared atomics
extern "C" __global__ void histogram(const unsigned char *in, unsigned *bins, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

// ---- transpose through a padded tile
extern "C" __global__ void transpose(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

// ---- 3-D stencil of radius 4, coefficients in constant memory
__constant__ float coefficients[5];
extern "C" __global__ void stencil(const float *in, float *out, int nx, int ny, int nz) {
    __shared__ float tile[8 + 8][16 + 8];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    int stride_y = nx + 8, stride_z = stride_y * (ny + 8);
    const float *column = in + (y + 4) * stride_y + x + 4;
    float behind[4], ahead[4], current;
    for (int i = 0; i < 4; i++) behind[3 - i] = column[i * stride_z];
    current = column[4 * stride_z];
    for (int i = 0; i < 4; i++) ahead[i] = column[(5 + i) * stride_z];
    for (int z = 0; z < nz; z++) {
        const float *plane = column + (z + 4) * stride_z;
        __syncthreads();
        if (threadIdx.y < 4) {
            tile[threadIdx.y][threadIdx.x + 4] = plane[-4 * stride_y];
            tile[threadIdx.y + 12][threadIdx.x + 4] = plane[8 * stride_y];
        }
        if (threadIdx.x < 4) {
            tile[threadIdx.y + 4][threadIdx.x] = plane[-4];
            tile[threadIdx.y + 4][threadIdx.x + 20] = plane[16];
        }
        tile[threadIdx.y + 4][threadIdx.x + 4] = current;
        __syncthreads();
        float sum = coefficients[0] * current;
#pragma unroll
        for (int i = 1; i <= 4; i++)
            sum += coefficients[i] * (ahead[i - 1] + behind[i - 1] + tile[threadIdx.y + 4 - i][threadIdx.x + 4] +
                                      tile[threadIdx.y + 4 + i][threadIdx.x + 4] + tile[threadIdx.y + 4][threadIdx.x + 4 - i] +
                                      tile[threadIdx.y + 4][threadIdx.x + 4 + i]);
        out[(z * ny + y) * nx + x] = sum;
        for (int i = 3; i > 0; i--) behind[i] = behind[i - 1];
        behind[0] = current;
        current = ahead[0];
        for (int i = 0; i < 3; i++) ahead[i] = ahead[i + 1];
        if (z + 1 < nz) ahead[3] = column[(z + 9) * stride_z];
    }
}

// ---- Black-Scholes, precise
__device__ float normal(float d) { return 0.5f * (1 + erff(d * 0.70710678f)); }
extern "C" __global__ void black_scholes(const float *price, const float *strike, const float *years, float *call, float *put, int n) {
    const float rate = 0.02f, volatility = 0.3f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float root = sqrtf(years[i]);
        float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
        float d2 = d1 - volatility * root;
        float discount = expf(-rate * years[i]);
        call[i] = price[i] * normal(d1) - strike[i] * discount * normal(d2);
        put[i] = strike[i] * discount * normal(-d2) - price[i] * normal(-d1);
    }
}

// ---- n-body
extern "C" __global__ void n_body(const float4 *position, float4 *acceleration, int n) {
    extern __shared__ float4 tile4[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = position[i];
    float3 sum = make_float3(0, 0, 0);
    for (int start = 0; start < n; start += blockDim.x) {
        tile4[threadIdx.x] = position[start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < blockDim.x; k++) {
            float4 other = tile4[k];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float s = other.w * inverse * inverse * inverse;
            sum.x += dx * s;
            sum.y += dy * s;
            sum.z += dz * s;
        }
        __syncthreads();
    }
    acceleration[i] = make_float4(sum.x, sum.y, sum.z, 0);
}

// ---- Cholesky of one block, double precision
extern "C" __global__ void cholesky(double *a, int n) {
    for (int k = 0; k < n; k++) {
        if (threadIdx.x == 0) a[k * n + k] = sqrt(a[k * n + k]);
        __syncthreads();
        for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x) a[i * n + k] /= a[k * n + k];
        __syncthreads();
        for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x)
            for (int j = k + 1; j <= i; j++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
        __syncthreads();
    }
}

// ---- bitonic sort step
extern "C" __global__ void bitonic_step(unsigned *values, int j, int k) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, partner = i ^ j;
    if (partner > i) {
        unsigned a = values[i], b = values[partner];
        bool ascending = (i & k) == 0;
        if ((a > b) == ascending) {
            values[i] = b;
            values[partner] = a;
        }
    }
}

// ---- device printf and assert
struct Pair {
    int number;
    double fraction;
};
extern "C" __global__ void speak(Pair pair, const char *) {
    if (threadIdx.x == 1) printf("block %d: %5d|%-8.3f|%s|%c|%llx|%%\n", blockIdx.x, pair.number, pair.fraction, "text", 'z', 0x123456789abcdefull);
}

// ---- calls: structures by value, local arrays, function pointers, recursion
struct Numbers {
    float a;
    int b[3];
    double c;
};
__device__ __noinline__ float pick(Numbers numbers, int i) {
    float table[8];
    for (int k = 0; k < 8; k++) table[k] = numbers.a * k;
    return table[i & 7] + numbers.b[i % 3] + (float)numbers.c;
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
typedef float (*Function)(float);
__device__ float increment(float x) { return x + 1; }
__device__ float twice(float x) { return x * 2; }
__device__ Function functions[2] = {increment, twice};
extern "C" __global__ void calls(Numbers numbers, float *out) {
    int i = threadIdx.x;
    out[i] = pick(numbers, i) + functions[i & 1](i) + fibonacci(i % 12);
}

// ---- integers of every kind
extern "C" __global__ void integers(const long long *a, const long long *b, unsigned long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    unsigned ux = (unsigned)x, uy = (unsigned)y;
    unsigned long long r = 0;
    auto mix = [&](unsigned long long v) { r = r * 6364136223846793005ull + v; };
    mix(x * y); mix(x / (y | 1)); mix(x % (y | 1)); mix((unsigned long long)x / ((unsigned long long)y | 1));
    mix(__mul64hi(x, y)); mix(__umul64hi(x, y)); mix(__mulhi((int)x, (int)y)); mix(__umulhi(ux, uy));
    mix(__popc(ux)); mix(__popcll(x)); mix(__clz(ux)); mix(__clzll(x)); mix(__ffs(ux)); mix(__ffsll(x)); mix(__brev(ux)); mix(__brevll(x));
    mix(__byte_perm(ux, uy, 0x3715)); mix(__byte_perm(ux, uy, uy & 0x7777)); mix(__funnelshift_l(ux, uy, uy & 63)); mix(__funnelshift_rc(ux, uy, uy & 63));
    mix(__sad((int)x, (int)y, 7)); mix(__usad(ux, uy, 7)); mix(__mul24((int)x, (int)y)); mix(__umul24(ux, uy)); mix(__dp4a((int)x, (int)y, 5)); mix(__dp4a(ux, uy, 5u));
    mix(x << (y & 63)); mix(x >> (y & 63)); mix((unsigned long long)x >> (y & 63)); mix(ux << (uy & 31));
    mix((short)x * (short)y); mix((signed char)x / ((signed char)y | 1)); mix((unsigned short)x % ((unsigned short)y | 1)); mix(min(x, y)); mix(max(ux, uy)); mix(abs((int)x >> 1)); mix(llabs(x >> 1));
    mix(__vadd4(ux, uy)); mix(__vabsdiffu4(ux, uy)); mix(__vmaxs2(ux, uy));
    mix((unsigned long long)(((__int128)x * y) >> 40)); mix((unsigned long long)(((unsigned __int128)x + y) >> 3));
    out[i] = r;
}

// ---- mathematical functions
extern "C" __global__ void single_functions(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    float r[] = {expf(x), exp2f(x), logf(x), log2f(x), log10f(x), sinf(x), cosf(x), tanf(x), asinf(x / 10), acosf(x / 10), atanf(x), atan2f(x, 2), sinhf(x), coshf(x), tanhf(x),
                 erff(x), erfcf(x), powf(x, 1.7f), sqrtf(x), rsqrtf(x), cbrtf(x), floorf(x), ceilf(x), rintf(x), roundf(x), truncf(x), fmodf(x, 0.7f), hypotf(x, 3), 1 / x, x / 3, lgammaf(x), expm1f(x), log1pf(x), sinf(x * 1e6f)};
    for (int k = 0; k < (int)(sizeof r / sizeof *r); k++) out[i * 40 + k] = r[k];
}
extern "C" __global__ void double_functions(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i];
    double r[] = {exp(x), exp2(x), log(x), log2(x), log10(x), sin(x), cos(x), tan(x), asin(x / 10), acos(x / 10), atan(x), atan2(x, 2.0), sinh(x), cosh(x), tanh(x),
                  erf(x), erfc(x), pow(x, 1.7), sqrt(x), rsqrt(x), cbrt(x), floor(x), ceil(x), rint(x), round(x), trunc(x), fmod(x, 0.7), hypot(x, 3.0), 1 / x, x / 3, lgamma(x), expm1(x), log1p(x), sin(x * 1e6)};
    for (int k = 0; k < (int)(sizeof r / sizeof *r); k++) out[i * 40 + k] = r[k];
}

// ---- atomics of every kind, on global memory
extern "C" __global__ void atomics(int *ints, unsigned *uints, unsigned long long *longs, float *floats, double *doubles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&ints[0], i); atomicSub(&ints[1], i); atomicMin(&ints[2], 5 - i); atomicMax(&ints[3], i - 5);
    atomicAnd(&uints[0], ~(1u << (i & 15))); atomicOr(&uints[1], 1u << (i & 31)); atomicXor(&uints[2], i); atomicInc(&uints[3], 99); atomicDec(&uints[4], 99);
    atomicExch(&uints[5], 7u);
    atomicAdd(&longs[0], (unsigned long long)i << 20); atomicMax(&longs[1], (unsigned long long)i * i);
    atomicAdd(&floats[0], 0.5f); atomicAdd(&doubles[0], 0.25);
    unsigned old = uints[6], assumed;
    do { assumed = old; old = atomicCAS(&uints[6], assumed, assumed + 3); } while (old != assumed);
}

// ---- votes, matches and reductions of a warp
extern "C" __global__ void warp_operations(unsigned *out) {
    unsigned t = threadIdx.x;
    unsigned r[12] = {};
    r[0] = __ballot_sync(~0u, t % 3 == 0);
    r[1] = __all_sync(~0u, t < 100) * 2 + __any_sync(~0u, t == 77);
    r[2] = __match_any_sync(~0u, t / 4);
    int all;
    r[3] = __match_all_sync(~0u, t / 64, &all) + all;
    r[4] = __activemask();
    if (t & 1) {
        r[5] = __activemask();
        r[6] = __shfl_sync(0xaaaaaaaa, t, 5);
    }
    r[7] = __shfl_up_sync(~0u, t, 3, 8);
    r[8] = __popc(__ballot_sync(~0u, 1));
    r[9] = __syncthreads_count(t % 5 == 0);
    r[10] = __syncthreads_and(t < 1000) + 2 * __syncthreads_or(t == 3);
    __syncwarp();
    for (int k = 0; k < 12; k++) out[t * 12 + k] = r[k];
}
