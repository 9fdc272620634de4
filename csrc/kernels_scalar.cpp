// The reference: plain loops in the order of the formulas, built for every architecture. Formats of
// floating-point numbers.
#include "scalar.inl"

namespace kt {
namespace {

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

float scale_f32(const uint8_t* p) {
  float value;
  memcpy(&value, p, sizeof value);
  return value;
}

float weight_fp8_block128(const uint8_t* tile, int depth, int row, int k) {
  const int blocks = (depth + kScaleBlock - 1) / kScaleBlock;
  const size_t header = (static_cast<size_t>(blocks) * 4 + 63) / 64 * 64;
  const uint8_t code = tile[header + static_cast<size_t>(k / 4) * 64 + row * 4 + k % 4];
  return fp8_to_float(code) * scale_f32(tile + (k / kScaleBlock) * 4);
}

float weight_fp8_channel(const uint8_t* tile, int, int row, int k) {
  return fp8_to_float(tile[64 + static_cast<size_t>(k / 4) * 64 + row * 4 + k % 4]) *
         scale_f32(tile + row * 4);
}

float weight_mxfp8(const uint8_t* tile, int, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / kQuantBlock) * (kTileRows + kQuantBlock * kTileRows);
  const uint8_t code = block[kTileRows + (k % kQuantBlock) / 4 * 64 + row * 4 + k % 4];
  return ldexpf(fp8_to_float(code), block[row] - 127);
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

}  // namespace

void install_scalar(Kernels& table) {
  table.name = "scalar";
  table.formats[kF32][kExact] = exact<weight_f32>(kActF32);
  table.formats[kBf16][kExact] = exact<weight_bf16>(kActF32);
  table.formats[kFp8Block128][kExact] = exact<weight_fp8_block128>(kActF32);
  table.formats[kFp8Channel][kExact] = exact<weight_fp8_channel>(kActF32);
  table.formats[kMxfp8][kExact] = exact<weight_mxfp8>(kActF32);
  for (int f = kF32; f <= kMxfp8; ++f) table.formats[f][kFast] = table.formats[f][kExact];
  install_shared(table);
  table.read = read_bytes;
  table.fma_f32 = fma_f32;
  table.fma_bf16 = nullptr;
  table.tile_loop = nullptr;
}

}  // namespace kt
