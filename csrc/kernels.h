// The table of kernels that one instruction set offers, and the packed layouts they read.
//
// This header is included by the translation units that are compiled with wider instruction sets, so it holds
// plain data and declarations only: an inline function or template here could be emitted with AVX-512 code
// and then be picked by the linker for every caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kt {

// A packed matrix is a sequence of tiles of kTileRows output rows, each one contiguous stream in the order in
// which a kernel reads it. The depth (input columns) is padded with zero weights to a multiple of
// kDepthAlign.
//
//   f32           k: 16 x f32
//   bf16          k/2: 16 x (k, k+1), 64 bytes
//   fp8_block128  ceil(depth/128) f32 scales padded to 64 bytes; then k/4: 64 bytes = 4 lanes of 16 bytes,
//   lane =
//                 4 rows x (k, k+1), 4 rows x (k+2, k+3); lanes hold rows 0-3, 8-11, 4-7, 12-15, so that
//                 128-bit unpacking (AVX2) gives rows in order and byte permutes (VBMI) need no cross-lane
//                 step
//   q4_1          k/32: 16 x f16 d, 16 x f16 m, then j in 0..3: 16 x 4 bytes, low nibble k = 4j+i, high
//   16+4j+i q8_0          k/32: 16 x f16 d, then j in 0..7: 16 x 4 signed bytes, k = 4j+i
constexpr int kTileRows = 16;
constexpr int kDepthAlign = 4;
constexpr int kScaleBlock = 128;
constexpr int kQuantBlock = 32;
constexpr int kMaxPanelRows = 16;

enum Format : int { kF32, kBf16, kFp8Block128, kQ4_1, kQ8_0, kFormats };
enum Mode : int { kExact, kFast, kModes };

// How a row of activations is prepared for a kernel. All start with `depth` values.
//   kF32      f32
//   kF32Sums  f32, then depth/32 f32 sums of each block
//   kBf16     bf16 (round to nearest even)
//   kInt8     int8 with one f32 scale per 32; then depth/32 f32 scales, then depth/32 f32 scale * sum of int8
enum Activation : int { kActF32, kActF32Sums, kActBf16, kActInt8, kActivations };

using PrepareFn = void (*)(const float* x, int columns, int depth, void* row);

// out[m][16] = rows[m] . tile; rows are prepared activations.
using GemvFn = void (*)(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out);

// Writes depth [begin, end) of a tile as a panel of dwords [step][16]: f32 per k, or bf16 pairs per k/2.
// Returns the factor that is still to be applied to products with this part of the panel.
using ConvertFn = float (*)(const uint8_t* tile, int depth, int begin, int end, uint32_t* panel);

// c[i][16] += scale * sum over steps of a[step][i] . b[step][16] for i < m; b1/c1 may be null.
// `a` has panel_rows dwords per step.
using GemmFn = void (*)(const uint32_t* a, const uint32_t* b0, const uint32_t* b1, int steps, int m,
                        float* c0, float* c1, float scale0, float scale1);

// One weight format in one numeric mode.
struct FormatKernels {
  Activation activation;
  GemvFn gemv;
  int gemv_rows;      // with more rows than this the panel path is used
  ConvertFn convert;  // null: there is no panel path, gemv serves any number of rows
  GemmFn gemm;
  int panel_rows;  // activation rows per gemm step, at most kMaxPanelRows
  int chunk;       // depth per convert and gemm call
  int per_dword;   // depth per dword of a panel: 1 (f32) or 2 (bf16 pairs)
};

struct Kernels {
  const char* name;
  FormatKernels formats[kFormats][kModes];
  PrepareFn prepare[kActivations];
  // out[i] = silu(gate[i]) * up[i]
  void (*silu_product)(const float* gate, const float* up, int n, float* out);
  // out[step][i] = rows[i][step]; rows beyond m are zero. `width` dwords per step.
  void (*interleave)(const uint32_t* const* rows, int m, int width, int steps, uint32_t* out);
  // Limits of the machine, measured with the same instruction set.
  uint64_t (*read)(const uint8_t* data, size_t bytes);
  double (*fma_f32)(long iterations);   // returns the operations done (a multiply-add counts two)
  double (*fma_bf16)(long iterations);  // null without bf16 dot products
};

// Each fills in what it implements and leaves the rest as the narrower one left it.
void install_scalar(Kernels& table);
void install_avx2(Kernels& table);
void install_avx512(Kernels& table);
void install_avx512_bf16(Kernels& table);

}  // namespace kt
