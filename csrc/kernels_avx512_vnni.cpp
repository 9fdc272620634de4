// AVX-512 with VNNI and BF16: integer dot products, and bf16 dot products for many rows in exact mode.
#if !defined(__AVX512VNNI__) || !defined(__AVX512BF16__)
#error "this file is compiled with -mavx512vnni -mavx512bf16"
#endif
#define KT_VNNI

#include "rows_avx512.inl"

#include "int_rows_avx512.inl"

#include "kernels_int.inl"

#include "int_pairs.inl"

#include "pairs_panel.inl"

namespace kt {
namespace {

double int8_peak(long iterations) {
  __m512i acc[16];
  const __m512i left = _mm512_set1_epi8(1), right = left;
  KT_UNROLL
  for (int i = 0; i < 16; ++i) acc[i] = _mm512_setzero_si512();
  for (long n = 0; n < iterations; ++n) {
    KT_UNROLL
    for (int i = 0; i < 16; ++i) {
      acc[i] = _mm512_dpbusd_epi32(acc[i], left, right);
      __asm__ volatile("" : "+v"(acc[i]));
    }
  }
  return 16.0 * 128.0 * static_cast<double>(iterations);
}

}  // namespace

void install_avx512_vnni(Kernels& table) {
  install_int_formats(table);
  for_int_formats([&]<typename Tile>(Format format) {
    table.formats[format][kExact].panel =
        converted_panel<kActBf16, kPanelRows, kBf16Chunk, 2, convert_int_pairs<Tile>, gemm_pairs>();
  });
  table.int8_peak = int8_peak;
}

}  // namespace kt
