// The reference: plain loops in the order of the formulas, built for every architecture. Formats of integers.
#include "scalar.inl"

namespace kt {
namespace {

// One weight as the sum of an integer times a factor and a minimum.
struct Part {
  int q;
  float factor, minimum;
};

float f16_at(const uint8_t* p) { return f16_to_float(load_u16(p)); }
float bf16_at(const uint8_t* p) { return float_from_bits(static_cast<uint32_t>(load_u16(p)) << 16); }
float f32_at(const uint8_t* p) {
  float value;
  memcpy(&value, p, sizeof value);
  return value;
}

// Column k of row `row` of the words of a block of 32.
int nibble_at(const uint8_t* words, int row, int k) {
  const uint8_t byte = words[k % 16 / 4 * 64 + row * 4 + k % 4];
  return k % 32 < 16 ? byte & 15 : byte >> 4;
}
int byte_at(const uint8_t* words, int row, int k) {
  return static_cast<int8_t>(words[k % 32 / 4 * 64 + row * 4 + k % 4]);
}

Part int8_part(const uint8_t* tile, int row, int k) {
  return {byte_at(tile + 64 + k / 32 * 512, row, k), f32_at(tile + row * 4), 0.0f};
}
Part int4_part(const uint8_t* tile, int row, int k) {
  return {nibble_at(tile + 64 + k / 32 * 256, row, k) - 8, f32_at(tile + row * 4), 0.0f};
}
Part int4_g32_part(const uint8_t* tile, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 288;
  return {nibble_at(block + 32, row, k) - 8, bf16_at(block + row * 2), 0.0f};
}
Part int4_g128_part(const uint8_t* tile, int row, int k) {
  const uint8_t* group = tile + static_cast<size_t>(k / 128) * (32 + 1024);
  return {nibble_at(group + 32 + k % 128 / 32 * 256, row, k) - 8, f16_at(group + row * 2), 0.0f};
}
Part mxfp4_part(const uint8_t* tile, int row, int k) {
  static const int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 272;
  return {kTwice[nibble_at(block + 16, row, k)], ldexpf(1.0f, block[row] - 128), 0.0f};
}
Part q4_0_part(const uint8_t* tile, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 288;
  return {nibble_at(block + 32, row, k) - 8, f16_at(block + row * 2), 0.0f};
}
Part q4_1_part(const uint8_t* tile, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 320;
  return {nibble_at(block + 64, row, k), f16_at(block + row * 2), f16_at(block + 32 + row * 2)};
}
Part q8_0_part(const uint8_t* tile, int row, int k) {
  const uint8_t* block = tile + static_cast<size_t>(k / 32) * 544;
  return {byte_at(block + 32, row, k), f16_at(block + row * 2), 0.0f};
}

template <int kBlock>
Part k45_part(const uint8_t* tile, int row, int k) {
  const uint8_t* super = tile + static_cast<size_t>(k / 256) * (64 + 8 * kBlock);
  const uint8_t* block = super + 64 + k % 256 / 32 * kBlock;
  int q = nibble_at(block + kBlock - 256, row, k);
  if (kBlock > 288) {
    const int bit = 8 * (k % 4) + k % 16 / 4 + (k % 32 < 16 ? 0 : 4);
    q |= (block[32 + row * 4 + bit / 8] >> bit % 8 & 1) << 4;
  }
  return {q, f16_at(super + row * 2) * static_cast<float>(block[row]),
          -f16_at(super + 32 + row * 2) * static_cast<float>(block[16 + row])};
}
Part q6_k_part(const uint8_t* tile, int row, int k) {
  const uint8_t* super = tile + static_cast<size_t>(k / 256) * (32 + 8 * 416);
  const uint8_t* block = super + 32 + k % 256 / 32 * 416;
  const int part = k % 32 / 16, bit = 8 * (k % 4) + 2 * (k % 16 / 4);
  const int upper = block[32 + 64 * part + row * 4 + bit / 8] >> bit % 8 & 3;
  return {(nibble_at(block + 160, row, k) | upper << 4) - 32,
          f16_at(super + row * 2) * static_cast<float>(static_cast<int8_t>(block[16 * part + row])), 0.0f};
}

using PartFn = Part (*)(const uint8_t* tile, int row, int k);

template <PartFn part>
float weight(const uint8_t* tile, int, int row, int k) {
  const Part p = part(tile, row, k);
  return static_cast<float>(p.q) * p.factor + p.minimum;
}

// Fast mode: int8 activations, integer sums inside each half of a block of 32.
template <PartFn part>
void gemv_int8(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (int i = 0; i < m; ++i) {
    const int8_t* q = reinterpret_cast<const int8_t*>(rows[i]);
    const float* scales = reinterpret_cast<const float*>(q + depth);
    for (int row = 0; row < kTileRows; ++row) {
      float total = 0.0f;
      for (int k = 0; k < depth; k += kQuantBlock / 2) {
        int dot = 0, sum = 0;
        for (int j = k; j < k + kQuantBlock / 2; ++j) {
          dot += part(tile, row, j).q * q[j];
          sum += q[j];
        }
        const Part p = part(tile, row, k);
        total += scales[k / kQuantBlock] *
                 (p.factor * static_cast<float>(dot) + p.minimum * static_cast<float>(sum));
      }
      out[i * kTileRows + row] = total;
    }
  }
}

template <PartFn part>
void install(Kernels& table, Format format) {
  table.formats[format][kExact] = exact<weight<part>>(kActF32);
  table.formats[format][kFast] = {kActInt8, gemv_int8<part>, 64, {}};
}

}  // namespace

void install_scalar_int(Kernels& table) {
  install<int8_part>(table, kInt8);
  install<int4_part>(table, kInt4);
  install<int4_g32_part>(table, kInt4G32);
  install<int4_g128_part>(table, kInt4G128);
  install<mxfp4_part>(table, kMxfp4);
  install<q4_0_part>(table, kQ4_0);
  install<q4_1_part>(table, kQ4_1);
  install<q8_0_part>(table, kQ8_0);
  install<k45_part<288>>(table, kQ4K);
  install<k45_part<352>>(table, kQ5K);
  install<q6_k_part>(table, kQ6K);
}

}  // namespace kt
