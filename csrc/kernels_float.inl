// The f32 kernels of formats that hold floating-point numbers, written once over a vector of one tile's 16
// rows (see rows_avx2.inl and rows_avx512.inl, one of which is included before).
#include "panel_f32.inl"

namespace kt {
namespace {

// A tile type gives the weights of four columns ("a quad") one by one. kAhead is how many bytes ahead of the
// multiplication weights are asked for: the hardware's own prefetching is late for several streams and stops
// at page ends. Measured.
struct F32Tile {
  static constexpr int kQuadBytes = 256, kAhead = 1024;
  template <int I>
  static Rows column(const uint8_t* quad) {
    return load_rows(reinterpret_cast<const float*>(quad) + I * kTileRows);
  }
};

struct Bf16Tile {
  static constexpr int kQuadBytes = 128, kAhead = 1024;
  template <int I>
  static Rows column(const uint8_t* quad) {
    const Words words = load_words(quad + I / 2 * 64);
    return I % 2 ? high_half_f32(words) : low_half_f32(words);
  }
};

// Weights times 2^-120 (see fp8_column).
struct Fp8Tile {
  static constexpr int kQuadBytes = 64, kAhead = 2048;
  template <int I>
  static Rows column(const uint8_t* quad) {
    return fp8_column<I>(load_words(quad));
  }
};

// Where an FP8 format keeps its scales: kBlock columns share one (a row), a block of them starts at
// block(tile, depth, k), and its codes at codes(that). factor() is the scale of 16 rows times 2^60, which
// with activations times 2^60 takes back the 2^-120 of the codes: neither half can overflow.
struct Fp8Block128 {
  static constexpr int kBlock = kScaleBlock;
  static const uint8_t* block(const uint8_t* tile, int depth, int k) {
    return tile + (static_cast<size_t>((depth + kScaleBlock - 1) / kScaleBlock) * 4 + 63) / 64 * 64 +
           static_cast<size_t>(k) * kTileRows;
  }
  static const uint8_t* codes(const uint8_t* block) { return block; }
  static Rows factor(const uint8_t* tile, const uint8_t*, int k) {
    return same(reinterpret_cast<const float*>(tile)[k / kScaleBlock] * kRaise);
  }
};

struct Fp8Channel {
  static constexpr int kBlock = 512;  // any number: the scale is the whole row's
  static const uint8_t* block(const uint8_t* tile, int, int k) {
    return tile + 64 + static_cast<size_t>(k) * kTileRows;
  }
  static const uint8_t* codes(const uint8_t* block) { return block; }
  static Rows factor(const uint8_t* tile, const uint8_t*, int) {
    return multiply(load_rows(reinterpret_cast<const float*>(tile)), same(kRaise));
  }
};

struct Mxfp8 {
  static constexpr int kBlock = kQuantBlock;
  static const uint8_t* block(const uint8_t* tile, int, int k) {
    return tile + static_cast<size_t>(k / kQuantBlock) * (kTileRows + kQuantBlock * kTileRows);
  }
  static const uint8_t* codes(const uint8_t* block) { return block + kTileRows; }
  static Rows factor(const uint8_t*, const uint8_t* block, int) {
    return multiply(powers_of_two(block), same(kRaise));
  }
};

// Out of line, the sums would live in memory.
template <typename Tile, int M, int kChains, int I>
[[gnu::always_inline]] inline void add_columns(const uint8_t* quad, const float* const* x, int at,
                                               Rows (&acc)[M][kChains]) {
  if constexpr (I < 4) {
    const Rows weights = Tile::template column<I>(quad);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      Rows& sum = acc[m][I % kChains];
      sum = multiply_add_scalar(weights, x[m] + at + I, sum);
    }
    if (M > 1) {
      KT_UNROLL
      for (int m = 0; m < M; ++m) in_order(acc[m][I % kChains]);
    }
    add_columns<Tile, M, kChains, I + 1>(quad, x, at, acc);
  }
}

// sums[m] = tile . x[m] over `quads` steps of four columns. Few rows use several chains of sums, to hide the
// latency.
template <typename Tile, int M>
[[gnu::always_inline]] inline void dot_quads(const uint8_t* w, const float* const* x, int quads,
                                             Rows (&sums)[M]) {
  constexpr int kChains = M == 1 ? kOneRowChains : M <= kTwoChainRows ? 2 : 1;
  Rows acc[M][kChains];
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    KT_UNROLL
    for (int c = 0; c < kChains; ++c) acc[m][c] = zero_rows();
  }
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes) {
    KT_UNROLL
    for (int line = 0; line < Tile::kQuadBytes; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(w) + Tile::kAhead + line, _MM_HINT_T0);
    add_columns<Tile, M, kChains, 0>(w, x, 4 * q, acc);
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    if (kChains == 4)
      sums[m] = add(add(acc[m][0], acc[m][1 % kChains]), add(acc[m][2 % kChains], acc[m][3 % kChains]));
    else
      sums[m] = kChains == 2 ? add(acc[m][0], acc[m][1 % kChains]) : acc[m][0];
  }
}

template <typename Tile, int M>
struct GemvPlain {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    Rows sums[M];
    const float* x[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const float*>(rows[m]);
    dot_quads<Tile, M>(tile, x, depth / 4, sums);
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, sums[m]);
  }
};

template <typename Scheme, int M>
struct GemvFp8 {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    Rows totals[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) totals[m] = zero_rows();
    for (int k = 0; k < depth; k += Scheme::kBlock) {
      Rows sums[M];
      const float* x[M];
      KT_UNROLL
      for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const float*>(rows[m]) + k;
      const uint8_t* block = Scheme::block(tile, depth, k);
      const int left = depth - k < Scheme::kBlock ? depth - k : Scheme::kBlock;
      dot_quads<Fp8Tile, M>(Scheme::codes(block), x, left / 4, sums);
      const Rows factor = Scheme::factor(tile, block, k);
      KT_UNROLL
      for (int m = 0; m < M; ++m) totals[m] = multiply_add(sums[m], factor, totals[m]);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, totals[m]);
  }
};

template <int M>
using GemvF32 = GemvPlain<F32Tile, M>;
template <int M>
using GemvBf16 = GemvPlain<Bf16Tile, M>;
template <int M>
using GemvFp8Block128 = GemvFp8<Fp8Block128, M>;
template <int M>
using GemvFp8Channel = GemvFp8<Fp8Channel, M>;
template <int M>
using GemvMxfp8 = GemvFp8<Mxfp8, M>;

// Any number of rows, kPassRows at a time.
template <template <int> class Gemv, int M = kPassRows>
void gemv(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (; m >= M; m -= M, rows += M, out += M * kTileRows) Gemv<M>::run(tile, depth, rows, out);
  if constexpr (M > 1)
    if (m > 0) gemv<Gemv, M - 1>(tile, depth, rows, m, out);
}

template <typename Tile, int I>
void convert_columns(const uint8_t* quad, Rows factor, float* panel) {
  if constexpr (I < 4) {
    store_rows(panel + I * kTileRows, multiply(Tile::template column<I>(quad), factor));
    convert_columns<Tile, I + 1>(quad, factor, panel);
  }
}

template <typename Tile>
void convert_quads(const uint8_t* w, int quads, Rows factor, float* panel) {
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes, panel += 4 * kTileRows)
    convert_columns<Tile, 0>(w, factor, panel);
}

template <typename Tile>
float convert_plain(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  convert_quads<Tile>(tile + static_cast<size_t>(begin / 4) * Tile::kQuadBytes, (end - begin) / 4, same(1.0f),
                      reinterpret_cast<float*>(panel));
  return 1.0f;
}

// The panel holds weight * 2^-60, to be multiplied with raised activations. A slice starts at a multiple of
// kChunk.
template <typename Scheme>
float convert_fp8(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel) {
  constexpr int kStep = Scheme::kBlock < kChunk ? Scheme::kBlock : kChunk;
  for (int k = begin; k < end; k += kStep) {
    const int left = end - k < kStep ? end - k : kStep;
    const uint8_t* block = Scheme::block(tile, depth, k);
    convert_quads<Fp8Tile>(Scheme::codes(block), left / 4, Scheme::factor(tile, block, k),
                           reinterpret_cast<float*>(panel) + static_cast<size_t>(k - begin) * kTileRows);
  }
  return 1.0f;
}

template <template <int> class Gemv, Activation activation, ConvertFn convert>
FormatKernels float_format() {
  return {activation, gemv<Gemv>, kPassRows, panel_f32<activation, convert>()};
}

[[maybe_unused]] void install_float_formats(Kernels& table) {
  table.formats[kF32][kExact] = float_format<GemvF32, kActF32, convert_plain<F32Tile>>();
  table.formats[kBf16][kExact] = float_format<GemvBf16, kActF32, convert_plain<Bf16Tile>>();
  table.formats[kFp8Block128][kExact] =
      float_format<GemvFp8Block128, kActF32Raised, convert_fp8<Fp8Block128>>();
  table.formats[kFp8Channel][kExact] = float_format<GemvFp8Channel, kActF32Raised, convert_fp8<Fp8Channel>>();
  table.formats[kMxfp8][kExact] = float_format<GemvMxfp8, kActF32Raised, convert_fp8<Mxfp8>>();
  for (int f = kF32; f <= kMxfp8; ++f) table.formats[f][kFast] = table.formats[f][kExact];
}

}  // namespace
}  // namespace kt
