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
// which a kernel reads it. The depth (input columns) is padded with zero weights to a multiple of the
// format's depth_align (pack.h). A "word" is 16 x 4 bytes, one dword a row.
//
//   f32           per column: 16 x f32
//   bf16          per 2 columns: 16 x (k, k+1)
//   fp8_block128  ceil(depth/128) f32 scales padded to 64 bytes; then per 4 columns: a word of codes, byte i
//   being
//                 column 4j+i
//   fp8_channel   16 x f32 scale, then likewise
//   mxfp8         per 32 columns: 16 x e8m0 byte, then 8 words likewise
//
// Formats of integers hold their columns in blocks of 32. "bytes" are 8 words, byte i of word j being column
// 4j+i. "nibbles" are 4 words, byte i of word j holding column 4j+i in its low and column 16+4j+i in its high
// half.
//
//   int8          16 x f32 scale; then per 32: bytes
//   int4          16 x f32 scale; then per 32: nibbles (q + 8)
//   int4_g32      per 32: 16 x bf16 scale, nibbles
//   int4_g128     per 128: 16 x f16 scale, then 4 x nibbles
//   mxfp4         per 32: 16 x e8m0 byte, nibbles (e2m1 codes)
//   q4_0          per 32: 16 x f16 d, nibbles
//   q4_1          per 32: 16 x f16 d, 16 x f16 m, nibbles
//   q8_0          per 32: 16 x f16 d, bytes
//   q4_k          per 256: 16 x f16 d, 16 x f16 dmin; then per 32: 16 x u8 scale, 16 x u8 min, nibbles
//   q5_k          as q4_k, with one word of fifth bits before the nibbles: bit 8i+j is that of column 4j+i,
//   bit
//                 8i+4+j that of column 16+4j+i
//   q6_k          per 256: 16 x f16 d; then per 32: 16 x i8 scale of columns 0-15, 16 x i8 scale of columns
//   16-31, two
//                 words of upper bits (bits 8i+2j of the first: column 4j+i, of the second: column 16+4j+i),
//                 nibbles
constexpr int kTileRows = 16;
constexpr int kScaleBlock = 128;
constexpr int kQuantBlock = 32;
constexpr int kMaxPanelRows = 32;

// What a weight means, by format:
//   fp8_block128   e4m3 code * scale of its 128 x 128 block        fp8_channel   e4m3 code * scale of its row
//   mxfp8          e4m3 code * 2^(e - 127), one e for 32 columns   mxfp4         e2m1 code * 2^(e - 127),
//   likewise int8, int4     q * scale of its row, made from a float format  int4_g32      (q - 8) * bf16
//   scale for 32 columns int4_g128      (q - 8) * f16 scale for 128 columns             q4_0 .. q6_k  the
//   blocks of ggml
enum Format : int {
  kF32,
  kBf16,
  kFp8Block128,
  kFp8Channel,
  kMxfp8,
  kMxfp4,
  kInt8,
  kInt4,
  kInt4G32,
  kInt4G128,
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ4K,
  kQ5K,
  kQ6K,
  kFormats
};
enum Mode : int { kExact, kFast, kModes };

// How a row of activations is prepared for a kernel. All start with `depth` values.
//   kF32      f32
//   kF32Raised  f32 * 2^60
//   kBf16     bf16 (round to nearest even)
//   kInt8     int8 with one scale per 32; then depth/32 f32 scales, depth/32 f32 scale * sum of the block,
//   and
//             depth/16 f32 scale * sum of either half of the block
//   kInt16    int8 of a first plane, then `depth` int8 of a second one: x is about
//             scale * (254 * first + second); then scales and sums as for kInt8
enum Activation : int { kActF32, kActF32Raised, kActBf16, kActInt8, kActInt16, kActivations };

// Prepares `count` values of a row of `depth` values, those from column `begin` on (a multiple of 32). Values
// behind the last one, up to the next multiple of 32 or to depth, become zero.
using PrepareFn = void (*)(const float* x, int begin, int count, int depth, void* row);

// out[m][16] = rows[m] . tile; rows are prepared activations.
using GemvFn = void (*)(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out);

// Many rows at once: the rows are arranged in blocks, and a tile (or two, for the sake of registers) is
// multiplied with any number of blocks, so that what it costs to decode weights is paid once.
struct PanelKernels {
  Activation activation;  // how rows are prepared before they are arranged
  int rows;               // activation rows of a block, at most kMaxPanelRows; 0: there is no such path
  // Bytes of one block, a multiple of 64.
  size_t (*block_bytes)(int depth);
  // Lays m prepared rows into a block; rows beyond m are zero.
  void (*arrange)(const uint8_t* const* rows, int m, int depth, uint8_t* block);
  // Bytes of scratch that multiply needs.
  size_t (*scratch_bytes)(int depth);
  // c0[row][16] = rows . tile0 for all rows of the blocks, and c1 likewise unless tile1 is null. Blocks lie
  // one behind the other; c0 and c1 have room for whole blocks, what lies behind `rows` rows has no meaning.
  void (*multiply)(const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks, int rows,
                   uint8_t* scratch, float* c0, float* c1);
  // Bytes of blocks that one sweep should not exceed, because activations are read once for each pair of
  // tiles and have to come from the second-level cache; 0: no limit.
  size_t sweep_bytes = 0;
};

// One weight format in one numeric mode.
struct FormatKernels {
  Activation activation;  // of gemv
  GemvFn gemv;            // null: the format cannot be multiplied in this mode
  int gemv_rows;          // with more rows than this the panel path is used, if there is one
  PanelKernels panel;
};

// A stretch of neighbouring slots of a key-value cache.
struct Slots {
  long first, count;
};

// Attention of a few rows of one sequence, for the query heads that share one key head, over some of its
// positions.
struct AttendTask {
  const float* queries;  // row r, head g at queries + r * query_stride + g * key_dim
  long query_stride;
  int rows, group;
  const float*
      keys;  // slot s at keys + s * key_stride; or, if that is 0, 16 slots together: number k of slot s at
             // keys + (s / 16 * key_dim + k) * 16 + s % 16. Runs then begin at multiples of 16.
  const float* values;  // slot s at values + s * value_stride
  long key_stride, value_stride;
  int key_dim, value_dim;
  const Slots* runs;  // the slots of positions 0, 1, ... in order
  int run_count;
  long begin, end;  // the positions that are looked at; begin is a multiple of 16
  long position;    // of row 0; row r sees positions up to position + r
  long window;      // and of those the last `window` only; 0: all
  float scale;      // of the scores
  float* scratch;   // attend_scratch floats
  // Results, by query i = r * group + g: the largest score, the sum of w = exp(score - largest), and the sum
  // of w * value, [query][value_dim].
  float* peaks;
  float* weights;
  float* sums;
};

// How gate and up become an intermediate value of an expert or a feed-forward layer. With g = min(gate,
// limit) and u = up cut to [-limit, limit]: g * sigmoid(alpha * g) * (u + shift).
struct Gating {
  float limit, alpha, shift;
};

// Where a routed row's result goes: weight times it is added to y[token], or stored there if it is the
// token's first one.
struct Destination {
  long token;
  float weight;
  bool first;
};

struct Kernels {
  const char* name;
  FormatKernels formats[kFormats][kModes];
  PrepareFn prepare[kActivations];
  // out = x / sqrt(mean(x^2) + eps) * weight; out may be x
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* out);
  // Rotates pairs (i, i + half), or (2i, 2i + 1) if interleaved, of one head by angles given as cosine and
  // sine.
  void (*rotate)(float* head, const float* cosine, const float* sine, int half, bool interleaved);
  void (*attend)(const AttendTask& task);
  size_t (*attend_scratch)(int queries, int key_dim);
  // out[i * stride + j] = gating of gate[i * n + j] + gate_bias[j] and up[i * n + j] + up_bias[j] for i <
  // rows and j < n. Both biases may be null.
  void (*gated_product)(const Gating& gating, const float* gate, const float* up, const float* gate_bias,
                        const float* up_bias, int rows, int n, float* out, int stride);
  // Row i of sums0[rows][16] and of sums1, which lie side by side and are together `width` wide (at most 16
  // if sums1 is null), goes to its token in y[...][stride], with bias[width] added before unless that is
  // null.
  void (*add_weighted)(const Destination* to, int rows, const float* sums0, const float* sums1,
                       const float* bias, int width, float* y, long stride);
  // Limits of the machine, measured with the same instruction set.
  uint64_t (*read)(const uint8_t* data, size_t bytes);
  double (*fma_f32)(long iterations);   // returns the operations done (a multiply-add counts two)
  double (*fma_bf16)(long iterations);  // null without bf16 dot products
  double (*tile_loop)(
      long iterations);  // likewise with operands from the first-level cache; null without tiles
  double (*int8_peak)(long iterations);  // products of bytes summed to 32 bits; null without vectors of them
};

// Each fills in what it implements and leaves the rest as the narrower one left it.
void install_scalar(Kernels& table);
void install_scalar_int(Kernels& table);
void install_scalar_rows(Kernels& table);
void install_avx2(Kernels& table);
void install_avx2_int(Kernels& table);
void install_avx2_rows(Kernels& table);
void install_avx512(Kernels& table);
void install_avx512_int(Kernels& table);
void install_avx512_rows(Kernels& table);
void install_avx512_bf16(Kernels& table);
void install_avx512_vnni(Kernels& table);
void install_amx(Kernels& table);
void install_amx_int(Kernels& table);

}  // namespace kt
