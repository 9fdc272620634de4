// Multiplication by converted panels of f32, for the vector instruction sets. Needs the rows_*.inl of one of
// them.

namespace kt {
namespace {

constexpr int kChunk = 256;

// `Width` tiles side by side, M activation rows.
template <int M, int Width>
void gemm_rows(const float* a, const float* const (&b)[Width], int steps, float* const (&c)[Width],
               const float (&scale)[Width]) {
  Rows acc[M][Width];
  KT_UNROLL
  for (int m = 0; m < M; ++m) KT_UNROLL
  for (int t = 0; t < Width; ++t) acc[m][t] = zero_rows();
  for (int step = 0; step < steps; ++step, a += kPanelRows) {
    Rows weights[Width];
    KT_UNROLL
    for (int t = 0; t < Width; ++t) weights[t] = load_rows(b[t] + static_cast<size_t>(step) * kTileRows);
    KT_UNROLL
    for (int m = 0; m < M; ++m) KT_UNROLL
    for (int t = 0; t < Width; ++t) acc[m][t] = multiply_add_scalar(weights[t], a + m, acc[m][t]);
  }
  KT_UNROLL
  for (int t = 0; t < Width; ++t) {
    const Rows s = same(scale[t]);
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      float* to = c[t] + m * kTileRows;
      store_rows(to, multiply_add(acc[m][t], s, load_rows(to)));
    }
  }
}

template <int Width, int M = kPanelRows>
void gemm_any(const float* a, const float* const (&b)[Width], int steps, int m, float* const (&c)[Width],
              const float (&scale)[Width]) {
  if (m == M) {
    gemm_rows<M, Width>(a, b, steps, c, scale);
  } else if constexpr (M > 1) {
    gemm_any<Width, M - 1>(a, b, steps, m, c, scale);
  }
}

void gemm(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m, float* c0, float* c1,
          float scale0, float scale1) {
  const float* left = reinterpret_cast<const float*>(a);
  const float* const b[2] = {reinterpret_cast<const float*>(b0), reinterpret_cast<const float*>(b1)};
  if (b1 && kPanelTiles == 2) {
    gemm_any<2>(left, b, steps, m, {c0, c1}, {scale0, scale1});
    return;
  }
  gemm_any<1>(left, {b[0]}, steps, m, {c0}, {scale0});
  if (b1) gemm_any<1>(left, {b[1]}, steps, m, {c1}, {scale1});
}

template <Activation activation, ConvertFn convert>
constexpr PanelKernels panel_f32() {
  return converted_panel<activation, kPanelRows, kChunk, 1, convert, gemm>();
}

}  // namespace
}  // namespace kt
