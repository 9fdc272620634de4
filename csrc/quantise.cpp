// Integer formats made at load from matrices of floating-point numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "pack.h"

namespace kt {
namespace {

float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// E4M3 magnitudes by code.
std::array<float, 256> make_fp8_values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    values[static_cast<size_t>(code)] = (code & 0x7f) == 0x7f ? NAN : code & 0x80 ? -size : size;
  }
  return values;
}

// Round to nearest even, to a number of the format; the scales that come here are never too large for it.
uint16_t bf16_bits(float value) {
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
float bf16_value(uint16_t bits) { return float_from_bits(static_cast<uint32_t>(bits) << 16); }

uint16_t f16_bits(float value) {
  const uint16_t sign = static_cast<uint16_t>(bits_of(value) >> 16 & 0x8000u);
  const float size = std::fabs(value);
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  if (size < 0x1p-14f)
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f)));
  const uint32_t bits = bits_of(size) - (112u << 23);
  return static_cast<uint16_t>(sign | ((bits + 0xfffu + (bits >> 13 & 1u)) >> 13));
}
float f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                   : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return bits & 0x8000 ? -size : size;
}

// One row of the source; columns behind the last one are zero.
void decode_row(const Source& source, long row, std::vector<float>& out) {
  static const std::array<float, 256> fp8 = make_fp8_values();
  std::fill(out.begin(), out.end(), 0.0f);
  const auto columns = static_cast<size_t>(source.columns);
  const size_t at = static_cast<size_t>(row) * columns;
  const auto* scales = static_cast<const float*>(source.scale);
  switch (source.format) {
    case kF32:
      std::memcpy(out.data(), source.data + at * 4, columns * 4);
      return;
    case kBf16:
      for (size_t k = 0; k < columns; ++k) {
        uint16_t bits;
        std::memcpy(&bits, source.data + (at + k) * 2, 2);
        out[k] = bf16_value(bits);
      }
      return;
    case kFp8Block128: {
      const size_t across = (columns + kScaleBlock - 1) / kScaleBlock;
      for (size_t k = 0; k < columns; ++k)
        out[k] = fp8[source.data[at + k]] *
                 scales[static_cast<size_t>(row / kScaleBlock) * across + k / kScaleBlock];
      return;
    }
    default:  // kFp8Channel
      for (size_t k = 0; k < columns; ++k) out[k] = fp8[source.data[at + k]] * scales[row];
  }
}

float largest(const float* values, int count) {
  float peak = 0.0f;
  for (int i = 0; i < count; ++i) peak = std::max(peak, std::fabs(values[i]));
  return peak;
}

int rounded(float value, int low, int high) {
  return std::clamp(static_cast<int>(std::nearbyint(value)), low, high);
}

// The scale with which 4 bits (-8 .. 7) lose least: clipping the largest values makes the others finer. `fit`
// turns a scale into one that the format can hold.
template <typename Fit>
float best_scale(const float* values, int count, const Fit& fit) {
  const float peak = largest(values, count);
  float best = fit(peak / 7.0f);
  double least = INFINITY;
  for (int step = 0; step <= 10; ++step) {
    for (const float sign : {1.0f, -1.0f}) {
      // With a negative scale the largest magnitude may become -8.
      const float scale = fit(sign * peak / (7.0f + 0.4f * static_cast<float>(step)));
      if (scale == 0.0f) continue;
      double error = 0;
      for (int i = 0; i < count; ++i) {
        const double miss = values[i] - scale * static_cast<float>(rounded(values[i] / scale, -8, 7));
        error += miss * miss;
      }
      if (error < least) {
        least = error;
        best = scale;
      }
    }
  }
  return best;
}

// Writes 32 values as bytes or as nibbles (q + 8) of row r of a block's words.
void put_bytes(const float* values, float scale, int r, uint8_t* words) {
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  for (int k = 0; k < kQuantBlock; ++k)
    words[k / 4 * 64 + r * 4 + k % 4] = static_cast<uint8_t>(rounded(values[k] * inverse, -127, 127));
}

void put_nibbles(const float* values, float scale, int r, uint8_t* words) {
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  for (int k = 0; k < kQuantBlock / 2; ++k) {
    const int low = rounded(values[k] * inverse, -8, 7) + 8;
    const int high = rounded(values[kQuantBlock / 2 + k] * inverse, -8, 7) + 8;
    words[k / 4 * 64 + r * 4 + k % 4] = static_cast<uint8_t>(low | high << 4);
  }
}

void quantise_row(Format stored, const float* values, int depth, int r, uint8_t* tile) {
  const auto plain = [](float scale) { return scale; };
  if (stored == kInt8 || stored == kInt4) {
    const bool bytes = stored == kInt8;
    const float scale = bytes ? largest(values, depth) / 127.0f : best_scale(values, depth, plain);
    std::memcpy(tile + r * 4, &scale, 4);
    for (int k = 0; k < depth; k += kQuantBlock) {
      uint8_t* words = tile + 64 + static_cast<size_t>(k / kQuantBlock) * (bytes ? 512 : 256);
      bytes ? put_bytes(values + k, scale, r, words) : put_nibbles(values + k, scale, r, words);
    }
    return;
  }
  for (int k = 0; k < depth; k += kQuantBlock) {
    uint8_t* block = tile + static_cast<size_t>(k / kQuantBlock) * (stored == kQ8_0 ? 544 : 288);
    uint16_t bits;
    if (stored == kQ8_0) {
      bits = f16_bits(largest(values + k, kQuantBlock) / 127.0f);
      put_bytes(values + k, f16_value(bits), r, block + 32);
    } else {
      bits = bf16_bits(best_scale(values + k, kQuantBlock, [](float s) { return bf16_value(bf16_bits(s)); }));
      put_nibbles(values + k, bf16_value(bits), r, block + 32);
    }
    std::memcpy(block + r * 2, &bits, 2);
  }
}

}  // namespace

bool can_quantise(Format from, Format to) {
  const bool floats = from == kF32 || from == kBf16 || from == kFp8Block128 || from == kFp8Channel;
  return floats && (to == kInt8 || to == kInt4 || to == kQ8_0 || to == kInt4G32);
}

bool quantise_tile(const Source& source, long tile, uint8_t* out) {
  const int depth = padded_depth(source.stored, source.columns);
  std::memset(out, 0, tile_bytes(source.stored, depth));
  std::vector<float> row(static_cast<size_t>(depth));
  for (long r = 0; r < kTileRows; ++r) {
    if (r < present_rows(source, tile))
      decode_row(source, tile * kTileRows + r, row);
    else
      std::fill(row.begin(), row.end(), 0.0f);
    for (float value : row)
      if (!std::isfinite(value)) return false;
    quantise_row(source.stored, row.data(), depth, static_cast<int>(r), out);
  }
  return true;
}

}  // namespace kt
