// The reference: plain loops in the order of the formulas, built for every architecture.
#include <math.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

float f16_to_float(uint16_t half) {
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

// OCP E4M3: bias 7, subnormals, no infinity. 0x7f and 0xff (NaN) are refused when weights are packed.
float fp8_to_float(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const float value = exponent == 0 ? ldexpf(static_cast<float>(mantissa), -9)
                                    : ldexpf(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -value : value;
}

float weight_f32(const uint8_t* tile, int, int row, int k) {
  float value;
  memcpy(&value, tile + (static_cast<size_t>(k) * kTileRows + row) * 4, 4);
  return value;
}

float weight_bf16(const uint8_t* tile, int, int row, int k) {
  const uint8_t* p = tile + static_cast<size_t>(k / 2) * 64 + row * 4 + (k % 2) * 2;
  return float_from_bits(static_cast<uint32_t>(load_u16(p)) << 16);
}

float weight_fp8(const uint8_t* tile, int depth, int row, int k) {
  static const int lane_of[4] = {0, 2, 1, 3};
  const int blocks = (depth + kScaleBlock - 1) / kScaleBlock;
  const size_t header = (static_cast<size_t>(blocks) * 4 + 63) / 64 * 64;
  const uint8_t code = tile[header + static_cast<size_t>(k / 4) * 64 + lane_of[row / 4] * 16 +
                            ((k % 4) / 2) * 8 + (row % 4) * 2 + k % 2];
  float scale;
  memcpy(&scale, tile + (k / kScaleBlock) * 4, 4);
  return fp8_to_float(code) * scale;
}

float weight_q4_1(const uint8_t* tile, int, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 320;
  const int i = k % 16;
  const uint8_t byte = block[64 + (i / 4) * 64 + row * 4 + i % 4];
  const int q = k % 32 < 16 ? byte & 15 : byte >> 4;
  return f16_to_float(load_u16(block + row * 2)) * static_cast<float>(q) +
         f16_to_float(load_u16(block + 32 + row * 2));
}

float weight_q8_0(const uint8_t* tile, int, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 544;
  const int i = k % 32;
  const int8_t q = static_cast<int8_t>(block[32 + (i / 4) * 64 + row * 4 + i % 4]);
  return f16_to_float(load_u16(block + row * 2)) * static_cast<float>(q);
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

// Fast mode: int8 activations, integer sums inside each block of 32.
template <bool kHasMinimum>
void gemv_int8(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  const int blocks = depth / kQuantBlock;
  for (int i = 0; i < m; ++i) {
    const int8_t* q = reinterpret_cast<const int8_t*>(rows[i]);
    const float* scales = reinterpret_cast<const float*>(q + depth);
    const float* sums = scales + blocks;
    for (int row = 0; row < kTileRows; ++row) {
      float total = 0.0f;
      for (int b = 0; b < blocks; ++b) {
        const uint8_t* block = tile + static_cast<size_t>(b) * (kHasMinimum ? 320 : 544);
        int dot = 0;
        for (int k = 0; k < kQuantBlock; ++k) {
          if (kHasMinimum) {
            const int byte = block[64 + (k % 16 / 4) * 64 + row * 4 + k % 4];
            dot += (k < 16 ? byte & 15 : byte >> 4) * q[b * kQuantBlock + k];
          } else {
            dot += static_cast<int8_t>(block[32 + (k / 4) * 64 + row * 4 + k % 4]) * q[b * kQuantBlock + k];
          }
        }
        total += f16_to_float(load_u16(block + row * 2)) * scales[b] * static_cast<float>(dot);
        if (kHasMinimum) total += f16_to_float(load_u16(block + 32 + row * 2)) * sums[b];
      }
      out[i * kTileRows + row] = total;
    }
  }
}

uint64_t read_bytes(const uint8_t* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t words[8];
    memcpy(words, data + i, 64);
    for (int j = 0; j < 8; ++j) sums[j] |= words[j];
  }
  return sums[0] | sums[1] | sums[2] | sums[3] | sums[4] | sums[5] | sums[6] | sums[7];
}

double fma_f32(long iterations) {
  volatile float sink = 0.0f;
  float a[16];
  for (int i = 0; i < 16; ++i) a[i] = static_cast<float>(i);
  for (long n = 0; n < iterations; ++n)
    for (int i = 0; i < 16; ++i) a[i] = a[i] * 0.999f + 1.0f;
  for (int i = 0; i < 16; ++i) sink = sink + a[i];
  return 32.0 * static_cast<double>(iterations);
}

template <WeightFn weight>
FormatKernels exact(Activation activation) {
  return {activation, gemv<weight>, 4, convert<weight>, gemm, kRows, kChunk, 1};
}

FormatKernels fast(GemvFn function) { return {kActInt8, function, 1 << 30, nullptr, nullptr, 1, kChunk, 1}; }

}  // namespace

void install_scalar(Kernels& table) {
  table.name = "scalar";
  table.formats[kF32][kExact] = table.formats[kF32][kFast] = exact<weight_f32>(kActF32);
  table.formats[kBf16][kExact] = table.formats[kBf16][kFast] = exact<weight_bf16>(kActF32);
  table.formats[kFp8Block128][kExact] = table.formats[kFp8Block128][kFast] = exact<weight_fp8>(kActF32);
  table.formats[kQ4_1][kExact] = exact<weight_q4_1>(kActF32Sums);
  table.formats[kQ8_0][kExact] = exact<weight_q8_0>(kActF32);
  table.formats[kQ4_1][kFast] = fast(gemv_int8<true>);
  table.formats[kQ8_0][kFast] = fast(gemv_int8<false>);
  table.prepare[kActF32] = prepare_f32;
  table.prepare[kActF32Sums] = prepare_f32_sums;
  table.prepare[kActBf16] = prepare_bf16;
  table.prepare[kActInt8] = prepare_int8;
  table.silu_product = silu_product_loop;
  table.interleave = interleave_loop;
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
  table.fma_bf16 = nullptr;
}

}  // namespace kt
