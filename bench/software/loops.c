// What the kernels of kernels.cu compute, as loops on the host's cores: gcc -O2 -fopenmp.
#include "loops.h"

#include <math.h>
#include <string.h>

void saxpy_loop(float a, const float *x, float *y, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}

// By tiles, as the kernel does it. TILE divides n.
void matmul_loop(const float *a, const float *b, float *c, int n) {
#pragma omp parallel for collapse(2)
    for (int row = 0; row < n; row += TILE)
        for (int column = 0; column < n; column += TILE) {
            float sum[TILE][TILE] = {{0}};
            for (int tile = 0; tile < n; tile += TILE)
                for (int i = 0; i < TILE; i++)
                    for (int k = 0; k < TILE; k++) {
                        float factor = a[(row + i) * n + tile + k];
                        for (int j = 0; j < TILE; j++) sum[i][j] += factor * b[(tile + k) * n + column + j];
                    }
            for (int i = 0; i < TILE; i++) memcpy(&c[(row + i) * n + column], sum[i], sizeof sum[i]);
        }
}

float sum_loop(const float *x, int n) {
    float sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

void stencil_loop(const float *in, float *out, const float *weights, int w, int h, int d) {
    int plane = w * h;
#pragma omp parallel for
    for (int z = RADIUS; z < d - RADIUS; z++)
        for (int y = RADIUS; y < h - RADIUS; y++)
            for (int x = RADIUS; x < w - RADIUS; x++) {
                int at = z * plane + y * w + x;
                float value = weights[0] * in[at];
                for (int i = 1; i <= RADIUS; i++)
                    value += weights[i] * (in[at + i] + in[at - i] + in[at + i * w] + in[at - i * w] + in[at + i * plane] + in[at - i * plane]);
                out[at] = value;
            }
}

static float normal_cdf(float d) {
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = 0.39894228f * expf(-0.5f * d * d) *
                 (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0 ? 1.0f - tail : tail;
}

void prices_loop(const float *stock, const float *strike, const float *years, float *call, float *put, float rate, float volatility, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) {
        float root = sqrtf(years[i]);
        float d1 = (logf(stock[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / (volatility * root);
        float d2 = d1 - volatility * root;
        float n1 = normal_cdf(d1), n2 = normal_cdf(d2);
        float discounted = strike[i] * expf(-rate * years[i]);
        call[i] = stock[i] * n1 - discounted * n2;
        put[i] = discounted * (1.0f - n2) - stock[i] * (1.0f - n1);
    }
}

void histogram_loop(const unsigned char *bytes, unsigned *bins, int n) {
    memset(bins, 0, BINS * sizeof *bins);
#pragma omp parallel
    {
        unsigned own[BINS] = {0};
#pragma omp for
        for (int i = 0; i < n; i++) own[bytes[i]]++;
#pragma omp critical
        for (int i = 0; i < BINS; i++) bins[i] += own[i];
    }
}
