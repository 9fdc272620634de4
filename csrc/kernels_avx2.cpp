// AVX2 with FMA and F16C: formats of floating-point numbers.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include "rows_avx2.inl"

#include "kernels_float.inl"

namespace kt {
namespace {

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
  install_float_formats(table);
  install_shared(table);
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
}

}  // namespace kt
