// AVX2 with FMA and F16C. Activations are f32 (exact mode) or int8 (fast mode).
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

constexpr int kRows = 6;  // activation rows of a gemm step: 6 x 16 sums fill 12 of 16 registers
constexpr int kChunk = 256;
constexpr int kGemvRows = 4;

// The value of f16 bits that hold an E4M3 code shifted into place is the code's value / 256.
constexpr float kFp8Factor = 256.0f;

__m256 broadcast(const float* p) { return _mm256_broadcast_ss(p); }

__m256 halves_to_float(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

__m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

// Weights of 16 rows at depth k and k + 1.
struct Pair {
  __m256 even_low, even_high, odd_low, odd_high;
};

struct F32Tile {
  static constexpr int kQuadBytes = 256;
  static Pair pair(const uint8_t* quad, int p) {
    const float* w = reinterpret_cast<const float*>(quad) + p * 32;
    return {_mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), _mm256_loadu_ps(w + 16), _mm256_loadu_ps(w + 24)};
  }
};

struct Bf16Tile {
  static constexpr int kQuadBytes = 128;
  static Pair pair(const uint8_t* quad, int p) {
    const __m256i low = load_bytes(quad + p * 64), high = load_bytes(quad + p * 64 + 32);
    const __m256i top = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(low, top)),
            _mm256_castsi256_ps(_mm256_and_si256(high, top))};
  }
};

struct Fp8Tile {
  static constexpr int kQuadBytes = 64;
  static Pair pair(const uint8_t* quad, int p) {
    const __m256i a = load_bytes(quad), b = load_bytes(quad + 32);
    const __m256i words = p == 0 ? _mm256_unpacklo_epi64(a, b) : _mm256_unpackhi_epi64(a, b);
    // Sign to bit 15, exponent and mantissa to bits 13..7: an f16, subnormals included.
    const __m256i keep = _mm256_set1_epi16(static_cast<short>(0xbf80));
    const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 1), keep);
    const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(words, 1), keep);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(even)), _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1)),
            _mm256_cvtph_ps(_mm256_castsi256_si128(odd)), _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1))};
  }
};

size_t fp8_header(int depth) {
  return (static_cast<size_t>((depth + kScaleBlock - 1) / kScaleBlock) * 4 + 63) / 64 * 64;
}

// sums[m][16] over `quads` steps of four. Few rows use several chains of sums, to hide the latency of the
// FMA.
template <typename Tile, int M>
void dot_quads(const uint8_t* w, const float* const* x, int quads, __m256 (&sums)[M][2]) {
  constexpr int kChains = M == 1 ? 4 : M <= 3 ? 2 : 1;
  __m256 acc[M][kChains][2];
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < kChains; ++c) acc[m][c][0] = acc[m][c][1] = _mm256_setzero_ps();
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes) {
    for (int p = 0; p < 2; ++p) {
      const Pair pair = Tile::pair(w, p);
      for (int m = 0; m < M; ++m) {
        const __m256 even = broadcast(x[m] + 4 * q + 2 * p), odd = broadcast(x[m] + 4 * q + 2 * p + 1);
        __m256(&a)[2] = acc[m][(2 * p) % kChains];
        __m256(&b)[2] = acc[m][(2 * p + 1) % kChains];
        a[0] = _mm256_fmadd_ps(pair.even_low, even, a[0]);
        a[1] = _mm256_fmadd_ps(pair.even_high, even, a[1]);
        b[0] = _mm256_fmadd_ps(pair.odd_low, odd, b[0]);
        b[1] = _mm256_fmadd_ps(pair.odd_high, odd, b[1]);
      }
    }
  }
  for (int m = 0; m < M; ++m)
    for (int h = 0; h < 2; ++h) {
      if (kChains == 4)
        sums[m][h] = _mm256_add_ps(_mm256_add_ps(acc[m][0][h], acc[m][1 % kChains][h]),
                                   _mm256_add_ps(acc[m][2 % kChains][h], acc[m][3 % kChains][h]));
      else if (kChains == 2)
        sums[m][h] = _mm256_add_ps(acc[m][0][h], acc[m][1 % kChains][h]);
      else
        sums[m][h] = acc[m][0][h];
    }
}

template <typename Tile, int M>
struct GemvPlain {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    __m256 sums[M][2];
    const float* x[M];
    for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const float*>(rows[m]);
    dot_quads<Tile, M>(tile, x, depth / 4, sums);
    for (int m = 0; m < M; ++m)
      for (int h = 0; h < 2; ++h) _mm256_storeu_ps(out + m * kTileRows + h * 8, sums[m][h]);
  }
};

template <int M>
struct GemvFp8 {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    const float* scales = reinterpret_cast<const float*>(tile);
    const uint8_t* w = tile + fp8_header(depth);
    for (int i = 0; i < M * kTileRows; i += 8) _mm256_storeu_ps(out + i, _mm256_setzero_ps());
    for (int k = 0; k < depth; k += kScaleBlock, w += 16 * kScaleBlock) {
      __m256 sums[M][2];
      const float* x[M];
      for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const float*>(rows[m]) + k;
      const int left = depth - k < kScaleBlock ? depth - k : kScaleBlock;
      dot_quads<Fp8Tile, M>(w, x, left / 4, sums);
      const __m256 scale = _mm256_set1_ps(scales[k / kScaleBlock] * kFp8Factor);
      for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) {
          float* to = out + m * kTileRows + h * 8;
          _mm256_storeu_ps(to, _mm256_fmadd_ps(sums[m][h], scale, _mm256_loadu_ps(to)));
        }
    }
  }
};

// Four bytes of each of 8 rows as f32, one byte position at a time.
struct Q4 {
  static constexpr int kBlockBytes = 320, kData = 64, kWords = 4, kValues = 8;
  static constexpr bool kHasMinimum = true;
  // Value `i` of word j: low nibbles are depth 4j + i, high nibbles 16 + 4j + i.
  template <int I>
  static __m256 value(__m256i word) {
    const __m256i shifted = _mm256_srli_epi32(word, I < 4 ? 8 * I : 8 * (I - 4) + 4);
    return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15)));
  }
  static constexpr int depth(int j, int i) { return i < 4 ? 4 * j + i : 16 + 4 * j + i - 4; }
};

struct Q8 {
  static constexpr int kBlockBytes = 544, kData = 32, kWords = 8, kValues = 4;
  static constexpr bool kHasMinimum = false;
  template <int I>
  static __m256 value(__m256i word) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(word, 24 - 8 * I), 24));
  }
  static constexpr int depth(int j, int i) { return 4 * j + i; }
};

template <typename Tile, int M, int I>
void dot_values(__m256i low, __m256i high, int j, const float* const* x, __m256 (&acc)[M][2]) {
  if constexpr (I < Tile::kValues) {
    const __m256 a = Tile::template value<I>(low), b = Tile::template value<I>(high);
    for (int m = 0; m < M; ++m) {
      const __m256 factor = broadcast(x[m] + Tile::depth(j, I));
      acc[m][0] = _mm256_fmadd_ps(a, factor, acc[m][0]);
      acc[m][1] = _mm256_fmadd_ps(b, factor, acc[m][1]);
    }
    dot_values<Tile, M, I + 1>(low, high, j, x, acc);
  }
}

// Adds d * dot (and m * sum of the activations) of one block to out.
template <typename Tile, int M>
void add_block(const uint8_t* block, const float* scales, const float* sums, const __m256 (&dots)[M][2],
               float* out) {
  for (int h = 0; h < 2; ++h) {
    const __m256 d = halves_to_float(block + h * 16);
    const __m256 minimum = Tile::kHasMinimum ? halves_to_float(block + 32 + h * 16) : _mm256_setzero_ps();
    for (int m = 0; m < M; ++m) {
      float* to = out + m * kTileRows + h * 8;
      const __m256 factor = scales ? _mm256_mul_ps(d, _mm256_set1_ps(scales[m])) : d;
      __m256 total = _mm256_fmadd_ps(dots[m][h], factor, _mm256_loadu_ps(to));
      if (Tile::kHasMinimum) total = _mm256_fmadd_ps(minimum, _mm256_set1_ps(sums[m]), total);
      _mm256_storeu_ps(to, total);
    }
  }
}

template <typename Tile, int M>
struct GemvQuantised {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    for (int i = 0; i < M * kTileRows; i += 8) _mm256_storeu_ps(out + i, _mm256_setzero_ps());
    for (int b = 0; b < depth / kQuantBlock; ++b, tile += Tile::kBlockBytes) {
      const float* x[M];
      float sums[M];
      __m256 dots[M][2];
      for (int m = 0; m < M; ++m) {
        const float* row = reinterpret_cast<const float*>(rows[m]);
        x[m] = row + b * kQuantBlock;
        sums[m] = Tile::kHasMinimum ? row[depth + b] : 0.0f;
        dots[m][0] = dots[m][1] = _mm256_setzero_ps();
      }
      for (int j = 0; j < Tile::kWords; ++j) {
        const uint8_t* words = tile + Tile::kData + j * 64;
        dot_values<Tile, M, 0>(load_bytes(words), load_bytes(words + 32), j, x, dots);
      }
      add_block<Tile, M>(tile, nullptr, sums, dots, out);
    }
  }
};

int load_i32(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return value;
}

// Integer sums of one block for 16 rows: dots[m][half] of 8 rows each.
template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, __m256i (&dots)[M][2]) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  for (int m = 0; m < M; ++m) dots[m][0] = dots[m][1] = _mm256_setzero_si256();
  for (int j = 0; j < Q4::kWords; ++j)
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i low = _mm256_and_si256(word, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(word, 4), mask);
      for (int m = 0; m < M; ++m) {
        // 16 products of at most 15 * 127 fit in 16 bits.
        const __m256i a = _mm256_maddubs_epi16(low, _mm256_set1_epi32(load_i32(x[m] + 4 * j)));
        const __m256i b = _mm256_maddubs_epi16(high, _mm256_set1_epi32(load_i32(x[m] + 16 + 4 * j)));
        dots[m][h] = _mm256_add_epi16(dots[m][h], _mm256_add_epi16(a, b));
      }
    }
  for (int m = 0; m < M; ++m)
    for (int h = 0; h < 2; ++h) dots[m][h] = _mm256_madd_epi16(dots[m][h], ones);
}

template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, __m256i (&dots)[M][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int m = 0; m < M; ++m) dots[m][0] = dots[m][1] = _mm256_setzero_si256();
  for (int j = 0; j < Q8::kWords; ++j)
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i magnitude = _mm256_abs_epi8(word);
      for (int m = 0; m < M; ++m) {
        const __m256i signed_x = _mm256_sign_epi8(_mm256_set1_epi32(load_i32(x[m] + 4 * j)), word);
        dots[m][h] =
            _mm256_add_epi32(dots[m][h], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), ones));
      }
    }
}

template <typename Tile, int M>
struct GemvInt8 {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    const int blocks = depth / kQuantBlock;
    for (int i = 0; i < M * kTileRows; i += 8) _mm256_storeu_ps(out + i, _mm256_setzero_ps());
    for (int b = 0; b < blocks; ++b, tile += Tile::kBlockBytes) {
      const int8_t* x[M];
      float scales[M], sums[M];
      for (int m = 0; m < M; ++m) {
        const float* side = reinterpret_cast<const float*>(rows[m] + depth);
        x[m] = reinterpret_cast<const int8_t*>(rows[m]) + b * kQuantBlock;
        scales[m] = side[b];
        sums[m] = side[blocks + b];
      }
      __m256i integers[M][2];
      int8_dots<M>(Tile{}, tile + Tile::kData, x, integers);
      __m256 dots[M][2];
      for (int m = 0; m < M; ++m)
        for (int h = 0; h < 2; ++h) dots[m][h] = _mm256_cvtepi32_ps(integers[m][h]);
      add_block<Tile, M>(tile, scales, sums, dots, out);
    }
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

// Any number of rows, four at a time.
template <template <int> class Gemv>
void gemv(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (; m >= 4; m -= 4, rows += 4, out += 4 * kTileRows) Gemv<4>::run(tile, depth, rows, out);
  if (m == 3) Gemv<3>::run(tile, depth, rows, out);
  if (m == 2) Gemv<2>::run(tile, depth, rows, out);
  if (m == 1) Gemv<1>::run(tile, depth, rows, out);
}

template <typename Tile>
void convert_quads(const uint8_t* w, int quads, float factor, float* panel) {
  const __m256 scale = _mm256_set1_ps(factor);
  for (int q = 0; q < quads; ++q, w += Tile::kQuadBytes)
    for (int p = 0; p < 2; ++p, panel += 2 * kTileRows) {
      const Pair pair = Tile::pair(w, p);
      _mm256_storeu_ps(panel, _mm256_mul_ps(pair.even_low, scale));
      _mm256_storeu_ps(panel + 8, _mm256_mul_ps(pair.even_high, scale));
      _mm256_storeu_ps(panel + 16, _mm256_mul_ps(pair.odd_low, scale));
      _mm256_storeu_ps(panel + 24, _mm256_mul_ps(pair.odd_high, scale));
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
void convert_values(__m256i low, __m256i high, int j, const __m256 (&d)[2], const __m256 (&minimum)[2],
                    float* panel) {
  if constexpr (I < Tile::kValues) {
    float* to = panel + Tile::depth(j, I) * kTileRows;
    _mm256_storeu_ps(to, _mm256_fmadd_ps(Tile::template value<I>(low), d[0], minimum[0]));
    _mm256_storeu_ps(to + 8, _mm256_fmadd_ps(Tile::template value<I>(high), d[1], minimum[1]));
    convert_values<Tile, I + 1>(low, high, j, d, minimum, panel);
  }
}

template <typename Tile>
float convert_quantised(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  float* to = reinterpret_cast<float*>(panel);
  for (int k = begin; k < end; k += kQuantBlock, to += kQuantBlock * kTileRows) {
    const uint8_t* block = tile + static_cast<size_t>(k / kQuantBlock) * Tile::kBlockBytes;
    __m256 d[2], minimum[2];
    for (int h = 0; h < 2; ++h) {
      d[h] = halves_to_float(block + h * 16);
      minimum[h] = Tile::kHasMinimum ? halves_to_float(block + 32 + h * 16) : _mm256_setzero_ps();
    }
    for (int j = 0; j < Tile::kWords; ++j) {
      const uint8_t* words = block + Tile::kData + j * 64;
      convert_values<Tile, 0>(load_bytes(words), load_bytes(words + 32), j, d, minimum, to);
    }
  }
  return 1.0f;
}

template <int M>
void gemm_rows(const float* a, const float* b, int steps, float* c, float scale) {
  __m256 acc[M][2];
  for (int m = 0; m < M; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
  for (int step = 0; step < steps; ++step, a += kRows, b += kTileRows) {
    const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
    for (int m = 0; m < M; ++m) {
      const __m256 factor = broadcast(a + m);
      acc[m][0] = _mm256_fmadd_ps(low, factor, acc[m][0]);
      acc[m][1] = _mm256_fmadd_ps(high, factor, acc[m][1]);
    }
  }
  const __m256 s = _mm256_set1_ps(scale);
  for (int m = 0; m < M; ++m)
    for (int h = 0; h < 2; ++h) {
      float* to = c + m * kTileRows + h * 8;
      _mm256_storeu_ps(to, _mm256_fmadd_ps(acc[m][h], s, _mm256_loadu_ps(to)));
    }
}

void gemm(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m, float* c0, float* c1,
          float scale0, float scale1) {
  using Rows = void (*)(const float*, const float*, int, float*, float);
  static constexpr Rows kByRows[kRows] = {gemm_rows<1>, gemm_rows<2>, gemm_rows<3>,
                                          gemm_rows<4>, gemm_rows<5>, gemm_rows<6>};
  const Rows function = kByRows[m - 1];
  const float* left = reinterpret_cast<const float*>(a);
  function(left, reinterpret_cast<const float*>(b0), steps, c0, scale0);
  if (b1) function(left, reinterpret_cast<const float*>(b1), steps, c1, scale1);
}

uint64_t read_bytes(const uint8_t* data, size_t bytes) {
  __m256i acc[8];
  for (int i = 0; i < 8; ++i) acc[i] = _mm256_setzero_si256();
  for (size_t at = 0; at + 256 <= bytes; at += 256)
    for (int i = 0; i < 8; ++i) acc[i] = _mm256_or_si256(acc[i], load_bytes(data + at + i * 32));
  for (int i = 1; i < 8; ++i) acc[0] = _mm256_or_si256(acc[0], acc[i]);
  uint64_t words[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), acc[0]);
  return words[0] | words[1] | words[2] | words[3];
}

double fma_f32(long iterations) {
  __m256 acc[12];
  __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1.0f);
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_setzero_ps();
  for (long n = 0; n < iterations; ++n)
    for (int i = 0; i < 12; ++i) {
      acc[i] = _mm256_fmadd_ps(factor, term, acc[i]);
      __asm__ volatile("" : "+x"(acc[i]));
    }
  for (int i = 1; i < 12; ++i) acc[0] = _mm256_add_ps(acc[0], acc[i]);
  __asm__ volatile("" : "+x"(acc[0]));
  return 12.0 * 16.0 * static_cast<double>(iterations);
}

FormatKernels exact(Activation activation, GemvFn function, ConvertFn convert) {
  return {activation, function, kGemvRows, convert, gemm, kRows, kChunk, 1};
}

FormatKernels fast(GemvFn function) { return {kActInt8, function, 1 << 30, nullptr, nullptr, 1, kChunk, 1}; }

}  // namespace

void install_avx2(Kernels& table) {
  table.name = "avx2";
  table.formats[kF32][kExact] = exact(kActF32, gemv<GemvF32>, convert_plain<F32Tile>);
  table.formats[kBf16][kExact] = exact(kActF32, gemv<GemvBf16>, convert_plain<Bf16Tile>);
  table.formats[kFp8Block128][kExact] = exact(kActF32, gemv<GemvFp8>, convert_fp8);
  table.formats[kQ4_1][kExact] = exact(kActF32Sums, gemv<GemvQ4>, convert_quantised<Q4>);
  table.formats[kQ8_0][kExact] = exact(kActF32, gemv<GemvQ8>, convert_quantised<Q8>);
  for (int format = kF32; format <= kFp8Block128; ++format)
    table.formats[format][kFast] = table.formats[format][kExact];
  table.formats[kQ4_1][kFast] = fast(gemv<GemvQ4Int8>);
  table.formats[kQ8_0][kFast] = fast(gemv<GemvQ8Int8>);
  table.prepare[kActF32] = prepare_f32;
  table.prepare[kActF32Sums] = prepare_f32_sums;
  table.prepare[kActBf16] = prepare_bf16;
  table.prepare[kActInt8] = prepare_int8;
  table.silu_product = silu_product_loop;
  table.interleave = interleave_loop;
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
}

}  // namespace kt
