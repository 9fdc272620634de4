// Code that every kernel translation unit compiles for itself, with its own instruction set. Internal linkage
// throughout: nothing here may be shared between translation units.
#include <string.h>

#include "kernels.h"

// Arrays of registers stay in registers only when every loop over them is unrolled early.
#define KT_UNROLL _Pragma("GCC unroll 16")

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
[[maybe_unused]] float exp_f32(float x) {
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

// The end of what a call of prepare writes: the next multiple of a block, but no further than the row.
int prepared_end(int begin, int count, int depth) {
  const int end = (begin + count + kQuantBlock - 1) / kQuantBlock * kQuantBlock;
  return end < depth ? end : depth;
}

void prepare_f32(const float* x, int begin, int count, int depth, void* row) {
  float* out = static_cast<float*>(row);
  memcpy(out + begin, x, sizeof(float) * static_cast<size_t>(count));
  for (int k = begin + count; k < prepared_end(begin, count, depth); ++k) out[k] = 0.0f;
}

// Keeps products with FP8 weights that are 2^120 too small (see fp8_column) among the normal numbers.
constexpr float kRaise = 0x1p60f;

void prepare_f32_raised(const float* x, int begin, int count, int depth, void* row) {
  float* out = static_cast<float*>(row) + begin;
  for (int k = 0; k < count; ++k) out[k] = x[k] * kRaise;
  for (int k = count; k < prepared_end(begin, count, depth) - begin; ++k) out[k] = 0.0f;
}

void prepare_bf16(const float* x, int begin, int count, int depth, void* row) {
  uint16_t* out = static_cast<uint16_t*>(row) + begin;
  for (int k = 0; k < count; ++k) out[k] = bf16_from_float(x[k]);
  for (int k = count; k < prepared_end(begin, count, depth) - begin; ++k) out[k] = 0;
}

// The integers of one block of 32 values, as int8 or as two int8 each, and what lies behind a row's integers:
// scales, sums of blocks and sums of their halves.
template <int kPlanes>
void prepare_block(const float* x, int8_t* out, int depth, float* scale, float* sum, float* half_sums) {
  // Compared as integers, the bits of a NaN are the largest: its block's scale and results become NaN, too.
  int largest_bits = 0;
  for (int i = 0; i < kQuantBlock; ++i) {
    const int bits = static_cast<int>(bits_from_float(x[i]) & 0x7fffffffu);
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  const float largest = float_from_bits(static_cast<uint32_t>(largest_bits));
  constexpr float kLargest = kPlanes == 2 ? 254.0f * 127.0f : 127.0f;
  // Values too small to have an inverse become zero.
  const float inverse = largest > kLargest * 0x1p-126f ? kLargest / largest : 0.0f;
  *scale = largest / kLargest;
  int halves[2];
  for (int half = 0; half < 2; ++half) {
    int total = 0;
    for (int i = half * 16; i < half * 16 + 16; ++i) {
      // Adding 1.5 * 2^23 rounds to nearest even in the low bits of the mantissa.
      const float rounded = x[i] * inverse + 12582912.0f;
      const int q = static_cast<int>(bits_from_float(rounded) - 0x4b400000u);
      total += q;
      if (kPlanes == 2) {
        const float high = (rounded - 12582912.0f) * (1.0f / 254.0f) + 12582912.0f;
        const int first = static_cast<int>(bits_from_float(high) - 0x4b400000u);
        out[i] = static_cast<int8_t>(first);
        out[depth + i] = static_cast<int8_t>(q - 254 * first);
      } else {
        out[i] = static_cast<int8_t>(q);
      }
    }
    halves[half] = total;
    half_sums[half] = *scale * static_cast<float>(total);
  }
  *sum = *scale * static_cast<float>(halves[0] + halves[1]);
}

template <int kPlanes>
void prepare_int(const float* x, int begin, int count, int depth, void* row) {
  int8_t* out = static_cast<int8_t*>(row);
  float* scales = reinterpret_cast<float*>(out + static_cast<size_t>(kPlanes) * depth);
  float* sums = scales + depth / kQuantBlock;
  float* half_sums = sums + depth / kQuantBlock;
  for (int at = 0; at < count; at += kQuantBlock) {
    const int b = (begin + at) / kQuantBlock;
    float padded[kQuantBlock] = {};
    const bool whole = count - at >= kQuantBlock;
    if (!whole) memcpy(padded, x + at, static_cast<size_t>(count - at) * sizeof(float));
    prepare_block<kPlanes>(whole ? x + at : padded, out + begin + at, depth, scales + b, sums + b,
                           half_sums + 2 * b);
  }
}

// Writes depth [begin, end) of a tile as a panel of dwords [step][16]: f32 per k, or bf16 pairs per k/2.
// Returns the factor that is still to be applied to products with this part of the panel.
using ConvertFn = float (*)(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel);

// c[i][16] += scale * sum over steps of a[step][i] . b[step][16] for i < m; b1/c1 may be null.
// `a` has the block's number of rows, in dwords, per step.
using GemmFn = void (*)(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m,
                        float* c0, float* c1, float scale0, float scale1);

// A panel path that converts slices of kChunk columns and sweeps all rows over each. Rows are arranged as
// [step][kRows] dwords, a dword holding kPerDword columns.
template <int kRows, int kChunk, int kPerDword, ConvertFn convert, GemmFn gemm>
struct ConvertedPanel {
  static size_t block_bytes(int depth) {
    return (static_cast<size_t>(depth / kPerDword) * kRows * 4 + 63) / 64 * 64;
  }

  static void arrange(const uint8_t* const* rows, int m, int depth, uint8_t* block) {
    uint32_t* out = reinterpret_cast<uint32_t*>(block);
    const int steps = depth / kPerDword;
    for (int step = 0; step < steps; ++step)
      for (int i = 0; i < kRows; ++i)
        out[static_cast<size_t>(step) * kRows + i] =
            i < m ? reinterpret_cast<const uint32_t*>(rows[i])[step] : 0u;
  }

  static size_t scratch_bytes(int) { return size_t{2} * (kChunk / kPerDword) * kTileRows * 4; }

  static void multiply(const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks, int rows,
                       uint8_t* scratch, float* c0, float* c1) {
    const size_t sums = static_cast<size_t>(rows) * kTileRows * sizeof(float);
    memset(c0, 0, sums);
    if (tile1) memset(c1, 0, sums);
    uint32_t* panel0 = reinterpret_cast<uint32_t*>(scratch);
    uint32_t* panel1 = tile1 ? panel0 + static_cast<size_t>(kChunk / kPerDword) * kTileRows : nullptr;
    for (int begin = 0; begin < depth; begin += kChunk) {
      const int end = depth - begin < kChunk ? depth : begin + kChunk;
      const float scale0 = convert(tile0, depth, begin, end, panel0);
      const float scale1 = tile1 ? convert(tile1, depth, begin, end, panel1) : 0.0f;
      for (int row = 0; row < rows; row += kRows) {
        const uint32_t* block = reinterpret_cast<const uint32_t*>(blocks + static_cast<size_t>(row / kRows) *
                                                                               block_bytes(depth)) +
                                static_cast<size_t>(begin / kPerDword) * kRows;
        gemm(block, panel0, panel1, (end - begin) / kPerDword, rows - row < kRows ? rows - row : kRows,
             c0 + static_cast<size_t>(row) * kTileRows,
             c1 ? c1 + static_cast<size_t>(row) * kTileRows : nullptr, scale0, scale1);
      }
    }
  }
};

template <Activation activation, int kRows, int kChunk, int kPerDword, ConvertFn convert, GemmFn gemm>
constexpr PanelKernels converted_panel() {
  using Panel = ConvertedPanel<kRows, kChunk, kPerDword, convert, gemm>;
  return {activation, kRows, Panel::block_bytes, Panel::arrange, Panel::scratch_bytes, Panel::multiply, 0};
}

[[maybe_unused]] void install_shared(Kernels& table) {
  table.prepare[kActF32] = prepare_f32;
  table.prepare[kActF32Raised] = prepare_f32_raised;
  table.prepare[kActBf16] = prepare_bf16;
  table.prepare[kActInt8] = prepare_int<1>;
  table.prepare[kActInt16] = prepare_int<2>;
}

}  // namespace
}  // namespace kt
