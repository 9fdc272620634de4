// AVX-512 F, BW, VL and DQ: formats of integers.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512DQ__)
#error "this file is compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include "rows_avx512.inl"

namespace kt {
namespace {

struct Q4;
struct Q8;
template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);
template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);

}  // namespace
}  // namespace kt

#include "kernels_int.inl"

namespace kt {
namespace {

template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m512i mask = _mm512_set1_epi8(15), ones = _mm512_set1_epi16(1);
  __m512i sums[M];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = _mm512_setzero_si512();
  KT_UNROLL
  for (int j = 0; j < Q4::kWords; ++j) {
    const __m512i word = load_words(data + j * 64).all;
    const __m512i low = _mm512_and_si512(word, mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(word, 4), mask);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      // A 16-bit lane adds up 16 products of at most 15 * 127.
      const __m512i a = _mm512_maddubs_epi16(low, same_four(x[m] + 4 * j));
      const __m512i b = _mm512_maddubs_epi16(high, same_four(x[m] + 16 + 4 * j));
      sums[m] = _mm512_add_epi16(sums[m], _mm512_add_epi16(a, b));
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm512_cvtepi32_ps(_mm512_madd_epi16(sums[m], ones))};
}

template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m512i ones = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
  __m512i sums[M];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = zero;
  KT_UNROLL
  for (int j = 0; j < Q8::kWords; ++j) {
    const __m512i word = load_words(data + j * 64).all;
    const __m512i magnitude = _mm512_abs_epi8(word);
    const __mmask64 negative = _mm512_movepi8_mask(word);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i four = same_four(x[m] + 4 * j);
      const __m512i signed_x = _mm512_mask_sub_epi8(four, negative, zero, four);
      sums[m] = _mm512_add_epi32(sums[m], _mm512_madd_epi16(_mm512_maddubs_epi16(magnitude, signed_x), ones));
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm512_cvtepi32_ps(sums[m])};
}

}  // namespace

void install_avx512_int(Kernels& table) { install_int_formats(table); }

}  // namespace kt
