// The vector of 16 rows in two 256-bit registers, and what kernels are written with:
//   Rows               16 f32, one per row of a tile; zero_rows, load_rows, store_rows, same (broadcast)
//   multiply_add       a * b + c; multiply_add_scalar: a * *x + c
//   add, multiply
//   Words              16 dwords; load_words; low_half_f32, high_half_f32: bf16 in either half of each dword
//   halves_to_rows     16 f16
//   nibble<I>, byte<I> unsigned 4-bit (I in 0..7) and signed 8-bit (I in 0..3) value of each dword
//   fp8_column<I>      column I of a word of FP8 codes, times 2^-120; powers_of_two: of 16 e8m0 bytes
//   kPassRows          activation rows per pass of gemv; with at most kTwoChainRows two chains of sums fit
//   into registers kPanelRows, kPanelTiles  activation rows and tiles of one step of a panel multiplication
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

constexpr int kPassRows = 4;
constexpr int kOneRowChains = 2;
constexpr int kTwoChainRows = 2;
constexpr int kPanelRows = 6;  // 6 x 16 sums fill 12 of 16 registers
constexpr int kPanelTiles = 1;

struct Rows {
  __m256 low, high;
};
struct Words {
  __m256i low, high;
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

// What is computed from `rows` later stays later: the compiler would decode all columns of a quad first, and
// run out of registers.
[[gnu::always_inline]] inline void in_order(Rows& rows) { __asm__("" : "+x"(rows.low), "+x"(rows.high)); }

float sum_of(Rows rows) {
  const __m256 half = _mm256_add_ps(rows.low, rows.high);
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
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

// Column I of a word of E4M3 codes, times 2^-120: with the sign in bit 31 and exponent and mantissa in
// bits 26..20 a code is such an f32, subnormal codes being subnormal f32 (bias 127 for 7). Needs fewer and
// better spread operations than the conversion of f16.
template <int I>
Rows fp8_column(Words words) {
  const auto half = [](__m256i word) __attribute__((always_inline)) {
    // The odd codes end at the top of each 16 bits, the even ones are moved there.
    if (I % 2 == 0) word = _mm256_slli_epi16(word, 8);
    word = _mm256_srai_epi16(word, 4);
    if (I / 2 == 1) return _mm256_and_si256(word, _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
    return _mm256_slli_epi32(_mm256_and_si256(word, _mm256_set1_epi16(static_cast<short>(0x87f0))), 16);
  };
  return {_mm256_castsi256_ps(half(words.low)), _mm256_castsi256_ps(half(words.high))};
}

// 2^(e - 127) of 16 bytes e; e = 0 is the subnormal 2^-127.
Rows powers_of_two(const uint8_t* p) {
  const auto half = [](const uint8_t* bytes) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    const __m256i bits = _mm256_max_epu32(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x400000));
    return _mm256_castsi256_ps(bits);
  };
  return {half(p), half(p + 8)};
}

__m256i same_four(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return _mm256_set1_epi32(value);
}

}  // namespace
}  // namespace kt
