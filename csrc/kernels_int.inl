// The kernels of formats that hold integers, written once over a vector of one tile's 16 rows (see
// rows_avx2.inl and rows_avx512.inl, one of which is included before). The including translation unit
// declares, before including this,
//   int8_dots          integer dot products of one block of 32 with int8 activations
#include "panel_f32.inl"

namespace kt {
namespace {

struct Q4 {
  static constexpr int kBlockBytes = 320, kData = 64, kWords = 4, kValues = 8;
  static constexpr bool kHasMinimum = true;
  template <int I>
  static Rows value(Words words) {
    // Value I < 4 is the low nibble of byte I, the others are the high nibbles.
    return nibble<(I < 4 ? 2 * I : 2 * (I - 4) + 1)>(words);
  }
  static constexpr int depth(int j, int i) { return i < 4 ? 4 * j + i : 16 + 4 * j + i - 4; }
};

struct Q8 {
  static constexpr int kBlockBytes = 544, kData = 32, kWords = 8, kValues = 4;
  static constexpr bool kHasMinimum = false;
  template <int I>
  static Rows value(Words words) {
    return byte<I>(words);
  }
  static constexpr int depth(int j, int i) { return 4 * j + i; }
};

template <typename Tile, int M, int I>
void dot_values(Words words, int j, const float* const* x, Rows (&acc)[M]) {
  if constexpr (I < Tile::kValues) {
    const Rows value = Tile::template value<I>(words);
    KT_UNROLL
    for (int m = 0; m < M; ++m) acc[m] = multiply_add_scalar(value, x[m] + Tile::depth(j, I), acc[m]);
    dot_values<Tile, M, I + 1>(words, j, x, acc);
  }
}

// Adds d * dot (and the minimum times the sum of the activations) of one block.
template <typename Tile, int M>
void add_block(const uint8_t* block, const float* scales, const float* sums, const Rows (&dots)[M],
               Rows (&totals)[M]) {
  const Rows d = halves_to_rows(block);
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    const Rows factor = scales ? multiply(d, same(scales[m])) : d;
    totals[m] = multiply_add(dots[m], factor, totals[m]);
    if (Tile::kHasMinimum) totals[m] = multiply_add_scalar(halves_to_rows(block + 32), sums + m, totals[m]);
  }
}

template <typename Tile, int M>
struct GemvQuantised {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    Rows totals[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) totals[m] = zero_rows();
    for (int b = 0; b < depth / kQuantBlock; ++b, tile += Tile::kBlockBytes) {
      const float* x[M];
      float sums[M];
      // With one row, two chains hide the latency of the sums.
      constexpr int kChains = M == 1 ? 2 : 1;
      Rows dots[M], other[M];
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const float* row = reinterpret_cast<const float*>(rows[m]);
        x[m] = row + b * kQuantBlock;
        sums[m] = Tile::kHasMinimum ? row[depth + b] : 0.0f;
        dots[m] = other[m] = zero_rows();
      }
      KT_UNROLL
      for (int j = 0; j < Tile::kWords; ++j)
        dot_values<Tile, M, 0>(load_words(tile + Tile::kData + j * 64), j, x, j % kChains ? other : dots);
      if (kChains == 2) {
        KT_UNROLL
        for (int m = 0; m < M; ++m) dots[m] = add(dots[m], other[m]);
      }
      add_block<Tile, M>(tile, nullptr, sums, dots, totals);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, totals[m]);
  }
};

template <typename Tile, int M>
struct GemvInt8 {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    const int blocks = depth / kQuantBlock;
    Rows totals[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) totals[m] = zero_rows();
    for (int b = 0; b < blocks; ++b, tile += Tile::kBlockBytes) {
      const int8_t* x[M];
      float scales[M], sums[M];
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const float* side = reinterpret_cast<const float*>(rows[m] + depth);
        x[m] = reinterpret_cast<const int8_t*>(rows[m]) + b * kQuantBlock;
        scales[m] = side[b];
        sums[m] = side[blocks + b];
      }
      Rows dots[M];
      int8_dots<M>(Tile{}, tile + Tile::kData, x, dots);
      add_block<Tile, M>(tile, scales, sums, dots, totals);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, totals[m]);
  }
};

template <int M>
using GemvQ4 = GemvQuantised<Q4, M>;
template <int M>
using GemvQ8 = GemvQuantised<Q8, M>;
template <int M>
using GemvQ4Int8 = GemvInt8<Q4, M>;
template <int M>
using GemvQ8Int8 = GemvInt8<Q8, M>;

// Any number of rows, kPassRows at a time.
template <template <int> class Gemv, int M = kPassRows>
void gemv(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (; m >= M; m -= M, rows += M, out += M * kTileRows) Gemv<M>::run(tile, depth, rows, out);
  if constexpr (M > 1)
    if (m > 0) gemv<Gemv, M - 1>(tile, depth, rows, m, out);
}

template <typename Tile, int I>
void convert_values(Words words, int j, Rows d, Rows minimum, float* panel) {
  if constexpr (I < Tile::kValues) {
    store_rows(panel + Tile::depth(j, I) * kTileRows,
               multiply_add(Tile::template value<I>(words), d, minimum));
    convert_values<Tile, I + 1>(words, j, d, minimum, panel);
  }
}

template <typename Tile>
float convert_quantised(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  float* to = reinterpret_cast<float*>(panel);
  for (int k = begin; k < end; k += kQuantBlock, to += kQuantBlock * kTileRows) {
    const uint8_t* block = tile + static_cast<size_t>(k / kQuantBlock) * Tile::kBlockBytes;
    const Rows d = halves_to_rows(block);
    const Rows minimum = Tile::kHasMinimum ? halves_to_rows(block + 32) : zero_rows();
    for (int j = 0; j < Tile::kWords; ++j)
      convert_values<Tile, 0>(load_words(block + Tile::kData + j * 64), j, d, minimum, to);
  }
  return 1.0f;
}

[[maybe_unused]] FormatKernels exact(Activation activation, GemvFn function, PanelKernels panel) {
  return {activation, function, kPassRows, panel};
}

FormatKernels fast(GemvFn function) { return {kActInt8, function, 64, {}}; }

[[maybe_unused]] void install_fast_formats(Kernels& table) {
  table.formats[kQ4_1][kFast] = fast(gemv<GemvQ4Int8>);
  table.formats[kQ8_0][kFast] = fast(gemv<GemvQ8Int8>);
}

[[maybe_unused]] void install_int_formats(Kernels& table) {
  table.formats[kQ4_1][kExact] =
      exact(kActF32Sums, gemv<GemvQ4>, panel_f32<kActF32, convert_quantised<Q4>>());
  table.formats[kQ8_0][kExact] = exact(kActF32, gemv<GemvQ8>, panel_f32<kActF32, convert_quantised<Q8>>());
  install_fast_formats(table);
}

}  // namespace
}  // namespace kt
