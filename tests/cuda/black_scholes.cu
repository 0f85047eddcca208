// Prices of European calls and puts after Black and Scholes, checked against double precision on the CPU.
#include "check.h"

#include <vector>

// The standard normal distribution function by its polynomial (Abramowitz and Stegun 26.2.17, error under 7.5e-8).
__device__ float normal_cdf(float d) {
    const float a1 = 0.31938153f, a2 = -0.356563782f, a3 = 1.781477937f, a4 = -1.821255978f, a5 = 1.330274429f;
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = 0.39894228f * expf(-0.5f * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
    return d > 0 ? 1.0f - tail : tail;
}

__global__ void price(const float *stock, const float *strike, const float *years, float *call, float *put, float rate,
                      float volatility, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float root = sqrtf(years[i]);
    float d1 = (logf(stock[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
    float d2 = d1 - volatility * root;
    float n1 = normal_cdf(d1), n2 = normal_cdf(d2);
    float discounted = strike[i] * expf(-rate * years[i]);
    call[i] = stock[i] * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - stock[i] * (1.0f - n1);
}

static double normal_cdf_on_cpu(double d) { return 0.5 * erfc(-d / sqrt(2.0)); }

int main() {
    const int n = 100'003;
    const size_t bytes = n * sizeof(float);
    const float rate = 0.02f, volatility = 0.30f;
    std::vector<float> stock(n), strike(n), years(n), call(n), put(n);
    uint32_t state = 8;
    for (int i = 0; i < n; i++) {
        stock[i] = random_between(&state, 5, 30);
        strike[i] = random_between(&state, 1, 100);
        years[i] = random_between(&state, 0.25f, 10);
    }

    float *device[5];
    for (float *&array : device) CHECK_CUDA(cudaMalloc(&array, bytes));
    CHECK_CUDA(cudaMemcpy(device[0], stock.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device[1], strike.data(), bytes, cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaMemcpy(device[2], years.data(), bytes, cudaMemcpyHostToDevice));
    price<<<(n + 127) / 128, 128>>>(device[0], device[1], device[2], device[3], device[4], rate, volatility, n);
    CHECK_LAUNCH();
    CHECK_CUDA(cudaMemcpy(call.data(), device[3], bytes, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(put.data(), device[4], bytes, cudaMemcpyDeviceToHost));

    for (int i = 0; i < n; i++) {
        double s = stock[i], x = strike[i], t = years[i], r = rate, v = volatility;
        double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * sqrt(t)), d2 = d1 - v * sqrt(t);
        double discounted = x * exp(-r * t);
        double want_call = s * normal_cdf_on_cpu(d1) - discounted * normal_cdf_on_cpu(d2);
        double want_put = discounted * normal_cdf_on_cpu(-d2) - s * normal_cdf_on_cpu(-d1);
        REQUIRE(is_close(call[i], want_call, 3e-5), "call %d should cost %.7g, came out as %.7g", i, want_call, call[i]);
        REQUIRE(is_close(put[i], want_put, 3e-5), "put %d should cost %.7g, came out as %.7g", i, want_put, put[i]);
    }
    for (float *array : device) CHECK_CUDA(cudaFree(array));
    return pass();
}
