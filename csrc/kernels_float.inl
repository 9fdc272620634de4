// The f32 kernels of formats that hold floating-point numbers, written once over a vector of one tile's 16
// rows (see rows_avx2.inl and rows_avx512.inl, one of which is included before).
#include "panel_f32.inl"

namespace kt {
namespace {

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
template <int M>
using GemvF32 = GemvPlain<F32Tile, M>;
template <int M>
using GemvBf16 = GemvPlain<Bf16Tile, M>;

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

FormatKernels exact(GemvFn function, PanelKernels panel) { return {kActF32, function, kPassRows, panel}; }

[[maybe_unused]] void install_float_formats(Kernels& table) {
  table.formats[kF32][kExact] = exact(gemv<GemvF32>, panel_f32<convert_plain<F32Tile>>());
  table.formats[kBf16][kExact] = exact(gemv<GemvBf16>, panel_f32<convert_plain<Bf16Tile>>());
  table.formats[kFp8Block128][kExact] = exact(gemv<GemvFp8>, panel_f32<convert_fp8>());
  for (int f = kF32; f <= kFp8Block128; ++f) table.formats[f][kFast] = table.formats[f][kExact];
}

}  // namespace
}  // namespace kt
