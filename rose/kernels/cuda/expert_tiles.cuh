// Which tiles a program computes: what follows from how many rows each expert has.
#pragma once

#include "hopper.cuh"

constexpr int WIDTHS = 5;  // of tiles, along the rows of x
constexpr int MOST_ROWS = 144;
constexpr int ROWS_GRAIN = 8;
constexpr int MOST_EXPERTS = 512;

// Rows of x of a product, the most first.
__device__ constexpr int width_of(int index) {
  constexpr int ROWS[WIDTHS] = {MOST_ROWS, 128, 96, 64, 32};
  return ROWS[index];
}

struct Operands {
  const char* x;              // bfloat16 [*, width]
  const char* words;          // int32 [experts, parts, columns, width / 8]
  const char* scales;         // int32 [experts, parts, width / 128 rounded up, columns]
  const uint16* bias;         // bfloat16 [experts, parts * columns]
  const int32* token_of_row;  // [rows]; only for gate and up, whose x has a row a token
  const int32* rows_of;       // [experts]
  const int32* first_row;     // [experts]
  char* out;                  // bfloat16 [rows, columns]
  float limit;
  int32 experts, columns, width;
};

// How an expert's rows are cut.
struct Cut {
  int tiles;
  int rows;  // of each tile but the last, which may have fewer

  __device__ explicit Cut(int all) {
    tiles = (all + MOST_ROWS - 1) / MOST_ROWS;
    // Equal parts: a last tile of a few rows would cost nearly as much as a whole one.
    const int part = tiles ? (all + tiles - 1) / tiles : 0;
    rows = (part + ROWS_GRAIN - 1) / ROWS_GRAIN * ROWS_GRAIN;
  }

  // Which width its products have.
  __device__ int width() const {
    int index = WIDTHS - 1;
    while (index && rows > width_of(index)) --index;
    return index;
  }
};

// How many tiles of one width the experts 0 to e - 1 have along rows, for each e; by one warp.
__device__ inline void count_tiles(const Operands& operands, int width, int32* ends) {
  const int lane = threadIdx.x % WARP;
  int before = 0;
  for (int first = 0; first < operands.experts; first += WARP) {
    const int expert = first + lane;
    const Cut cut(expert < operands.experts ? operands.rows_of[expert] : 0);
    int sum = cut.width() == width ? cut.tiles : 0;
    for (int distance = 1; distance < WARP; distance *= 2) {
      const int other = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (expert < operands.experts) ends[expert + 1] = before + sum;
    before += __shfl_sync(~0u, sum, WARP - 1);
  }
  if (lane == 0) ends[0] = 0;
}

// A product of 256 rows of weights with some rows of x.
struct Tile {
  int expert;
  int start;  // its first row
  int rows;
  int place;  // of its columns, among all of the expert's
};

// Goes over the tiles of one width that are this program's: along an expert's rows first, then its
// columns, so that programs at work at a time share weights and x in L2.
class Tiles {
 public:
  // Args:
  //   ends: as `count_tiles` left them.
  //   places: tiles along an expert's columns.
  //   before: tiles of other widths that were dealt to programs before.
  __device__ Tiles(const Operands& operands, const int32* ends, int places, int before)
      : operands_(operands), ends_(ends), places_(places), expert_(0) {
    next_ = (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x;
  }

  __device__ bool find(Tile& tile) {
    while (expert_ < operands_.experts && ends_[expert_ + 1] * places_ <= next_) ++expert_;
    if (expert_ == operands_.experts) return false;
    const int all = operands_.rows_of[expert_];
    const Cut cut(all);
    const int member = next_ - ends_[expert_] * places_;
    const int offset = member % cut.tiles * cut.rows;
    tile.expert = expert_;
    tile.start = operands_.first_row[expert_] + offset;
    tile.rows = min(cut.rows, all - offset);
    tile.place = member / cut.tiles;
    next_ += gridDim.x;
    return true;
  }

 private:
  const Operands& operands_;
  const int32* ends_;
  int places_;
  int next_;
  int expert_;
};

// Where the warp groups of a program find what they share.
struct Shared {
  uint32 at;          // its start
  const int32* ends;  // of `count_tiles`, MOST_EXPERTS + 1 for each width
  int places;         // tiles along an expert's columns

  __device__ const int32* ends_of(int width) const { return ends + width * (MOST_EXPERTS + 1); }

  // The tiles whose width has this index.
  __device__ Tiles tiles(const Operands& operands, int width) const {
    int before = 0;
    for (int i = 0; i < width; ++i) before += ends_of(i)[operands.experts] * places;
    return {operands, ends_of(width), places, before};
  }
};
