// AVX2 with FMA and F16C: formats of integers.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include "rows_avx2.inl"

#include "int_rows_avx2.inl"

#include "kernels_int.inl"

namespace kt {
namespace {

// Peak of the instructions that multiply signed bytes: two multiplications and a sum for 32 products.
double int8_peak(long iterations) {
  __m256i acc[8];
  __m256i left = _mm256_set1_epi8(1), right = left;
  const __m256i ones = _mm256_set1_epi16(1);
  KT_UNROLL
  for (int i = 0; i < 8; ++i) acc[i] = _mm256_setzero_si256();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 8; ++i) {
      __asm__ volatile("" : "+x"(left), "+x"(right));
      acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(_mm256_maddubs_epi16(left, right), ones));
      __asm__ volatile("" : "+x"(acc[i]));
    }
  }
  return 8.0 * 64.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx2_int(Kernels& table) {
  install_int_formats(table);
  table.int8_peak = int8_peak;
}

}  // namespace kt
