// AVX-512 with BF16, VNNI and VBMI: bf16 dot products for bf16 and FP8 weights (activations rounded to bf16).
#if !defined(__AVX512BF16__) || !defined(__AVX512VNNI__) || !defined(__AVX512VBMI__)
#error "this file is compiled with -mavx512bf16 -mavx512vnni -mavx512vbmi"
#endif

#include "rows_avx512.inl"

#include "kernels_float.inl"

#include "pairs_panel.inl"

namespace kt {
namespace {

__m512i same_pair(const uint8_t* x, int pair) {
  int value;
  memcpy(&value, x + 4 * static_cast<size_t>(pair), sizeof value);
  return _mm512_set1_epi32(value);
}

__m512i same_quad(const uint8_t* x, int quad) {
  long long value;
  memcpy(&value, x + 8 * static_cast<size_t>(quad), sizeof value);
  return _mm512_set1_epi64(value);
}

// Weights of one quad as bf16 pairs, in two registers.
struct Quad {
  __m512i first, second;
};

struct Bf16Pairs {
  static constexpr int kQuadBytes = 128;
  static Quad quad(const uint8_t* p) { return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64)}; }
  // first: columns 0 and 1 of 16 rows, second: columns 2 and 3
  static void add(const Quad& quad, const uint8_t* x, int q, __m512& first, __m512& second) {
    first = dot_pairs(first, quad.first, same_pair(x, 2 * q));
    second = dot_pairs(second, quad.second, same_pair(x, 2 * q + 1));
  }
  static __m512 total(__m512 first, __m512 second) { return _mm512_add_ps(first, second); }
};

// High and low byte of the bf16 of each E4M3 magnitude; every finite code is exact, subnormals included. The
// NaN entry is never used: such weights are refused when they are packed.
struct Fp8Table {
  uint8_t high[128], low[128];
  constexpr Fp8Table() : high{}, low{} {
    for (int code = 0; code < 127; ++code) {
      int exponent = code >> 3, mantissa = code & 7;
      uint16_t bits = 0;
      if (exponent == 0 && mantissa != 0) {
        exponent = 1;
        while (mantissa < 8) {
          mantissa <<= 1;
          --exponent;
        }
        mantissa &= 7;
      }
      if (code != 0) bits = static_cast<uint16_t>(((exponent + 120) << 7) | (mantissa << 4));
      high[code] = static_cast<uint8_t>(bits >> 8);
      low[code] = static_cast<uint8_t>(bits);
    }
  }
};

constexpr Fp8Table kFp8Table;

struct Fp8Pairs {
  static constexpr int kQuadBytes = 64;
  static Quad quad(const uint8_t* p) {
    const __m512i codes = _mm512_loadu_si512(p);
    __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(kFp8Table.high), codes,
                                            _mm512_loadu_si512(kFp8Table.high + 64));
    const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(kFp8Table.low), codes,
                                                 _mm512_loadu_si512(kFp8Table.low + 64));
    // high | (codes & sign bit)
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }
  // In each 128-bit lane, first: columns 0-1 and 2-3 of one row, then of the next; second: the two rows after
  // those
  static void add(const Quad& quad, const uint8_t* x, int q, __m512& first, __m512& second) {
    const __m512i four = same_quad(x, q);
    first = dot_pairs(first, quad.first, four);
    second = dot_pairs(second, quad.second, four);
  }
  static __m512 total(__m512 first, __m512 second) {
    return _mm512_add_ps(_mm512_shuffle_ps(first, second, 0x88), _mm512_shuffle_ps(first, second, 0xdd));
  }
};

template <typename Tile, int M>
void dot_bf16_quads(const uint8_t* w, const uint8_t* const* x, int quads, __m512 (&sums)[M]) {
  // With few rows, alternate quads go to other sums, to hide the latency of the dot product.
  constexpr int kUnroll = M <= 2 ? 2 : 1;
  __m512 acc[M][2 * kUnroll];
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    KT_UNROLL
    for (int c = 0; c < 2 * kUnroll; ++c) acc[m][c] = _mm512_setzero_ps();
  }
  int q = 0;
  for (; q + kUnroll <= quads; q += kUnroll) {
    KT_UNROLL
    for (int u = 0; u < kUnroll; ++u, w += Tile::kQuadBytes) {
      KT_UNROLL
      for (int line = 0; line < Tile::kQuadBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(w) + 4096 + line, _MM_HINT_T0);
      const Quad quad = Tile::quad(w);
      KT_UNROLL
      for (int m = 0; m < M; ++m) Tile::add(quad, x[m], q + u, acc[m][2 * u], acc[m][2 * u + 1]);
    }
  }
  for (; q < quads; ++q, w += Tile::kQuadBytes) {
    const Quad quad = Tile::quad(w);
    KT_UNROLL
    for (int m = 0; m < M; ++m) Tile::add(quad, x[m], q, acc[m][0], acc[m][1]);
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    if (kUnroll == 2) {
      acc[m][0] = _mm512_add_ps(acc[m][0], acc[m][2 % (2 * kUnroll)]);
      acc[m][1] = _mm512_add_ps(acc[m][1], acc[m][3 % (2 * kUnroll)]);
    }
    sums[m] = Tile::total(acc[m][0], acc[m][1]);
  }
}

template <int M>
struct GemvBf16Pairs {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    __m512 sums[M];
    dot_bf16_quads<Bf16Pairs, M>(tile, rows, depth / 4, sums);
    KT_UNROLL
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(out + m * kTileRows, sums[m]);
  }
};

// The codes are exact here, so the scale comes without the factor 2^60.
template <typename Scheme>
__m512 scale_of(const uint8_t* tile, const uint8_t* block, int k) {
  return _mm512_mul_ps(Scheme::factor(tile, block, k).all, _mm512_set1_ps(1.0f / kRaise));
}

template <typename Scheme, int M>
struct GemvFp8Pairs {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    __m512 totals[M];
    KT_UNROLL
    for (int m = 0; m < M; ++m) totals[m] = _mm512_setzero_ps();
    for (int k = 0; k < depth; k += Scheme::kBlock) {
      __m512 sums[M];
      const uint8_t* x[M];
      KT_UNROLL
      for (int m = 0; m < M; ++m) x[m] = rows[m] + 2 * static_cast<size_t>(k);
      const uint8_t* block = Scheme::block(tile, depth, k);
      const int left = depth - k < Scheme::kBlock ? depth - k : Scheme::kBlock;
      dot_bf16_quads<Fp8Pairs, M>(Scheme::codes(block), x, left / 4, sums);
      const __m512 scale = scale_of<Scheme>(tile, block, k);
      KT_UNROLL
      for (int m = 0; m < M; ++m) totals[m] = _mm512_fmadd_ps(sums[m], scale, totals[m]);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) _mm512_storeu_ps(out + m * kTileRows, totals[m]);
  }
};

template <int M>
using GemvFp8Block128Pairs = GemvFp8Pairs<Fp8Block128, M>;
template <int M>
using GemvFp8ChannelPairs = GemvFp8Pairs<Fp8Channel, M>;
template <int M>
using GemvMxfp8Pairs = GemvFp8Pairs<Mxfp8, M>;

float convert_bf16_pairs(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  memcpy(panel, tile + static_cast<size_t>(begin) * 32, static_cast<size_t>(end - begin) * 32);
  return 1.0f;
}

// Codes as bf16 pairs, [step of two columns][16 rows].
void convert_codes(const uint8_t* w, int quads, uint32_t* panel) {
  for (int q = 0; q < quads; ++q, w += 64, panel += 2 * kTileRows) {
    const Quad quad = Fp8Pairs::quad(w);
    const __m512 first = _mm512_castsi512_ps(quad.first), second = _mm512_castsi512_ps(quad.second);
    _mm512_storeu_ps(panel, _mm512_shuffle_ps(first, second, 0x88));
    _mm512_storeu_ps(panel + kTileRows, _mm512_shuffle_ps(first, second, 0xdd));
  }
}

// One block of 128 at most; its scale is applied to the sums, so the bf16 weights are exact.
float convert_fp8_pairs(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel) {
  convert_codes(Fp8Block128::block(tile, depth, begin), (end - begin) / 4, panel);
  return reinterpret_cast<const float*>(tile)[begin / kScaleBlock];
}

// A code has four significant bits and a power of two none, so mxfp8 is exact in bf16, unless it is out of
// range.
float convert_mxfp8_pairs(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel) {
  for (int k = begin; k < end; k += kQuantBlock, panel += kQuantBlock / 2 * kTileRows) {
    const uint8_t* block = Mxfp8::block(tile, depth, k);
    convert_codes(Mxfp8::codes(block), (end - k < kQuantBlock ? end - k : kQuantBlock) / 4, panel);
    const __m512 scale = powers_of_two(block).all;
    for (int step = 0; step < kQuantBlock / 2; ++step) {
      uint32_t* to = panel + step * kTileRows;
      const __m512i pairs = _mm512_loadu_si512(to);
      const __m512 low = _mm512_mul_ps(low_half_f32({pairs}).all, scale);
      const __m512 high = _mm512_mul_ps(high_half_f32({pairs}).all, scale);
      _mm512_storeu_si512(
          to, _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
                              _mm512_and_si512(_mm512_castps_si512(high),
                                               _mm512_set1_epi32(static_cast<int>(0xffff0000u)))));
    }
  }
  return 1.0f;
}

double fma_bf16(long iterations) {
  __m512 acc[16];
  const __m512i factor = _mm512_set1_epi32(0x3f803f80), term = factor;
  KT_UNROLL
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_ps();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 16; ++i) {
      acc[i] = dot_pairs(acc[i], factor, term);
      __asm__ volatile("" : "+v"(acc[i]));
    }
  }
  KT_UNROLL
  for (int i = 1; i < 16; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  __asm__ volatile("" : "+v"(acc[0]));
  return 16.0 * 64.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx512_bf16(Kernels& table) {
  table.name = "avx512_bf16";
  table.formats[kBf16][kExact] = {
      kActBf16, gemv<GemvBf16Pairs>, kPassRows,
      converted_panel<kActBf16, kPanelRows, kBf16Chunk, 2, convert_bf16_pairs, gemm_pairs>()};
  table.formats[kFp8Block128][kExact] = {
      kActBf16, gemv<GemvFp8Block128Pairs>, kPassRows,
      converted_panel<kActBf16, kPanelRows, kScaleBlock, 2, convert_fp8_pairs, gemm_pairs>()};
  table.formats[kMxfp8][kExact] = {
      kActBf16, gemv<GemvMxfp8Pairs>, kPassRows,
      converted_panel<kActBf16, kPanelRows, kBf16Chunk, 2, convert_mxfp8_pairs, gemm_pairs>()};
  // The panel path has no place for scales by row; the f32 path is as exact.
  table.formats[kFp8Channel][kExact].activation = kActBf16;
  table.formats[kFp8Channel][kExact].gemv = gemv<GemvFp8ChannelPairs>;
  for (int f = kBf16; f <= kMxfp8; ++f) table.formats[f][kFast] = table.formats[f][kExact];
  table.fma_bf16 = fma_bf16;
}

}  // namespace kt
