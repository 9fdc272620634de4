// AVX-512 F, BW, VL and DQ: formats of integers.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512DQ__)
#error "this file is compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include "rows_avx512.inl"

#include "int_rows_avx512.inl"

#include "kernels_int.inl"

namespace kt {
namespace {

// Peak of the instructions that multiply signed bytes: two multiplications and a sum for 64 products.
double int8_peak(long iterations) {
  __m512i acc[16];
  __m512i left = _mm512_set1_epi8(1), right = left;
  const __m512i ones = _mm512_set1_epi16(1);
  KT_UNROLL
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_si512();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 16; ++i) {
      __asm__ volatile("" : "+v"(left), "+v"(right));
      acc[i] = _mm512_add_epi32(acc[i], _mm512_madd_epi16(_mm512_maddubs_epi16(left, right), ones));
      __asm__ volatile("" : "+v"(acc[i]));
    }
  }
  return 16.0 * 128.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx512_int(Kernels& table) {
  install_int_formats(table);
  table.int8_peak = int8_peak;
}

}  // namespace kt
