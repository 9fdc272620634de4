#include "pack.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace kt {
namespace {

constexpr const char* kNames[kFormats] = {"f32",  "bf16", "fp8_block128", "fp8_channel", "mxfp8", "mxfp4",
                                          "int8", "int4", "int4_g32",     "int4_g128",   "q4_0",  "q4_1",
                                          "q8_0", "q4_k", "q5_k",         "q6_k"};

// One row of the source, or null beyond the last one.
const uint8_t* source_row(const Source& source, long row, size_t row_bytes) {
  return row < source.rows ? source.data + static_cast<size_t>(row) * row_bytes : nullptr;
}

bool pack_f32(const Source& source, long tile, int depth, uint8_t* out) {
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* row = source_row(source, tile * kTileRows + r, static_cast<size_t>(source.columns) * 4);
    for (int k = 0; k < depth; ++k) {
      uint8_t* to = out + (static_cast<size_t>(k) * kTileRows + r) * 4;
      if (row && k < source.columns)
        std::memcpy(to, row + static_cast<size_t>(k) * 4, 4);
      else
        std::memset(to, 0, 4);
    }
  }
  return true;
}

bool pack_bf16(const Source& source, long tile, int depth, uint8_t* out) {
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* row = source_row(source, tile * kTileRows + r, static_cast<size_t>(source.columns) * 2);
    const long whole = row ? source.columns / 2 : 0;
    for (long pair = 0; pair < depth / 2; ++pair) {
      uint8_t* to = out + static_cast<size_t>(pair) * 64 + r * 4;
      if (pair < whole) {
        std::memcpy(to, row + pair * 4, 4);
      } else {
        std::memset(to, 0, 4);
        if (row && pair * 2 < source.columns) std::memcpy(to, row + pair * 4, 2);
      }
    }
  }
  return true;
}

bool has_nan(uint32_t codes) {
  // A byte of codes & 0x7f is 0x7f exactly when adding one carries into its top bit.
  return (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
}

// Codes of 16 rows, a dword a row per 4 columns. `before` bytes precede the words of every `block` columns.
bool pack_codes(const Source& source, long tile, int depth, int block, size_t before, uint8_t* out) {
  bool finite = true;
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* row = source_row(source, tile * kTileRows + r, static_cast<size_t>(source.columns));
    uint8_t* to = out + r * 4;
    for (int k = 0; k < depth; k += 4, to += 64) {
      if (k % block == 0) to += before;
      uint32_t codes = 0;
      if (row && k < source.columns)
        std::memcpy(&codes, row + k, k + 4 <= source.columns ? 4 : static_cast<size_t>(source.columns - k));
      finite &= !has_nan(codes);
      std::memcpy(to, &codes, 4);
    }
  }
  return finite;
}

// Kernels multiply scales of f32 by 2^60 on the way; NaN compares false.
constexpr float kScaleLimit = 0x1p60f;
bool is_scale(float scale) { return std::fabs(scale) <= kScaleLimit; }

bool all_scales(const float* scales, long count) { return std::all_of(scales, scales + count, is_scale); }

// What is wrong with a scale of f32.
std::string fault_of(float scale) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(scale));
  return std::isfinite(scale) ? std::string(" is ") + text +
                                    ", more than kernels can multiply (2^60); the checkpoint is damaged"
                              : " is not finite; the checkpoint is damaged";
}

bool pack_fp8_block128(const Source& source, long tile, int depth, uint8_t* out) {
  const long blocks = (source.columns + kScaleBlock - 1) / kScaleBlock;
  const size_t header = round_up(static_cast<size_t>((depth + kScaleBlock - 1) / kScaleBlock) * 4, 64);
  std::memset(out, 0, header);
  const float* scales = static_cast<const float*>(source.scale) + tile * kTileRows / kScaleBlock * blocks;
  std::memcpy(out, scales, static_cast<size_t>(blocks) * 4);
  return pack_codes(source, tile, depth, depth, 0, out + header) && all_scales(scales, blocks);
}

bool pack_fp8_channel(const Source& source, long tile, int depth, uint8_t* out) {
  const long present = std::min<long>(kTileRows, source.rows - tile * kTileRows);
  const float* scales = static_cast<const float*>(source.scale) + tile * kTileRows;
  std::memset(out, 0, 64);
  std::memcpy(out, scales, static_cast<size_t>(present) * 4);
  return pack_codes(source, tile, depth, depth, 0, out + 64) && all_scales(scales, present);
}

// 2^(e - 127): 255 is not a number, and beyond 2^60 nothing is a weight (kernels multiply by 2^60 on the
// way).
constexpr uint8_t kLargestExponent = 127 + 60;

bool pack_mxfp8(const Source& source, long tile, int depth, uint8_t* out) {
  const long blocks = source.columns / kQuantBlock;
  const auto* scales = static_cast<const uint8_t*>(source.scale);
  bool finite = pack_codes(source, tile, depth, kQuantBlock, kTileRows, out);
  for (int r = 0; r < kTileRows; ++r) {
    const long row = tile * kTileRows + r;
    for (long b = 0; b < blocks; ++b) {
      const uint8_t exponent = row < source.rows ? scales[row * blocks + b] : 0;
      finite &= exponent <= kLargestExponent;
      out[static_cast<size_t>(b) * (kTileRows + kQuantBlock * kTileRows) + static_cast<size_t>(r)] = exponent;
    }
  }
  return finite;
}

std::string describe_code(const Source& source) {
  for (long i = 0; i < source.rows * source.columns; ++i)
    if ((source.data[i] & 0x7f) == 0x7f)
      return "FP8 weight at row " + std::to_string(i / source.columns) + ", column " +
             std::to_string(i % source.columns) + " is not a number; the checkpoint is damaged";
  return "FP8 weights hold no NaN";
}

std::string describe_fp8_block128(const Source& source) {
  const auto* scales = static_cast<const float*>(source.scale);
  const long across = (source.columns + kScaleBlock - 1) / kScaleBlock;
  const long count = (source.rows + kScaleBlock - 1) / kScaleBlock * across;
  for (long i = 0; i < count; ++i)
    if (!is_scale(scales[i]))
      return "FP8 block scale at block row " + std::to_string(i / across) + ", block column " +
             std::to_string(i % across) + fault_of(scales[i]);
  return describe_code(source);
}

std::string describe_fp8_channel(const Source& source) {
  const auto* scales = static_cast<const float*>(source.scale);
  for (long row = 0; row < source.rows; ++row)
    if (!is_scale(scales[row])) return "FP8 scale of row " + std::to_string(row) + fault_of(scales[row]);
  return describe_code(source);
}

std::string describe_mxfp8(const Source& source) {
  const long blocks = source.columns / kQuantBlock;
  for (long i = 0; i < source.rows * blocks; ++i) {
    const int exponent = static_cast<const uint8_t*>(source.scale)[i];
    if (exponent > kLargestExponent)
      return "MXFP8 scale at row " + std::to_string(i / blocks) + ", block " + std::to_string(i % blocks) +
             " is 2^" + std::to_string(exponent - 127) + ", no weight is so large; the checkpoint is damaged";
  }
  return describe_code(source);
}

size_t row_bytes_1(long columns) { return static_cast<size_t>(columns); }
size_t row_bytes_2(long columns) { return static_cast<size_t>(columns) * 2; }
size_t row_bytes_4(long columns) { return static_cast<size_t>(columns) * 4; }
size_t tile_bytes_f32(int depth) { return static_cast<size_t>(depth) * 64; }
size_t tile_bytes_bf16(int depth) { return static_cast<size_t>(depth) * 32; }
size_t tile_bytes_fp8_block128(int depth) {
  const auto count = static_cast<size_t>(depth);
  return round_up((count + kScaleBlock - 1) / kScaleBlock * 4, 64) + count * kTileRows;
}
size_t tile_bytes_fp8_channel(int depth) { return 64 + static_cast<size_t>(depth) * kTileRows; }
size_t tile_bytes_mxfp8(int depth) {
  return static_cast<size_t>(depth / kQuantBlock) * (kTileRows + kQuantBlock * kTileRows);
}

}  // namespace

const Storage* float_storage(Format format) {
  static constexpr Storage kTable[] = {
      {kF32, 1, 4, row_bytes_4, tile_bytes_f32, {}, pack_f32, nullptr},
      {kBf16, 1, 4, row_bytes_2, tile_bytes_bf16, {}, pack_bf16, nullptr},
      {kFp8Block128,
       1,
       4,
       row_bytes_1,
       tile_bytes_fp8_block128,
       {kScaleF32, kScaleBlock, kScaleBlock, false},
       pack_fp8_block128,
       describe_fp8_block128},
      {kFp8Channel,
       1,
       4,
       row_bytes_1,
       tile_bytes_fp8_channel,
       {kScaleF32, 1, 0, false},
       pack_fp8_channel,
       describe_fp8_channel},
      {kMxfp8,
       kQuantBlock,
       kQuantBlock,
       row_bytes_1,
       tile_bytes_mxfp8,
       {kScaleU8, 1, kQuantBlock, false},
       pack_mxfp8,
       describe_mxfp8},
  };
  for (const Storage& row : kTable)
    if (row.format == format) return &row;
  return nullptr;
}

const Storage& storage(Format format) {
  const Storage* found = float_storage(format);
  if (!found) found = int_storage(format);
  if (!found)
    throw std::invalid_argument(std::string("weights in format ") + format_name(format) +
                                " are not supported");
  return *found;
}

Format format_from_name(const std::string& name) {
  for (int i = 0; i < kFormats; ++i)
    if (name == kNames[i]) return static_cast<Format>(i);
  std::string known;
  for (const char* other : kNames) known += (known.empty() ? "" : ", ") + std::string(other);
  throw std::invalid_argument("unknown weight format '" + name + "'; known are " + known);
}

const char* format_name(Format format) { return kNames[format]; }

size_t source_row_bytes(Format format, long columns) {
  const Storage& row = storage(format);
  if (!row.source_row_bytes)
    throw std::invalid_argument(std::string("no checkpoint holds ") + format_name(format) +
                                "; it is made at load from a format of floating-point numbers");
  if (columns % row.source_align != 0)
    throw std::invalid_argument(std::string(format_name(format)) + " rows consist of blocks of " +
                                std::to_string(row.source_align) + " columns, but there are " +
                                std::to_string(columns) + " columns");
  return row.source_row_bytes(columns);
}

int padded_depth(Format format, long columns) {
  const long align = storage(format).depth_align;
  return static_cast<int>((columns + align - 1) / align * align);
}

long tile_count(long rows) { return (rows + kTileRows - 1) / kTileRows; }

size_t tile_bytes(Format format, int depth) { return storage(format).tile_bytes(depth); }

size_t activation_bytes(Activation activation, int depth) {
  const auto count = static_cast<size_t>(depth);
  switch (activation) {
    case kActF32:
    case kActF32Raised:
      return round_up(count * 4, 64);
    case kActBf16:
      return round_up(count * 2, 64);
    default:
      return round_up(count * (activation == kActInt16 ? 2 : 1) + count / kQuantBlock * 16, 64);
  }
}

int sweep_rows(const PanelKernels& panel, int depth) {
  constexpr int kMostRows = 480;
  if (!panel.rows) return 0;
  size_t blocks = static_cast<size_t>(kMostRows / panel.rows);
  if (panel.sweep_bytes) blocks = std::clamp<size_t>(panel.sweep_bytes / panel.block_bytes(depth), 1, blocks);
  return static_cast<int>(blocks) * panel.rows;
}

long panel_blocks(const PanelKernels& panel, long rows) { return (rows + panel.rows - 1) / panel.rows; }

bool pack_tile(const Source& source, long tile, uint8_t* out) {
  if (source.stored != source.format) return quantise_tile(source, tile, out);
  return storage(source.format).pack(source, tile, padded_depth(source.format, source.columns), out);
}

std::string describe_fault(const Source& source) {
  if (source.stored != source.format) return describe_quantisation(source);
  const Storage& row = storage(source.format);
  return row.describe ? row.describe(source)
                      : std::string("a ") + format_name(source.format) + " weight is not a finite number";
}

}  // namespace kt
