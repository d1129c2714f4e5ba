// Packed MXFP4 weights to bfloat16; see `rose/kernels/mxfp4_tiles.py` for how they lie.
#pragma once

#include "hopper.cuh"

// Weights come out 2^64 times too small, see `rose/kernels/fused/mxfp4_unpack.py`.
constexpr float SHRINK = 1.0f / (1ull << 32) / (1ull << 32);
constexpr float GROW = float(1ull << 32) * (1ull << 32);

__device__ inline uint32 times(uint32 pair, uint32 scale) {
  uint32 product;
  asm("mul.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
  return product;
}

// Eight codes of one row to what a thread holds of it in two products of 16 inner values: left[0]
// and left[2] of the first one, left[4] and left[6] of the second.
__device__ inline void unpack(uint32 word, uint32 scale_byte, uint32* left) {
  constexpr uint32 CODE = 0x81c081c0;
  const uint32 scale = (scale_byte + (126 - 64)) * 0x00800080;
  const uint32 upper = (word << 1 & 0x80008000) | (word >> 3 & 0x01800180);
  const uint32 last = upper | (word >> 7 & 0x00400040);
  left[0] = times(word & CODE, scale);
  left[2] = times(word << 3 & CODE, scale);
  left[4] = times(word << 6 & CODE, scale);
  left[6] = times(last, scale);
}
