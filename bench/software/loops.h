// The loops of loops.c, for kernels.cu.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { TILE = 16, RADIUS = 4, BINS = 256 };

void saxpy_loop(float a, const float *x, float *y, int n);
void matmul_loop(const float *a, const float *b, float *c, int n);
float sum_loop(const float *x, int n);
// A volume of w * h * d points, of which a layer of RADIUS at every face stays as it is.
void stencil_loop(const float *in, float *out, const float *weights, int w, int h, int d);
void prices_loop(const float *stock, const float *strike, const float *years, float *call, float *put, float rate, float volatility, int n);
void histogram_loop(const unsigned char *bytes, unsigned *bins, int n);

#ifdef __cplusplus
}
#endif
