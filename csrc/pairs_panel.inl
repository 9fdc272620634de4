// Multiplication by converted panels of bf16 pairs with the dot product of AVX-512 BF16. Needs
// rows_avx512.inl before.

namespace kt {
namespace {

constexpr int kBf16Chunk = 512;

__m512 dot_pairs(__m512 sum, __m512i weights, __m512i x) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh&>(weights), reinterpret_cast<__m512bh&>(x));
}

template <int M, int Width>
void gemm_pairs_rows(const uint32_t* a, const uint32_t* const (&b)[Width], int steps,
                     float* const (&c)[Width], const float (&scale)[Width]) {
  __m512 acc[M][Width];
  KT_UNROLL
  for (int m = 0; m < M; ++m) {
    KT_UNROLL
    for (int t = 0; t < Width; ++t) acc[m][t] = _mm512_setzero_ps();
  }
  for (int step = 0; step < steps; ++step, a += kPanelRows) {
    __m512i weights[Width];
    KT_UNROLL
    for (int t = 0; t < Width; ++t)
      weights[t] = _mm512_loadu_si512(b[t] + static_cast<size_t>(step) * kTileRows);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[m]));
      KT_UNROLL
      for (int t = 0; t < Width; ++t) acc[m][t] = dot_pairs(acc[m][t], weights[t], x);
    }
  }
  KT_UNROLL
  for (int t = 0; t < Width; ++t) {
    const __m512 s = _mm512_set1_ps(scale[t]);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      float* to = c[t] + m * kTileRows;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(acc[m][t], s, _mm512_loadu_ps(to)));
    }
  }
}

template <int Width, int M = kPanelRows>
void gemm_pairs_any(const uint32_t* a, const uint32_t* const (&b)[Width], int steps, int m,
                    float* const (&c)[Width], const float (&scale)[Width]) {
  if (m == M) {
    gemm_pairs_rows<M, Width>(a, b, steps, c, scale);
  } else if constexpr (M > 1) {
    gemm_pairs_any<Width, M - 1>(a, b, steps, m, c, scale);
  }
}

void gemm_pairs(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m, float* c0,
                float* c1, float scale0, float scale1) {
  if (b1)
    gemm_pairs_any<2>(a, {b0, b1}, steps, m, {c0, c1}, {scale0, scale1});
  else
    gemm_pairs_any<1>(a, {b0}, steps, m, {c0}, {scale0});
}

}  // namespace
}  // namespace kt
