// What the two parts of the program rdc share: they are compiled apart, with -rdc=true, and joined by the device linker.
#pragma once

struct Shape {
    float scale;
    int power;
};

extern __device__ unsigned long long evaluations;  // defined in rdc_part.cu, counted up by both parts
extern __constant__ Shape shape;                   // defined in rdc.cu, read by both parts

// scale * x^power, defined in rdc_part.cu.
__device__ float evaluate(float x);

// A kernel of rdc_part.cu that calls a function of rdc.cu: out[i] = negate(in[i]).
__global__ void negate_all(const float *in, float *out, int n);
__device__ float negate(float x);
