// The vector of 16 rows in one 512-bit register, for the translation units that are compiled for AVX-512.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

constexpr int kPassRows = 8;
constexpr int kOneRowChains = 4;
constexpr int kTwoChainRows = 4;
constexpr int kPanelRows = 14;  // 14 x 2 tiles of sums fill 28 of 32 registers
constexpr int kPanelTiles = 2;

struct Rows {
  __m512 all;
};
struct Words {
  __m512i all;
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

// 32 registers hold whatever the compiler decodes early.
void in_order(Rows&) {}

float sum_of(Rows rows) { return _mm512_reduce_add_ps(rows.all); }

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

// See rows_avx2.inl. Intel's processors take an assist for subnormal operands; subnormal codes are about one
// in 10,000 in real weights, which costs less than the conversion of f16 does.
template <int I>
Rows fp8_column(Words words) {
  __m512i word = words.all;
  if (I < 3) word = _mm512_slli_epi32(word, 24 - 8 * I);
  word = _mm512_and_si512(_mm512_srai_epi32(word, 4), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  return {_mm512_castsi512_ps(word)};
}

Rows powers_of_two(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x400000)))};
}

__m512i same_four(const int8_t* p) {
  int value;
  memcpy(&value, p, sizeof value);
  return _mm512_set1_epi32(value);
}

}  // namespace
}  // namespace kt
