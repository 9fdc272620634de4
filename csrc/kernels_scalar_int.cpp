// The reference: plain loops in the order of the formulas, built for every architecture. Formats of integers.
#include "scalar.inl"

namespace kt {
namespace {

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

FormatKernels fast(GemvFn function) { return {kActInt8, function, 64, {}}; }

}  // namespace

void install_scalar_int(Kernels& table) {
  table.formats[kQ4_1][kExact] = exact<weight_q4_1>(kActF32Sums);
  table.formats[kQ8_0][kExact] = exact<weight_q8_0>(kActF32);
  table.formats[kQ4_1][kFast] = fast(gemv_int8<true>);
  table.formats[kQ8_0][kFast] = fast(gemv_int8<false>);
}

}  // namespace kt
