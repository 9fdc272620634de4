#include "pack.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace kt {
namespace {

constexpr const char* kNames[kFormats] = {"f32",  "bf16", "fp8_block128", "fp8_channel", "mxfp8", "mxfp4",
                                          "int8", "int4", "int4_g32",     "int4_g128",   "q4_0",  "q4_1",
                                          "q8_0", "q4_k", "q5_k",         "q6_k"};

size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

// Bytes of the source row `row` at column k, or null beyond the last row.
const uint8_t* source_row(const Source& source, long row, size_t row_bytes) {
  return row < source.rows ? source.data + static_cast<size_t>(row) * row_bytes : nullptr;
}

void pack_f32(const Source& source, long tile, int depth, uint8_t* out) {
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
}

void pack_bf16(const Source& source, long tile, int depth, uint8_t* out) {
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
}

bool has_nan(uint32_t codes) {
  // A byte of codes & 0x7f is 0x7f exactly when adding one carries into its top bit.
  return (((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) != 0;
}

bool pack_fp8(const Source& source, long tile, int depth, uint8_t* out) {
  static constexpr int kLane[4] = {0, 2, 1, 3};
  const long blocks = (source.columns + kScaleBlock - 1) / kScaleBlock;
  const size_t header = round_up(static_cast<size_t>((depth + kScaleBlock - 1) / kScaleBlock) * 4, 64);
  std::memset(out, 0, header);
  std::memcpy(out, source.scale + tile * kTileRows / kScaleBlock * blocks, static_cast<size_t>(blocks) * 4);
  bool finite = true;
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* row = source_row(source, tile * kTileRows + r, static_cast<size_t>(source.columns));
    uint8_t* to = out + header + kLane[r / 4] * 16 + (r % 4) * 2;
    for (int k = 0; k < depth; k += 4, to += 64) {
      uint32_t codes = 0;
      if (row)
        std::memcpy(&codes, row + k, k + 4 <= source.columns ? 4 : static_cast<size_t>(source.columns - k));
      finite &= !has_nan(codes);
      const uint16_t low = static_cast<uint16_t>(codes), high = static_cast<uint16_t>(codes >> 16);
      std::memcpy(to, &low, 2);
      std::memcpy(to + 8, &high, 2);
    }
  }
  return finite;
}

// GGUF blocks: `head` bytes of f16 values, then groups of 4 bytes. Both are transposed to 16 rows.
void pack_quantised(const Source& source, long tile, int halves, int groups, uint8_t* out) {
  const size_t block_bytes = static_cast<size_t>(halves) * 2 + static_cast<size_t>(groups) * 4;
  const size_t packed_bytes = block_bytes * kTileRows;
  const long blocks = source.columns / kQuantBlock;
  for (int r = 0; r < kTileRows; ++r) {
    const uint8_t* row = source_row(source, tile * kTileRows + r, static_cast<size_t>(blocks) * block_bytes);
    for (long b = 0; b < blocks; ++b) {
      uint8_t* to = out + static_cast<size_t>(b) * packed_bytes;
      const uint8_t* from = row ? row + static_cast<size_t>(b) * block_bytes : nullptr;
      for (int h = 0; h < halves; ++h, to += 2 * kTileRows) {
        if (from)
          std::memcpy(to + r * 2, from + h * 2, 2);
        else
          std::memset(to + r * 2, 0, 2);
      }
      for (int g = 0; g < groups; ++g, to += 4 * kTileRows) {
        if (from)
          std::memcpy(to + r * 4, from + halves * 2 + g * 4, 4);
        else
          std::memset(to + r * 4, 0, 4);
      }
    }
  }
}

}  // namespace

Format format_from_name(const std::string& name) {
  for (int i = 0; i < kFormats; ++i)
    if (name == kNames[i]) return static_cast<Format>(i);
  std::string known;
  for (const char* other : kNames) known += (known.empty() ? "" : ", ") + std::string(other);
  throw std::invalid_argument("unknown weight format '" + name + "'; known are " + known);
}

const char* format_name(Format format) { return kNames[format]; }

size_t source_row_bytes(Format format, long columns) {
  const auto count = static_cast<size_t>(columns);
  const bool blocks = format == kQ4_1 || format == kQ8_0;
  if (blocks && columns % kQuantBlock != 0)
    throw std::invalid_argument(std::string(format_name(format)) +
                                " rows consist of blocks of 32 columns, but there are " +
                                std::to_string(columns) + " columns");
  switch (format) {
    case kF32:
      return count * 4;
    case kBf16:
      return count * 2;
    case kFp8Block128:
      return count;
    case kQ4_1:
      return count / kQuantBlock * 20;
    default:
      return count / kQuantBlock * 34;
  }
}

int depth_align(Format format) { return format == kQ4_1 || format == kQ8_0 ? kQuantBlock : 4; }

int padded_depth(Format format, long columns) {
  const long align = depth_align(format);
  return static_cast<int>((columns + align - 1) / align * align);
}

long tile_count(long rows) { return (rows + kTileRows - 1) / kTileRows; }

size_t tile_bytes(Format format, int depth) {
  const auto count = static_cast<size_t>(depth);
  switch (format) {
    case kF32:
      return count * 64;
    case kBf16:
      return count * 32;
    case kFp8Block128:
      return round_up((count + kScaleBlock - 1) / kScaleBlock * 4, 64) + count * 16;
    case kQ4_1:
      return count / kQuantBlock * 320;
    default:
      return count / kQuantBlock * 544;
  }
}

size_t activation_bytes(Activation activation, int depth) {
  const auto count = static_cast<size_t>(depth);
  switch (activation) {
    case kActF32:
      return round_up(count * 4, 64);
    case kActF32Sums:
      return round_up(count * 4 + count / kQuantBlock * 4, 64);
    case kActBf16:
      return round_up(count * 2, 64);
    default:
      return round_up(count + count / kQuantBlock * 8, 64);
  }
}

int sweep_rows(const PanelKernels& panel) { return panel.rows ? 480 / panel.rows * panel.rows : 0; }

long panel_blocks(const PanelKernels& panel, long rows) { return (rows + panel.rows - 1) / panel.rows; }

bool pack_tile(const Source& source, long tile, uint8_t* out) {
  const int depth = padded_depth(source.format, source.columns);
  switch (source.format) {
    case kF32:
      pack_f32(source, tile, depth, out);
      return true;
    case kBf16:
      pack_bf16(source, tile, depth, out);
      return true;
    case kFp8Block128:
      return pack_fp8(source, tile, depth, out);
    case kQ4_1:
      pack_quantised(source, tile, 2, 4, out);
      return true;
    default:
      pack_quantised(source, tile, 1, 8, out);
      return true;
  }
}

std::string describe_nan(const Source& source) {
  for (long row = 0; row < source.rows; ++row)
    for (long k = 0; k < source.columns; ++k)
      if ((source.data[row * source.columns + k] & 0x7f) == 0x7f)
        return "FP8 weight at row " + std::to_string(row) + ", column " + std::to_string(k) +
               " is not a number; the checkpoint is damaged";
  return "FP8 weights hold no NaN";
}

void check_scales(const Source& source) {
  if (!source.scale) return;
  const long across = (source.columns + kScaleBlock - 1) / kScaleBlock;
  const long count = (source.rows + kScaleBlock - 1) / kScaleBlock * across;
  for (long i = 0; i < count; ++i)
    if (!std::isfinite(source.scale[i]))
      throw std::invalid_argument("FP8 block scale at block row " + std::to_string(i / across) +
                                  ", block column " + std::to_string(i % across) +
                                  " is not finite; the checkpoint is damaged");
}

}  // namespace kt
