// Hopper's instructions that CUDA C++ has no name for: barriers, copies, registers, launches.
// Compiled by NVRTC without any header, so the few types are spelled out here.
#pragma once

using int32 = int;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;

constexpr int WARP = 32;
constexpr int WARP_GROUP = 128;

__device__ inline uint32 shared_address(const void* at) {
  return static_cast<uint32>(__cvta_generic_to_shared(at));
}

// Barriers in shared memory, by address ------------------------------------------------------

__device__ inline void barrier_init(uint32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void barrier_arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// This thread's copies so far arrive for it once they are done; it is one of those expected.
__device__ inline void barrier_arrive_after_copies(uint32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Wait until the phase of this parity is over.
__device__ inline void barrier_wait(uint32 barrier, uint32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Let the threads of one warp group wait for each other; 0 is __syncthreads' own barrier.
__device__ inline void group_sync(int name) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(WARP_GROUP) : "memory");
}

// Copies -------------------------------------------------------------------------------------

__device__ inline void copy_16(uint32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Wait for this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ inline uint32 load_shared(uint32 at) {
  uint32 word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
  return word;
}

__device__ inline uint4 load_shared_16(uint32 at) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(at)
               : "memory");
  return words;
}

// Four 8 x 8 matrices of 16-bit values, transposed: lane l gives where row l % 8 of matrix l / 8
// goes, which is that matrix's column in the registers.
__device__ inline void store_transposed(uint32 at, uint32 first, uint32 second, uint32 third,
                                        uint32 fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}

// What this thread has seen written to shared memory may be read by tensor cores.
__device__ inline void make_visible_to_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers and launches ---------------------------------------------------------------------

template <int REGISTERS>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Wait for the kernel before, then let the next one come; see rose/kernels/fused/dependent.py.
__device__ inline void dependent_start() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Numbers ------------------------------------------------------------------------------------

// Two floats to bfloat16, to nearest even; `low` in the lower half.
__device__ inline uint32 pack_bfloat16(float low, float high) {
  uint32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float low_half(uint32 pair) { return __uint_as_float(pair << 16); }

__device__ inline float high_half(uint32 pair) { return __uint_as_float(pair & 0xffff0000); }

// The lesser, or NaN if one of them is.
__device__ inline float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ inline float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// 2 to the power of x, 0 where that is subnormal; two units in the last place off at most.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
