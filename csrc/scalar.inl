// What the reference kernels share: a format is a function that gives the value of one weight.
#include <math.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

[[maybe_unused]] float f16_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 1023u;
  if (exponent == 31u) return float_from_bits(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0u) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  return float_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

using WeightFn = float (*)(const uint8_t*, int, int, int);

template <WeightFn weight>
float convert(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel) {
  for (int k = begin; k < end; ++k)
    for (int row = 0; row < kTileRows; ++row)
      panel[static_cast<size_t>(k - begin) * kTileRows + row] = bits_from_float(weight(tile, depth, row, k));
  return 1.0f;
}

constexpr int kChunk = 256;
constexpr int kRows = 4;

void gemm(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m, float* c0, float* c1,
          float scale0, float scale1) {
  for (int half = 0; half < 2; ++half) {
    const uint32_t* b = half ? b1 : b0;
    float* c = half ? c1 : c0;
    if (!b) continue;
    for (int i = 0; i < m; ++i) {
      float sum[kTileRows] = {};
      for (int step = 0; step < steps; ++step) {
        const float x = float_from_bits(a[static_cast<size_t>(step) * kRows + i]);
        for (int row = 0; row < kTileRows; ++row)
          sum[row] += x * float_from_bits(b[static_cast<size_t>(step) * kTileRows + row]);
      }
      for (int row = 0; row < kTileRows; ++row) c[i * kTileRows + row] += (half ? scale1 : scale0) * sum[row];
    }
  }
}

// Exact mode: activations stay f32.
template <WeightFn weight>
void gemv(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (int i = 0; i < m; ++i)
    for (int row = 0; row < kTileRows; ++row) out[i * kTileRows + row] = 0.0f;
  for (int k = 0; k < depth; ++k)
    for (int row = 0; row < kTileRows; ++row) {
      const float value = weight(tile, depth, row, k);
      for (int i = 0; i < m; ++i)
        out[i * kTileRows + row] += value * reinterpret_cast<const float*>(rows[i])[k];
    }
}

template <WeightFn weight>
FormatKernels exact(Activation activation) {
  return {activation, gemv<weight>, 4, converted_panel<kActF32, kRows, kChunk, 1, convert<weight>, gemm>()};
}

}  // namespace
}  // namespace kt
