// The f32 and int8 kernels of all vector instruction sets, written once over a vector of one tile's 16 rows.
//
// The including translation unit defines, in its own anonymous namespace, before including this:
//   Rows               16 f32, one per row of a tile; zero_rows, load_rows, store_rows, same (broadcast)
//   multiply_add       a * b + c; multiply_add_scalar: a * *x + c
//   add, multiply
//   Words              16 dwords; load_words; low_half_f32, high_half_f32: bf16 in either half of each dword
//   halves_to_rows     16 f16
//   nibble<I>, byte<I> unsigned 4-bit (I in 0..7) and signed 8-bit (I in 0..3) value of each dword
//   fp8_pair           weights / 256 of a quad at depth 2p and 2p + 1
//   int8_dots          integer dot products of one block of 32 with int8 activations
//   kPassRows          activation rows per pass of gemv; kSingleRowChains for hiding the latency with one row
#include "kernels_shared.inl"

// Arrays of registers stay in registers only when every loop over them is unrolled early.
#define KT_UNROLL _Pragma("GCC unroll 16")

namespace kt {
namespace {

constexpr int kChunk = 256;
constexpr float kFp8Factor = 256.0f;

struct F32Tile {
  static constexpr int kQuadBytes = 256;
  static Pair pair(const uint8_t* quad, int p) {
    const float* w = reinterpret_cast<const float*>(quad) + p * 32;
    return {load_rows(w), load_rows(w + 16)};
  }
};

struct Bf16Tile {
  static constexpr int kQuadBytes = 128;
  static Pair pair(const uint8_t* quad, int p) {
    const Words words = load_words(quad + p * 64);
    return {low_half_f32(words), high_half_f32(words)};
  }
};

struct Fp8Tile {
  static constexpr int kQuadBytes = 64;
  static Pair pair(const uint8_t* quad, int p) { return fp8_pair(quad, p); }
};

size_t fp8_header(int depth) {
  return (static_cast<size_t>((depth + kScaleBlock - 1) / kScaleBlock) * 4 + 63) / 64 * 64;
}

// sums[m] = tile . x[m] over `quads` steps of four. Few rows use several chains of sums.
template <typename Tile, int M>
void dot_quads(const uint8_t* w, const float* const* x, int quads, Rows (&sums)[M]) {
  constexpr int kChains = M == 1 ? 4 : M <= 3 ? 2 : 1;
  Rows acc[M][kChains];
  KT_UNROLL
  for (int m = 0; m < M; ++m) KT_UNROLL
  for (int c = 0; c < kChains; ++c) acc[m][c] = zero_rows();
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes) {
    KT_UNROLL
    for (int p = 0; p < 2; ++p) {
      const Pair pair = Tile::pair(w, p);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const float* at = x[m] + 4 * q + 2 * p;
        Rows& even = acc[m][(2 * p) % kChains];
        even = multiply_add_scalar(pair.even, at, even);
        Rows& odd = acc[m][(2 * p + 1) % kChains];
        odd = multiply_add_scalar(pair.odd, at + 1, odd);
      }
    }
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

template <int M>
struct GemvFp8 {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    const float* scales = reinterpret_cast<const float*>(tile);
    const uint8_t* w = tile + fp8_header(depth);
    Rows totals[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) totals[m] = zero_rows();
    for (int k = 0; k < depth; k += kScaleBlock, w += 16 * kScaleBlock) {
      Rows sums[M];
      const float* x[M];
      KT_UNROLL
      for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const float*>(rows[m]) + k;
      const int left = depth - k < kScaleBlock ? depth - k : kScaleBlock;
      dot_quads<Fp8Tile, M>(w, x, left / 4, sums);
      const Rows scale = same(scales[k / kScaleBlock] * kFp8Factor);
      KT_UNROLL
      for (int m = 0; m < M; ++m) totals[m] = multiply_add(sums[m], scale, totals[m]);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, totals[m]);
  }
};

// A block of 32: 16 dwords per word, kValues values in each.
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
using GemvF32 = GemvPlain<F32Tile, M>;
template <int M>
using GemvBf16 = GemvPlain<Bf16Tile, M>;
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

template <typename Tile>
void convert_quads(const uint8_t* w, int quads, float factor, float* panel) {
  const Rows scale = same(factor);
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes) {
    KT_UNROLL
    for (int p = 0; p < 2; ++p, panel += 2 * kTileRows) {
      const Pair pair = Tile::pair(w, p);
      store_rows(panel, multiply(pair.even, scale));
      store_rows(panel + kTileRows, multiply(pair.odd, scale));
    }
  }
}

template <typename Tile>
float convert_plain(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  convert_quads<Tile>(tile + static_cast<size_t>(begin / 4) * Tile::kQuadBytes, (end - begin) / 4, 1.0f,
                      reinterpret_cast<float*>(panel));
  return 1.0f;
}

float convert_fp8(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel) {
  const float* scales = reinterpret_cast<const float*>(tile);
  const uint8_t* w = tile + fp8_header(depth);
  for (int k = begin; k < end; k += kScaleBlock) {
    const int left = end - k < kScaleBlock ? end - k : kScaleBlock;
    convert_quads<Fp8Tile>(w + static_cast<size_t>(k) * 16, left / 4, scales[k / kScaleBlock] * kFp8Factor,
                           reinterpret_cast<float*>(panel) + static_cast<size_t>(k - begin) * kTileRows);
  }
  return 1.0f;
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

// `Width` tiles side by side, M activation rows.
template <int M, int Width>
void gemm_rows(const float* a, const float* const (&b)[Width], int steps, float* const (&c)[Width],
               const float (&scale)[Width]) {
  Rows acc[M][Width];
  KT_UNROLL
  for (int m = 0; m < M; ++m) KT_UNROLL
  for (int t = 0; t < Width; ++t) acc[m][t] = zero_rows();
  for (int step = 0; step < steps; ++step, a += kPanelRows) {
    Rows weights[Width];
    KT_UNROLL
    for (int t = 0; t < Width; ++t) weights[t] = load_rows(b[t] + static_cast<size_t>(step) * kTileRows);
    KT_UNROLL
    for (int m = 0; m < M; ++m) KT_UNROLL
    for (int t = 0; t < Width; ++t) acc[m][t] = multiply_add_scalar(weights[t], a + m, acc[m][t]);
  }
  KT_UNROLL
  for (int t = 0; t < Width; ++t) {
    const Rows s = same(scale[t]);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      float* to = c[t] + m * kTileRows;
      store_rows(to, multiply_add(acc[m][t], s, load_rows(to)));
    }
  }
}

template <int Width, int M = kPanelRows>
void gemm_any(const float* a, const float* const (&b)[Width], int steps, int m, float* const (&c)[Width],
              const float (&scale)[Width]) {
  if (m == M) {
    gemm_rows<M, Width>(a, b, steps, c, scale);
  } else if constexpr (M > 1) {
    gemm_any<Width, M - 1>(a, b, steps, m, c, scale);
  }
}

void gemm(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m, float* c0, float* c1,
          float scale0, float scale1) {
  const float* left = reinterpret_cast<const float*>(a);
  const float* const b[2] = {reinterpret_cast<const float*>(b0), reinterpret_cast<const float*>(b1)};
  if (b1 && kPanelTiles == 2) {
    gemm_any<2>(left, b, steps, m, {c0, c1}, {scale0, scale1});
    return;
  }
  gemm_any<1>(left, {b[0]}, steps, m, {c0}, {scale0});
  if (b1) gemm_any<1>(left, {b[1]}, steps, m, {c1}, {scale1});
}

FormatKernels exact(Activation activation, GemvFn function, ConvertFn convert) {
  return {activation, function, kPassRows, convert, gemm, kPanelRows, kChunk, 1};
}

FormatKernels fast(GemvFn function) { return {kActInt8, function, 1 << 30, nullptr, nullptr, 1, kChunk, 1}; }

[[maybe_unused]] void install_vector(Kernels& table) {
  table.formats[kF32][kExact] = exact(kActF32, gemv<GemvF32>, convert_plain<F32Tile>);
  table.formats[kBf16][kExact] = exact(kActF32, gemv<GemvBf16>, convert_plain<Bf16Tile>);
  table.formats[kFp8Block128][kExact] = exact(kActF32, gemv<GemvFp8>, convert_fp8);
  table.formats[kQ4_1][kExact] = exact(kActF32Sums, gemv<GemvQ4>, convert_quantised<Q4>);
  table.formats[kQ8_0][kExact] = exact(kActF32, gemv<GemvQ8>, convert_quantised<Q8>);
  for (int f = kF32; f <= kFp8Block128; ++f) table.formats[f][kFast] = table.formats[f][kExact];
  table.formats[kQ4_1][kFast] = fast(gemv<GemvQ4Int8>);
  table.formats[kQ8_0][kFast] = fast(gemv<GemvQ8Int8>);
  table.prepare[kActF32] = prepare_f32;
  table.prepare[kActF32Sums] = prepare_f32_sums;
  table.prepare[kActBf16] = prepare_bf16;
  table.prepare[kActInt8] = prepare_int8;
  table.silu_product = silu_product_loop;
  table.interleave = interleave_loop;
}

}  // namespace
}  // namespace kt
