// AVX2 with FMA and F16C. Activations are f32 (exact mode) or int8 (fast mode).
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace kt {
namespace {

constexpr int kPassRows = 4;
constexpr int kPanelRows = 6;  // 6 x 16 sums fill 12 of 16 registers
constexpr int kPanelTiles = 1;

struct Rows {
  __m256 low, high;
};
struct Words {
  __m256i low, high;
};
struct Pair {
  Rows even, odd;
};

Rows zero_rows() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
Rows same(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
Rows load_rows(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
void store_rows(float* p, Rows rows) {
  _mm256_storeu_ps(p, rows.low);
  _mm256_storeu_ps(p + 8, rows.high);
}
Rows add(Rows a, Rows b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
Rows multiply(Rows a, Rows b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
Rows multiply_add(Rows a, Rows b, Rows c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
Rows multiply_add_scalar(Rows a, const float* x, Rows c) {
  const __m256 factor = _mm256_broadcast_ss(x);
  return {_mm256_fmadd_ps(a.low, factor, c.low), _mm256_fmadd_ps(a.high, factor, c.high)};
}

__m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
Words load_words(const uint8_t* p) { return {load_bytes(p), load_bytes(p + 32)}; }

Rows low_half_f32(Words words) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(words.low, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(words.high, 16))};
}
Rows high_half_f32(Words words) {
  const __m256i top = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(words.low, top)),
          _mm256_castsi256_ps(_mm256_and_si256(words.high, top))};
}
Rows halves_to_rows(const uint8_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}

template <int I>
Rows nibble(Words words) {
  const __m256i mask = _mm256_set1_epi32(15);
  return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(words.low, 4 * I), mask)),
          _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(words.high, 4 * I), mask))};
}
template <int I>
Rows byte(Words words) {
  return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words.low, 24 - 8 * I), 24)),
          _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words.high, 24 - 8 * I), 24))};
}

Pair fp8_pair(const uint8_t* quad, int p) {
  const __m256i a = load_bytes(quad), b = load_bytes(quad + 32);
  const __m256i words = p == 0 ? _mm256_unpacklo_epi64(a, b) : _mm256_unpackhi_epi64(a, b);
  // Sign to bit 15, exponent and mantissa to bits 13..7: an f16 of value / 256, subnormals included.
  const __m256i keep = _mm256_set1_epi16(static_cast<short>(0xbf80));
  const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 1), keep);
  const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(words, 1), keep);
  return {{_mm256_cvtph_ps(_mm256_castsi256_si128(even)), _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1))},
          {_mm256_cvtph_ps(_mm256_castsi256_si128(odd)), _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1))}};
}

__m256i same_four(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return _mm256_set1_epi32(value);
}

struct Q4;
struct Q8;
template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);
template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);

}  // namespace
}  // namespace kt

#include "kernels_vector.inl"

namespace kt {
namespace {

template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i sums[M][2];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  KT_UNROLL
  for (int j = 0; j < Q4::kWords; ++j) {
    KT_UNROLL
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i low = _mm256_and_si256(word, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(word, 4), mask);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        // A 16-bit lane adds up 16 products of at most 15 * 127.
        const __m256i a = _mm256_maddubs_epi16(low, same_four(x[m] + 4 * j));
        const __m256i b = _mm256_maddubs_epi16(high, same_four(x[m] + 16 + 4 * j));
        sums[m][h] = _mm256_add_epi16(sums[m][h], _mm256_add_epi16(a, b));
      }
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m)
    dots[m] = {_mm256_cvtepi32_ps(_mm256_madd_epi16(sums[m][0], ones)),
               _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[m][1], ones))};
}

template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[M][2];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  KT_UNROLL
  for (int j = 0; j < Q8::kWords; ++j) {
    KT_UNROLL
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i magnitude = _mm256_abs_epi8(word);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i products =
            _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(same_four(x[m] + 4 * j), word));
        sums[m][h] = _mm256_add_epi32(sums[m][h], _mm256_madd_epi16(products, ones));
      }
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm256_cvtepi32_ps(sums[m][0]), _mm256_cvtepi32_ps(sums[m][1])};
}

uint64_t read_bytes(const uint8_t* data, size_t bytes) {
  __m256i acc[8];
  KT_UNROLL
  for (int i = 0; i < 8; ++i) acc[i] = _mm256_setzero_si256();
  for (size_t at = 0; at + 256 <= bytes; at += 256) {
    KT_UNROLL
    for (int i = 0; i < 8; ++i) acc[i] = _mm256_or_si256(acc[i], load_bytes(data + at + i * 32));
  }
  KT_UNROLL
  for (int i = 1; i < 8; ++i) acc[0] = _mm256_or_si256(acc[0], acc[i]);
  uint64_t words[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), acc[0]);
  return words[0] | words[1] | words[2] | words[3];
}

double fma_f32(long iterations) {
  __m256 acc[12];
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1.0f);
  KT_UNROLL
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_setzero_ps();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 12; ++i) {
      acc[i] = _mm256_fmadd_ps(factor, term, acc[i]);
      __asm__ volatile("" : "+x"(acc[i]));
    }
  }
  KT_UNROLL
  for (int i = 1; i < 12; ++i) acc[0] = _mm256_add_ps(acc[0], acc[i]);
  __asm__ volatile("" : "+x"(acc[0]));
  return 12.0 * 16.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx2(Kernels& table) {
  table.name = "avx2";
  install_vector(table);
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
}

}  // namespace kt
