// Integer formats made at load from matrices of floating-point numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "pack.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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
  const auto columns = static_cast<size_t>(source.columns);
  const size_t at = static_cast<size_t>(row) * columns;
  const auto* scales = static_cast<const float*>(source.scale);
  std::fill(out.begin() + source.columns, out.end(), 0.0f);
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
      scales += static_cast<size_t>(row / kScaleBlock) * ((columns + kScaleBlock - 1) / kScaleBlock);
      for (size_t begin = 0; begin < columns; begin += kScaleBlock)
        for (size_t k = begin; k < std::min(begin + kScaleBlock, columns); ++k)
          out[k] = fp8[source.data[at + k]] * scales[begin / kScaleBlock];
      return;
    }
    default:  // kFp8Channel
      for (size_t k = 0; k < columns; ++k) out[k] = fp8[source.data[at + k]] * scales[row];
  }
}

// Four numbers side by side, which every processor of 64 bits has. Sums have one order everywhere.
constexpr int kLanes = 4;
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));

Floats same(float value) { return Floats{value, value, value, value}; }
Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}
#if defined(__SSE2__)
Floats smaller(Floats a, Floats b) { return _mm_min_ps(a, b); }
Floats larger(Floats a, Floats b) { return _mm_max_ps(a, b); }
#else
Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
Floats larger(Floats a, Floats b) { return a > b ? a : b; }
#endif
float sum(Floats v) { return (v[0] + v[1]) + (v[2] + v[3]); }
// The sums of four vectors, side by side.
Floats sums(const Floats* v) {
  const Floats low0 = __builtin_shufflevector(v[0], v[1], 0, 4, 2, 6);   // 0a 1a 0c 1c
  const Floats high0 = __builtin_shufflevector(v[0], v[1], 1, 5, 3, 7);  // 0b 1b 0d 1d
  const Floats low1 = __builtin_shufflevector(v[2], v[3], 0, 4, 2, 6);
  const Floats high1 = __builtin_shufflevector(v[2], v[3], 1, 5, 3, 7);
  const Floats pairs0 = low0 + high0, pairs1 = low1 + high1;  // 0ab 1ab 0cd 1cd
  return __builtin_shufflevector(pairs0, pairs1, 0, 1, 4, 5) +
         __builtin_shufflevector(pairs0, pairs1, 2, 3, 6, 7);
}

// Added to a number of few digits it leaves no room for a fraction: round to nearest even.
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
Floats rounded(Floats v) { return (v + same(kRounder)) - same(kRounder); }

struct Peak {
  float value;  // the number of the largest magnitude, with its sign
  bool finite;
};

Peak peak_of(const float* values, int count) {
  Floats low = same(0), high = same(0), rest = same(0);
  for (int i = 0; i < count; i += kLanes) {
    const Floats v = load(values + i);
    low = smaller(v, low);
    high = larger(v, high);
    rest += v * same(0);  // not zero for infinities and what is no number
  }
  float least = 0, most = 0;
  for (int i = 0; i < kLanes; ++i) {
    least = std::min(least, low[i]);
    most = std::max(most, high[i]);
  }
  return {-least > most ? least : most, sum(rest) == 0};
}

// Smaller scales are not used: their inverse would not be finite, and what they tell apart no sum of a model
// does.
constexpr float kLeastScale = 0x1p-120f;

float inverse_of(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

// The scale with which 4 bits (-8 .. 7) lose least. The number of the largest magnitude, on the side of -8,
// is tried at several distances from zero: clipping it makes the others finer. For each the best scale for
// the integers so found is known: with sums over x and q, x.x - (x.q)^2 / q.q is lost with the scale x.q /
// q.q.
template <size_t kCandidates>
float best_scale(const float* values, int count, float peak, const float (&distances)[kCandidates]) {
  if (std::fabs(peak) < 16 * kLeastScale) return peak == 0.0f ? 0.0f : kLeastScale;
  // Sums of squares of the numbers as they are might leave the range of f32.
  const Floats to_unit = same(1.0f / std::fabs(peak));
  Floats to_integer[kCandidates], product[kCandidates] = {}, square[kCandidates] = {};
  for (size_t c = 0; c < kCandidates; ++c) to_integer[c] = same(peak > 0 ? -distances[c] : distances[c]);
  // Two at once, because each sum waits for its last addition.
  for (size_t c = 0; c < kCandidates; c += 2)
    for (int i = 0; i < count; i += kLanes) {
      const Floats x = load(values + i) * to_unit;
      for (size_t two = c; two < c + 2; ++two) {
        const Floats q = rounded(larger(smaller(x * to_integer[two], same(7)), same(-8)));
        product[two] += x * q;
        square[two] += q * q;
      }
    }
  float best = -peak / distances[0], most = 0;
  for (size_t c = 0; c < kCandidates; c += kLanes) {
    // The largest number never rounds to zero, so no sum of squares is zero.
    const Floats xq = sums(product + c), scale = xq / sums(square + c), kept = xq * scale;
    for (int i = 0; i < kLanes; ++i)
      if (kept[i] > most) {
        most = kept[i];
        best = scale[i] * std::fabs(peak);
      }
  }
  return best;
}

// Integers of 32 values.
void to_integers(const float* values, float scale, float low, float high, int32_t* out) {
  const Floats inverse = same(inverse_of(scale));
  for (int i = 0; i < kQuantBlock; i += kLanes) {
    const Floats q = larger(smaller(load(values + i) * inverse, same(high)), same(low)) + same(kRounder);
    Ints bits;
    std::memcpy(&bits, &q, sizeof bits);
    bits -= static_cast<int32_t>(0x4b400000);
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

// Writes 32 values as bytes or as nibbles (q + 8) of row r of a block's words.
void put_bytes(const float* values, float scale, int r, uint8_t* words) {
  int32_t q[kQuantBlock];
  uint8_t bytes[kQuantBlock];
  to_integers(values, scale, -127, 127, q);
  for (int k = 0; k < kQuantBlock; ++k) bytes[k] = static_cast<uint8_t>(q[k]);
  for (int w = 0; w < kQuantBlock / 4; ++w) std::memcpy(words + w * 64 + r * 4, bytes + w * 4, 4);
}

void put_nibbles(const float* values, float scale, int r, uint8_t* words) {
  int32_t q[kQuantBlock];
  uint8_t bytes[kQuantBlock / 2];
  to_integers(values, scale, -8, 7, q);
  for (int k = 0; k < kQuantBlock / 2; ++k)
    bytes[k] = static_cast<uint8_t>((q[k] + 8) | (q[kQuantBlock / 2 + k] + 8) << 4);
  for (int w = 0; w < kQuantBlock / 8; ++w) std::memcpy(words + w * 64 + r * 4, bytes + w * 4, 4);
}

// Few numbers rarely gain by more than a little clipping; a row has outliers. -7 is the other side, where 7
// ends.
constexpr float kBlockDistances[] = {-7.0f, 7.5f, 8.2f, 9.2f};
constexpr float kRowDistances[] = {-7.0f, 7.6f, 8.4f, 9.3f, 10.5f, 12.0f, 13.9f, 16.5f};

// A scale of bytes as f16, not below the wanted one (the largest number would be clipped), so that small
// ones, of which f16 keeps few digits, cost a wider step only. Infinite where f16 ends.
uint16_t f16_at_least(float scale) {
  const uint16_t bits = f16_bits(scale);
  return f16_value(bits) < scale ? static_cast<uint16_t>(bits + 1) : bits;
}
constexpr float kLargestInF16 = 65504.0f * 127.0f;

// False where a number is not finite or too large for the format.
bool quantise_row(Format stored, const float* values, int depth, int r, uint8_t* tile) {
  if (stored == kInt8 || stored == kInt4) {
    const bool bytes = stored == kInt8;
    const Peak peak = peak_of(values, depth);
    float scale =
        bytes ? std::fabs(peak.value) / 127.0f : best_scale(values, depth, peak.value, kRowDistances);
    if (bytes && scale < kLeastScale && scale > 0) scale = kLeastScale;
    std::memcpy(tile + r * 4, &scale, 4);
    for (int k = 0; k < depth; k += kQuantBlock) {
      uint8_t* words = tile + 64 + static_cast<size_t>(k / kQuantBlock) * (bytes ? 512 : 256);
      bytes ? put_bytes(values + k, scale, r, words) : put_nibbles(values + k, scale, r, words);
    }
    return peak.finite;
  }
  bool fits = true;
  for (int k = 0; k < depth; k += kQuantBlock) {
    uint8_t* block = tile + static_cast<size_t>(k / kQuantBlock) * (stored == kQ8_0 ? 544 : 288);
    const Peak peak = peak_of(values + k, kQuantBlock);
    fits &= peak.finite;
    uint16_t bits;
    if (stored == kQ8_0) {
      fits &= std::fabs(peak.value) <= kLargestInF16;
      bits = f16_at_least(std::fabs(peak.value) / 127.0f);
      put_bytes(values + k, f16_value(bits), r, block + 32);
    } else {
      bits = bf16_bits(best_scale(values + k, kQuantBlock, peak.value, kBlockDistances));
      put_nibbles(values + k, bf16_value(bits), r, block + 32);
    }
    std::memcpy(block + r * 2, &bits, 2);
  }
  return fits;
}

}  // namespace

bool can_quantise(Format from, Format to) {
  const bool floats = from == kF32 || from == kBf16 || from == kFp8Block128 || from == kFp8Channel;
  return floats && (to == kInt8 || to == kInt4 || to == kQ8_0 || to == kInt4G32);
}

bool quantise_tile(const Source& source, long tile, uint8_t* out) {
  const int depth = padded_depth(source.stored, source.columns);
  std::vector<float> row(static_cast<size_t>(depth));
  bool fits = true;
  for (long r = 0; r < kTileRows; ++r) {
    if (r < present_rows(source, tile))
      decode_row(source, tile * kTileRows + r, row);
    else
      std::fill(row.begin(), row.end(), 0.0f);
    fits &= quantise_row(source.stored, row.data(), depth, static_cast<int>(r), out);
  }
  return fits;
}

std::string describe_quantisation(const Source& source) {
  std::vector<float> values(static_cast<size_t>(padded_depth(source.stored, source.columns)));
  for (long row = 0; row < source.rows; ++row) {
    decode_row(source, row, values);
    for (long k = 0; k < source.columns; ++k) {
      const float value = values[static_cast<size_t>(k)];
      const std::string place = std::string(format_name(source.format)) + " weight at row " +
                                std::to_string(row) + ", column " + std::to_string(k);
      if (!std::isfinite(value)) return place + " is not a finite number; the checkpoint is damaged";
      if (source.stored == kQ8_0 && std::fabs(value) > kLargestInF16) {
        char text[32];
        std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
        return place + " is " + text +
               ", but groups of 32 in int8 hold at most 8.3e6 (their scale is float16); " +
               "store it as int8 with a scale a row, or as it is";
      }
    }
  }
  return "all weights fit";
}

}  // namespace kt
