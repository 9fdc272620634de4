// The vector of 16 rows in one 512-bit register, for the translation units that are compiled for AVX-512.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

constexpr int kPassRows = 8;
constexpr int kPanelRows = 14;  // 14 x 2 tiles of sums fill 28 of 32 registers
constexpr int kPanelTiles = 2;

struct Rows {
  __m512 all;
};
struct Words {
  __m512i all;
};
struct Pair {
  Rows even, odd;
};

Rows zero_rows() { return {_mm512_setzero_ps()}; }
Rows same(float value) { return {_mm512_set1_ps(value)}; }
Rows load_rows(const float* p) { return {_mm512_loadu_ps(p)}; }
void store_rows(float* p, Rows rows) { _mm512_storeu_ps(p, rows.all); }
Rows add(Rows a, Rows b) { return {_mm512_add_ps(a.all, b.all)}; }
Rows multiply(Rows a, Rows b) { return {_mm512_mul_ps(a.all, b.all)}; }
Rows multiply_add(Rows a, Rows b, Rows c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
Rows multiply_add_scalar(Rows a, const float* x, Rows c) {
  return {_mm512_fmadd_ps(a.all, _mm512_set1_ps(*x), c.all)};
}

Words load_words(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
Rows low_half_f32(Words words) { return {_mm512_castsi512_ps(_mm512_slli_epi32(words.all, 16))}; }
Rows high_half_f32(Words words) {
  return {_mm512_castsi512_ps(_mm512_and_si512(words.all, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
}

__m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
Rows halves_to_rows(const uint8_t* p) { return {_mm512_cvtph_ps(load_bytes(p))}; }

template <int I>
Rows nibble(Words words) {
  // The permutation looks at the low four bits of each dword only.
  const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return {_mm512_permutexvar_ps(_mm512_srli_epi32(words.all, 4 * I), values)};
}
template <int I>
Rows byte(Words words) {
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words.all, 24 - 8 * I), 24))};
}

Pair fp8_pair(const uint8_t* quad, int p) {
  const __m256i a = load_bytes(quad), b = load_bytes(quad + 32);
  const __m256i words = p == 0 ? _mm256_unpacklo_epi64(a, b) : _mm256_unpackhi_epi64(a, b);
  // Sign to bit 15, exponent and mantissa to bits 13..7: an f16 of value / 256, subnormals included.
  const __m256i keep = _mm256_set1_epi16(static_cast<short>(0xbf80));
  const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 1), keep);
  const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(words, 1), keep);
  return {{_mm512_cvtph_ps(even)}, {_mm512_cvtph_ps(odd)}};
}

__m512i same_four(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return _mm512_set1_epi32(value);
}

}  // namespace
}  // namespace kt
