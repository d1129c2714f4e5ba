// The experts' two products with packed MXFP4 weights, for prefill: gate and up with their
// activation, and down. See `rose/kernels/fused/experts_mxfp4.py` for what they compute and
// `rose/kernels/mxfp4_tiles.py` for how weights lie.
//
// A program stays on its multiprocessor and goes from tile to tile: 256 rows of weights by at most
// MOST_ROWS rows of x, in steps of 64 inner values. One warp group fetches; two others each unpack
// 2 x 64 rows of weights into registers and multiply. While one half of its weights is in the
// tensor cores a warp group unpacks the other; while it writes a tile the other group multiplies.
//
// An expert's rows are cut into equal tiles, whose width, a constant of the instruction, is the
// least of some that holds them. Tiles of one width come one after the other: ptxas cannot keep the
// accumulators of several widths apart in loops inside another loop.
//
// A step of 144 rows of x takes the tensor cores 1152 cycles, in which each scheduler issues some
// 450 instructions to unpack and L2 delivers 27 KB. An H200 then draws all the power it may: where
// its bfloat16 products run at 790 TFLOP/s, these run at 600, and at 690 if x is not fetched. Four
// groups of 64 rows each, whose registers allow 128 rows of x, took a third longer.

#include "expert_tiles.cuh"
#include "mxfp4_unpack.cuh"
#include "wgmma.cuh"

namespace {

constexpr int STEP = 64;
constexpr int RUN = 128;  // inner values that share a word of scales
constexpr int STAGES = 6;
constexpr int BLOCK = 64;  // rows of weights of a product
constexpr int BLOCKS = 4;  // of them a tile
constexpr int GROUPS = 2;  // that multiply
constexpr int THREADS = (1 + GROUPS) * WARP_GROUP;

// A block starts with as many registers a thread as all may have. Groups can only pass on to others
// what they gave up: whoever asks for more waits forever.
constexpr int REGISTERS = 65536 / THREADS / 8 * 8;
constexpr int FETCHER_REGISTERS = 56;
constexpr int MULTIPLIER_REGISTERS = 224;
static_assert(FETCHER_REGISTERS + GROUPS * MULTIPLIER_REGISTERS <= (1 + GROUPS) * REGISTERS);

// Shared memory, in bytes from its start.
constexpr int X_BYTES = MOST_ROWS * STEP * 2;
constexpr int WORD_BYTES = BLOCKS * BLOCK * STEP / 2;
constexpr int SCALE_BYTES = BLOCKS * BLOCK * 4;
constexpr int STAGE_BYTES = X_BYTES + WORD_BYTES + SCALE_BYTES;
constexpr int OUT_BYTES = MOST_ROWS * BLOCK * 2;
constexpr int OUT_AT = STAGES * STAGE_BYTES;
constexpr int FULL_AT = OUT_AT + GROUPS * OUT_BYTES;
constexpr int EMPTY_AT = FULL_AT + STAGES * 8;
constexpr int TILES_AT = EMPTY_AT + STAGES * 8;
constexpr int SHARED_BYTES = TILES_AT + WIDTHS * (MOST_EXPERTS + 1) * 4;
static_assert(STAGE_BYTES % 1024 == 0 && SHARED_BYTES <= 232448);

#ifdef ROSE_SHARED_BYTES  // what it is launched with
static_assert(ROSE_SHARED_BYTES == SHARED_BYTES && ROSE_THREADS == THREADS);
#endif

// A place in the ring of stages, and the parity of its barriers there.
struct Stage {
  int index = 0;
  uint32 parity = 0;

  __device__ void advance() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};

// Where the block of 64 rows of weights is: the part it belongs to, and its first column there.
// Blocks beyond the last column are the last one again; their results are not kept.
template <bool GATED>
struct BlockPlace {
  int part;
  int column;
  bool kept;

  __device__ BlockPlace(int place, int block, int columns) {
    const int number = GATED ? place * GROUPS + block / 2 : place * BLOCKS + block;
    part = GATED ? block % 2 : 0;
    kept = number * BLOCK < columns;
    column = min(number * BLOCK, columns - BLOCK);
  }
};

// The warp group that fetches ------------------------------------------------------------------

template <bool GATED, int ROWS>
__device__ void fetch(const Operands& operands, uint32 shared, Tiles tiles, Stage& stage) {
  constexpr int X_STRIDE = WARP_GROUP / 8;  // eight threads a row of 128 bytes
  const int parts = GATED ? 2 : 1;
  const int thread = threadIdx.x % WARP_GROUP;
  const int width = operands.width;
  const int runs = (width + RUN - 1) / RUN;
  const int piece = thread % 8;
  const int x_row = thread / 8;
  // Rows X_STRIDE apart have their pieces in the same order.
  const uint32 x_to = x_row * (STEP * 2) + (piece ^ x_row % 8) * 16;
  const int word_row = thread / 2;
  const uint32 word_to = X_BYTES + word_row * (STEP / 2) + (thread % 2 ^ word_row / 4 % 2) * 16;
  const uint32 scale_to = X_BYTES + WORD_BYTES + thread * 16;

  for (Tile tile; tiles.find(tile);) {
    uint32 x_from[ROWS / X_STRIDE];
#pragma unroll
    for (int i = 0; i < ROWS / X_STRIDE; ++i) {
      // Rows beyond the tile's are its last one again.
      const int row = tile.start + min(x_row + i * X_STRIDE, tile.rows - 1);
      const uint32 source = GATED ? operands.token_of_row[row] : row;
      x_from[i] = source * (width / 8) + piece;
    }
    const char* words_from[BLOCKS];
    const int first_matrix = tile.expert * parts;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
      const BlockPlace<GATED> block(tile.place, i, operands.columns);
      const uint64 row = (first_matrix + block.part) * operands.columns + block.column + word_row;
      words_from[i] = operands.words + row * (width / 2) + thread % 2 * 16;
    }
    // Of the first 64 threads, 16 fetch the scales of a block, four rows each.
    const BlockPlace<GATED> block(tile.place, thread / 16 % BLOCKS, operands.columns);
    const uint64 scale_row = (first_matrix + block.part) * runs * operands.columns;
    const char* scales_from = operands.scales + (scale_row + block.column + thread % 16 * 4) * 4;

    for (int step = 0; step < width / STEP; ++step, stage.advance()) {
      barrier_wait(shared + EMPTY_AT + stage.index * 8, stage.parity ^ 1);
      const uint32 to = shared + stage.index * STAGE_BYTES;
      const char* x = operands.x + step * (STEP * 2);
#pragma unroll
      for (int i = 0; i < ROWS / X_STRIDE; ++i) {
        copy_16(to + x_to + i * X_STRIDE * (STEP * 2), x + uint64(x_from[i]) * 16);
      }
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) {
        copy_16(to + word_to + i * BLOCK * (STEP / 2), words_from[i] + step * (STEP / 2));
      }
      if (thread < BLOCKS * BLOCK / 4) {
        copy_16(to + scale_to, scales_from + uint64(step / (RUN / STEP)) * operands.columns * 4);
      }
      barrier_arrive_after_copies(shared + FULL_AT + stage.index * 8);
    }
  }
}

// The warp groups that multiply ----------------------------------------------------------------

// This thread's part of a step's 64 x 64 weights, as left sides of four products.
struct Weights {
  uint32 words[2][2];  // by group of 32 inner values, and by row
  uint32 scales[2];    // by row; a word holds those of two steps

  __device__ void load(uint32 words_at, uint32 scales_at, int swapped) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      words[0][row] = load_shared(words_at + row * 8 * (STEP / 2) + swapped);
      words[1][row] = load_shared(words_at + row * 8 * (STEP / 2) + (swapped ^ 16));
      scales[row] = load_shared(scales_at + row * 8 * 4);
    }
  }

  __device__ void unpack_into(uint32 (&left)[16], int step) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32 pair = scales[row] >> step % 2 * 16;
      unpack(words[0][row], pair & 0xff, left + row);
      unpack(words[1][row], pair >> 8 & 0xff, left + 8 + row);
    }
  }
};

template <int ROWS>
__device__ void multiply(float (&sums)[ROWS / 2], const uint32 (&left)[16], uint64 right) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < STEP / 16; ++i) wgmma<ROWS>(sums, left + 4 * i, right + i * (16 * 2 / 16));
  wgmma_commit();
}

// A thread's rows of both blocks start with their bias.
template <int ROWS>
__device__ void start_sums(float (&sums)[ROWS / 2], const uint16* bias) {
  const float upper = low_half(bias[0]) * SHRINK;
  const float lower = low_half(bias[8]) * SHRINK;
#pragma unroll
  for (int i = 0; i < ROWS / 2; ++i) sums[i] = i % 4 < 2 ? upper : lower;
}

// min(gate, limit) * sigmoid(1.702 min(gate, limit)) * (clamp(up) + 1), of sums that are rounded to
// bfloat16 first, as the reference does.
__device__ uint32 activate(float gate0, float gate1, float up0, float up1, float limit) {
  constexpr float ALPHA_LOG2_E = 1.702f * 1.44269504f;
  const uint32 gates = pack_bfloat16(gate0 * GROW, gate1 * GROW);
  const uint32 ups = pack_bfloat16(up0 * GROW, up1 * GROW);
  float hidden[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float gate = min_nan(i ? high_half(gates) : low_half(gates), limit);
    const float up = max_nan(min_nan(i ? high_half(ups) : low_half(ups), limit), -limit);
    hidden[i] = __fdividef(gate, 1.0f + exp2_fast(-ALPHA_LOG2_E * gate)) * (up + 1.0f);
  }
  return pack_bfloat16(hidden[0], hidden[1]);
}

// Write 64 columns of a tile: pairs of results, two rows of x each, by way of shared memory.
//
// Args:
//   pair: (i) gives sums 2 i and 2 i + 1 as bfloat16.
template <int ROWS, typename Pair>
__device__ void write(const Operands& operands, const Tile& tile, int column, uint32 buffer,
                      int barrier, Pair pair) {
  const int thread = threadIdx.x % WARP_GROUP;
  const int lane = thread % WARP;
  // Matrices 0 and 2 are the warp's upper eight columns, 1 and 3 its lower ones.
  const int row = lane / 16 * 8 + lane % 8;
  const int piece = thread / WARP * 2 + lane / 8 % 2;
  const uint32 to = buffer + row * (BLOCK * 2) + (piece ^ lane % 8) * 16;
  group_sync(barrier);  // what was there has been read
#pragma unroll
  for (int i = 0; i < ROWS / 16; ++i) {
    store_transposed(to + i * 16 * (BLOCK * 2), pair(4 * i), pair(4 * i + 1), pair(4 * i + 2),
                     pair(4 * i + 3));
  }
  group_sync(barrier);
  const uint64 row_bytes = uint64(operands.columns) * 2;
  char* out = operands.out + uint64(tile.start) * row_bytes + column * 2 + thread % 8 * 16;
  for (int at = thread / 8; at < tile.rows; at += WARP_GROUP / 8) {
    const uint32 from = buffer + at * (BLOCK * 2) + (thread % 8 ^ at % 8) * 16;
    *reinterpret_cast<uint4*>(out + at * row_bytes) = load_shared_16(from);
  }
}

template <bool GATED, int ROWS>
__device__ void compute_tile(const Operands& operands, const Tile& tile, uint32 shared, int group,
                             Stage& stage) {
  const int thread = threadIdx.x % WARP_GROUP;
  const int lane = thread % WARP;
  const int row = thread / WARP * 16 + lane / 4;  // and 8 below
  const int steps = operands.width / STEP;
  const BlockPlace<GATED> places[2] = {{tile.place, group * 2, operands.columns},
                                       {tile.place, group * 2 + 1, operands.columns}};
  const uint32 words_at = X_BYTES + (group * 2 * BLOCK + row) * (STEP / 2) + lane % 4 * 4;
  const uint32 scales_at = X_BYTES + WORD_BYTES + (group * 2 * BLOCK + row) * 4;
  const int swapped = row / 4 % 2 * 16;

  float sums[2][ROWS / 2];
  const uint16* bias = operands.bias + tile.expert * (GATED ? 2 : 1) * operands.columns + row;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    start_sums<ROWS>(sums[i], bias + places[i].part * operands.columns + places[i].column);
  }

  uint32 left[2][STEP / 4];
  uint32 release = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step, stage.advance()) {
    const uint32 at = shared + stage.index * STAGE_BYTES;
    const uint64 right = swizzled_rows(at);
    barrier_wait(shared + FULL_AT + stage.index * 8, stage.parity);
    make_visible_to_tensor_cores();  // copies write as threads do
    Weights weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32 words = at + words_at + i * BLOCK * (STEP / 2);
      weights[i].load(words, at + scales_at + i * BLOCK * 4, swapped);
    }
    weights[0].unpack_into(left[0], step);
    multiply<ROWS>(sums[0], left[0], right);
    wgmma_wait<1>();  // the second block of the step before is done
    hold(left[1]);
    if (step && lane == 0) barrier_arrive(release);
    weights[1].unpack_into(left[1], step);
    multiply<ROWS>(sums[1], left[1], right);
    wgmma_wait<1>();
    hold(left[0]);
    release = shared + EMPTY_AT + stage.index * 8;
  }
  wgmma_wait<0>();
  hold(left[1]);
  hold(sums[0]);
  hold(sums[1]);
  if (lane == 0) barrier_arrive(release);

  const uint32 buffer = shared + OUT_AT + group * OUT_BYTES;
  if constexpr (GATED) {
    write<ROWS>(operands, tile, places[0].column, buffer, 1 + group, [&](int i) {
      return activate(sums[0][2 * i], sums[0][2 * i + 1], sums[1][2 * i], sums[1][2 * i + 1],
                      operands.limit);
    });
  } else {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      if (!places[block].kept) continue;
      write<ROWS>(operands, tile, places[block].column, buffer, 1 + group, [&](int i) {
        return pack_bfloat16(sums[block][2 * i] * GROW, sums[block][2 * i + 1] * GROW);
      });
    }
  }
}

// A group whose columns are all beyond the last one lets the stages pass.
__device__ void pass(const Operands& operands, uint32 shared, Stage& stage) {
  for (int step = 0; step < operands.width / STEP; ++step, stage.advance()) {
    barrier_wait(shared + FULL_AT + stage.index * 8, stage.parity);
    if (threadIdx.x % WARP == 0) barrier_arrive(shared + EMPTY_AT + stage.index * 8);
  }
}

template <bool GATED, int ROWS>
__device__ void compute(const Operands& operands, uint32 shared, Tiles tiles, Stage& stage) {
  const int group = threadIdx.x / WARP_GROUP - 1;
  for (Tile tile; tiles.find(tile);) {
    if (BlockPlace<GATED>(tile.place, group * 2, operands.columns).kept) {
      compute_tile<GATED, ROWS>(operands, tile, shared, group, stage);
    } else {
      pass(operands, shared, stage);
    }
  }
}

// One width after the other, in the same order on both sides.

template <bool GATED, int FIRST>
__device__ void fetch_all(const Operands& operands, const Shared& shared, Stage& stage) {
  if constexpr (FIRST < WIDTHS) {
    fetch<GATED, width_of(FIRST)>(operands, shared.at, shared.tiles(operands, FIRST), stage);
    fetch_all<GATED, FIRST + 1>(operands, shared, stage);
  }
}

template <bool GATED, int FIRST>
__device__ void compute_all(const Operands& operands, const Shared& shared, Stage& stage) {
  if constexpr (FIRST < WIDTHS) {
    compute<GATED, width_of(FIRST)>(operands, shared.at, shared.tiles(operands, FIRST), stage);
    compute_all<GATED, FIRST + 1>(operands, shared, stage);
  }
}

template <bool GATED>
__device__ void run(const Operands& operands) {
  extern __shared__ __align__(1024) char memory[];
  int32* ends = reinterpret_cast<int32*>(memory + TILES_AT);
  const int columns_a_tile = GATED ? GROUPS * BLOCK : BLOCKS * BLOCK;
  const int places = (operands.columns + columns_a_tile - 1) / columns_a_tile;
  const Shared shared{shared_address(memory), ends, places};
  const int warp = threadIdx.x / WARP;
  dependent_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(shared.at + FULL_AT + i * 8, WARP_GROUP);
      barrier_init(shared.at + EMPTY_AT + i * 8, GROUPS * WARP_GROUP / WARP);
    }
  }
  if (warp < WIDTHS) count_tiles(operands, warp, ends + warp * (MOST_EXPERTS + 1));
  __syncthreads();
  Stage stage;
  if (threadIdx.x < WARP_GROUP) {
    give_registers<FETCHER_REGISTERS>();
    fetch_all<GATED, 0>(operands, shared, stage);
    wait_for_copies();
  } else {
    take_registers<MULTIPLIER_REGISTERS>();
    compute_all<GATED, 0>(operands, shared, stage);
  }
}

}  // namespace

// Args, of both: see Operands. As many programs as multiprocessors, of THREADS and SHARED_BYTES.

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gate_up(const char* x, const char* words, const char* scales, const uint16* bias,
            const int32* token_of_row, const int32* rows_of, const int32* first_row, char* out,
            float limit, int32 experts, int32 columns, int32 width) {
  run<true>({x, words, scales, bias, token_of_row, rows_of, first_row, out, limit, experts,
             columns, width});
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    down(const char* x, const char* words, const char* scales, const uint16* bias,
         const int32* token_of_row, const int32* rows_of, const int32* first_row, char* out,
         float limit, int32 experts, int32 columns, int32 width) {
  run<false>({x, words, scales, bias, token_of_row, rows_of, first_row, out, limit, experts,
              columns, width});
}
