// y[i] = x[i] * SCALE + bias: the smallest kernel that has every kind of parameter.
#include "add.cuh"

#ifndef SCALE
#define SCALE 1
#endif

extern "C" __global__ void add(const float *x, float *y, float bias, int n) {
  wait_for_the_kernel_before();
  extern __shared__ float tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    tile[threadIdx.x] = x[i];
    y[i] = tile[threadIdx.x] * SCALE + bias;
  }
}
