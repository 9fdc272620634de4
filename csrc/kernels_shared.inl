// Code that every kernel translation unit compiles for itself, with its own instruction set. Internal linkage
// throughout: nothing here may be shared between translation units.
#include <string.h>

#include "kernels.h"

namespace kt {
namespace {

float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t bits_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Round to nearest even; a NaN stays a (quiet) NaN.
uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

// exp for the gate: range reduction by powers of two and a polynomial of degree 6, relative error below 2e-7.
// Plain arithmetic, so that the compiler vectorises the loops around it.
float exp_f32(float x) {
  x = x > 88.0f ? 88.0f : x;
  x = x < -87.0f ? -87.0f : x;
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * float_from_bits(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23);
}

void silu_product_loop(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const float g = gate[i];
    const float silu = g / (1.0f + exp_f32(-g));
    // exp_f32 clamps, so a NaN gate must be kept by hand.
    out[i] = (g == g ? silu : g) * up[i];
  }
}

void prepare_f32(const float* x, int columns, int depth, void* row) {
  float* out = static_cast<float*>(row);
  memcpy(out, x, sizeof(float) * columns);
  for (int k = columns; k < depth; ++k) out[k] = 0.0f;
}

void prepare_f32_sums(const float* x, int columns, int depth, void* row) {
  prepare_f32(x, columns, depth, row);
  float* sums = static_cast<float*>(row) + depth;
  for (int b = 0; b < depth / kQuantBlock; ++b) {
    float partial[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < kQuantBlock; i += 8)
      for (int j = 0; j < 8; ++j) partial[j] += x[b * kQuantBlock + i + j];
    sums[b] = ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
              ((partial[1] + partial[5]) + (partial[3] + partial[7]));
  }
}

void prepare_bf16(const float* x, int columns, int depth, void* row) {
  uint16_t* out = static_cast<uint16_t*>(row);
  for (int k = 0; k < columns; ++k) out[k] = bf16_from_float(x[k]);
  for (int k = columns; k < depth; ++k) out[k] = 0;
}

void prepare_int8(const float* x, int columns, int depth, void* row) {
  (void)columns;  // formats with int8 activations have a depth of whole blocks
  int8_t* out = static_cast<int8_t*>(row);
  float* scales = reinterpret_cast<float*>(out + depth);
  float* sums = scales + depth / kQuantBlock;
  for (int b = 0; b < depth / kQuantBlock; ++b) {
    const float* block = x + b * kQuantBlock;
    float lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int i = 0; i < kQuantBlock; i += 8)
      for (int j = 0; j < 8; ++j) {
        const float magnitude = float_from_bits(bits_from_float(block[i + j]) & 0x7fffffffu);
        lanes[j] = magnitude > lanes[j] ? magnitude : lanes[j];
      }
    float largest = 0.0f;
    for (int j = 0; j < 8; ++j) largest = lanes[j] > largest ? lanes[j] : largest;
    const float scale = largest / 127.0f;
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    int sum = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      // Adding 1.5 * 2^23 rounds to nearest even in the low bits of the mantissa.
      const int q = static_cast<int>(bits_from_float(block[i] * inverse + 12582912.0f) - 0x4b400000u);
      out[b * kQuantBlock + i] = static_cast<int8_t>(q);
      sum += q;
    }
    scales[b] = scale;
    sums[b] = scale * static_cast<float>(sum);
  }
}

void interleave_loop(const uint32_t* const* rows, int m, int width, int steps, uint32_t* out) {
  for (int step = 0; step < steps; ++step)
    for (int i = 0; i < width; ++i) out[static_cast<size_t>(step) * width + i] = i < m ? rows[i][step] : 0u;
}

}  // namespace
}  // namespace kt
