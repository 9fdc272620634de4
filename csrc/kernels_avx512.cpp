// AVX-512 F, BW, VL and DQ: formats of floating-point numbers.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512DQ__)
#error "this file is compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include "rows_avx512.inl"

#include "kernels_float.inl"

namespace kt {
namespace {

uint64_t read_bytes(const uint8_t* data, size_t bytes) {
  __m512i acc[8];
  KT_UNROLL
  for (int i = 0; i < 8; ++i) acc[i] = _mm512_setzero_si512();
  for (size_t at = 0; at + 512 <= bytes; at += 512) {
    KT_UNROLL
    for (int i = 0; i < 8; ++i) acc[i] = _mm512_or_si512(acc[i], _mm512_loadu_si512(data + at + i * 64));
  }
  KT_UNROLL
  for (int i = 1; i < 8; ++i) acc[0] = _mm512_or_si512(acc[0], acc[i]);
  uint64_t words[8];
  _mm512_storeu_si512(words, acc[0]);
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result |= words[i];
  return result;
}

double fma_f32(long iterations) {
  __m512 acc[16];
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(1.0f);
  KT_UNROLL
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_ps();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 16; ++i) {
      acc[i] = _mm512_fmadd_ps(factor, term, acc[i]);
      __asm__ volatile("" : "+v"(acc[i]));
    }
  }
  KT_UNROLL
  for (int i = 1; i < 16; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  __asm__ volatile("" : "+v"(acc[0]));
  return 16.0 * 32.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx512(Kernels& table) {
  table.name = "avx512";
  install_float_formats(table);
  install_shared(table);
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
}

}  // namespace kt
