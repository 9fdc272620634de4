// AVX-512 with VNNI: integer dot products for the fast mode.
#if !defined(__AVX512VNNI__)
#error "this file is compiled with -mavx512vnni"
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
  const __m512i mask = _mm512_set1_epi8(15);
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
      sums[m] = _mm512_dpbusd_epi32(sums[m], low, same_four(x[m] + 4 * j));
      sums[m] = _mm512_dpbusd_epi32(sums[m], high, same_four(x[m] + 16 + 4 * j));
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm512_cvtepi32_ps(sums[m])};
}

// The instruction multiplies unsigned by signed bytes: x + 128 is used, and 128 * sum(w) taken off again.
template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i sums[M], correction = _mm512_setzero_si512();
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = _mm512_setzero_si512();
  KT_UNROLL
  for (int j = 0; j < Q8::kWords; ++j) {
    const __m512i word = load_words(data + j * 64).all;
    correction = _mm512_dpbusd_epi32(correction, flip, word);
    KT_UNROLL
    for (int m = 0; m < M; ++m)
      sums[m] = _mm512_dpbusd_epi32(sums[m], _mm512_xor_si512(same_four(x[m] + 4 * j), flip), word);
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm512_cvtepi32_ps(_mm512_sub_epi32(sums[m], correction))};
}

}  // namespace

void install_avx512_vnni(Kernels& table) { install_fast_formats(table); }

}  // namespace kt
