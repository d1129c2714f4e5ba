// Products of a warp group: wgmma, 64 rows of registers by COLUMNS columns of shared memory.
//
// They run beside the code that follows. Registers of an operand must not be written before
// `wgmma_wait`; `hold` after it keeps the compiler from doing so earlier.
#pragma once

#include "hopper.cuh"

// How wgmma finds rows of 128 bytes in shared memory whose 16-byte pieces lie at their number xor
// the row's, modulo 8: eight rows a kilobyte, from an address that is a multiple of it.
__device__ inline uint64 swizzled_rows(uint32 address) {
  constexpr uint64 SWIZZLE_128 = 1ull << 62;
  constexpr uint64 EIGHT_ROWS = 1024 / 16;
  return SWIZZLE_128 | EIGHT_ROWS << 32 | 1ull << 16 | address / 16;
}

// Registers written before may be read by the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// The products so far that belong to no group yet are one.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most PENDING groups still run.
template <int PENDING>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int COUNT>
__device__ inline void hold(uint32 (&values)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

template <int COUNT>
__device__ inline void hold(float (&values)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

#define ROSE_SUMS_8(i)                                                                         \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]),   \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])

// Add the product of left, 64 x 16 bfloat16 in registers, and right, COLUMNS x 16 bfloat16 in
// shared memory. Thread t of warp w has of left and sums the rows 16 w + t / 4 and 8 below: sums
// 4 i to 4 i + 3 are columns 8 i + 2 (t % 4) and the next one, of the first row, then the second.
template <int COLUMNS>
__device__ void wgmma(float (&sums)[COLUMNS / 2], const uint32* left, uint64 right);

template <>
__device__ inline void wgmma<32>(float (&sums)[16], const uint32* left, uint64 right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
      : ROSE_SUMS_8(0), ROSE_SUMS_8(8)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

template <>
__device__ inline void wgmma<64>(float (&sums)[32], const uint32* left, uint64 right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : ROSE_SUMS_8(0), ROSE_SUMS_8(8), ROSE_SUMS_8(16), ROSE_SUMS_8(24)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

template <>
__device__ inline void wgmma<96>(float (&sums)[48], const uint32* left, uint64 right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47"
      "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 0;"
      : ROSE_SUMS_8(0), ROSE_SUMS_8(8), ROSE_SUMS_8(16), ROSE_SUMS_8(24), ROSE_SUMS_8(32),
        ROSE_SUMS_8(40)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

template <>
__device__ inline void wgmma<128>(float (&sums)[64], const uint32* left, uint64 right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : ROSE_SUMS_8(0), ROSE_SUMS_8(8), ROSE_SUMS_8(16), ROSE_SUMS_8(24), ROSE_SUMS_8(32),
        ROSE_SUMS_8(40), ROSE_SUMS_8(48), ROSE_SUMS_8(56)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

template <>
__device__ inline void wgmma<144>(float (&sums)[72], const uint32* left, uint64 right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n144k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71"
      "}, {%72, %73, %74, %75}, %76, 1, 1, 1, 0;"
      : ROSE_SUMS_8(0), ROSE_SUMS_8(8), ROSE_SUMS_8(16), ROSE_SUMS_8(24), ROSE_SUMS_8(32),
        ROSE_SUMS_8(40), ROSE_SUMS_8(48), ROSE_SUMS_8(56), ROSE_SUMS_8(64)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

#undef ROSE_SUMS_8
