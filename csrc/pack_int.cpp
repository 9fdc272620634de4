// Packing of the formats that hold integers.
#include <cstring>

#include "pack.h"

namespace kt {
namespace {

// GGUF blocks: kHalves f16 values, then kGroups groups of 4 bytes. Both are transposed to 16 rows.
template <int kHalves, int kGroups>
bool pack_transposed(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kBlock = kHalves * 2 + kGroups * 4;
  const long blocks = source.columns / kQuantBlock;
  const long rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kBlock * kTileRows * static_cast<size_t>(depth / kQuantBlock));
  uint32_t faulty = 0;
  for (long b = 0; b < blocks; ++b, out += kBlock * kTileRows)
    for (long r = 0; r < rows; ++r) {
      const uint8_t* from = source.data + static_cast<size_t>((tile * kTileRows + r) * blocks + b) * kBlock;
      for (int h = 0; h < kHalves; ++h) {
        uint16_t half;
        std::memcpy(&half, from + h * 2, 2);
        faulty |= (half & 0x7c00u) == 0x7c00u;
        std::memcpy(out + h * 2 * kTileRows + r * 2, &half, 2);
      }
      for (int g = 0; g < kGroups; ++g)
        std::memcpy(out + kHalves * 2 * kTileRows + g * 4 * kTileRows + r * 4, from + kHalves * 2 + g * 4, 4);
    }
  return !faulty;
}

// Sixteen bytes with low nibbles for columns 0-15 and high ones for 16-31 of a block, row r of 4 words.
void put_nibbles(const uint8_t* bytes, long r, uint8_t* words) {
  for (int j = 0; j < 4; ++j) std::memcpy(words + j * 64 + r * 4, bytes + j * 4, 4);
}

// The same from neighbouring columns in one byte, the first in the low nibble.
void put_neighbours(const uint8_t* bytes, long r, uint8_t* words) {
  uint8_t split[16];
  for (int i = 0; i < 8; ++i) {
    split[2 * i] = static_cast<uint8_t>((bytes[i] & 15) | (bytes[8 + i] << 4));
    split[2 * i + 1] = static_cast<uint8_t>((bytes[i] >> 4) | (bytes[8 + i] & 0xf0));
  }
  put_nibbles(split, r, words);
}

// compressed-tensors: [rows][columns / 8] dwords, bf16 scales [rows][columns / 32].
bool pack_int4_g32(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kBlock = 288;
  const long blocks = source.columns / kQuantBlock, rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kBlock * static_cast<size_t>(depth / kQuantBlock));
  const auto* scales = static_cast<const uint16_t*>(source.scale);
  uint32_t faulty = 0;
  for (long b = 0; b < blocks; ++b, out += kBlock)
    for (long r = 0; r < rows; ++r) {
      const size_t at = static_cast<size_t>((tile * kTileRows + r) * blocks + b);
      faulty |= (scales[at] & 0x7f80u) == 0x7f80u;
      std::memcpy(out + r * 2, scales + at, 2);
      put_neighbours(source.data + at * 16, r, out + 32);
    }
  return !faulty;
}

// GPTQ: [columns / 8][rows] dwords, f16 scales [columns / 128][rows].
bool pack_int4_g128(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kGroup = 32 + 4 * 256;
  const long groups = source.columns / 128, rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kGroup * static_cast<size_t>(depth / 128));
  const auto* scales = static_cast<const uint16_t*>(source.scale);
  uint32_t faulty = 0;
  for (long g = 0; g < groups; ++g, out += kGroup)
    for (long r = 0; r < rows; ++r) {
      const long row = tile * kTileRows + r;
      const uint16_t scale = scales[g * source.rows + row];
      faulty |= (scale & 0x7c00u) == 0x7c00u;
      std::memcpy(out + r * 2, &scale, 2);
      for (long b = 0; b < 4; ++b) {
        uint8_t bytes[16];
        for (long w = 0; w < 4; ++w)
          std::memcpy(bytes + w * 4,
                      source.data + static_cast<size_t>(((g * 4 + b) * 4 + w) * source.rows + row) * 4, 4);
        put_neighbours(bytes, r, out + 32 + b * 256);
      }
    }
  return !faulty;
}

// 2^(e - 127): 255 is not a number, and beyond 2^60 nothing is a weight.
constexpr uint8_t kLargestExponent = 127 + 60;

bool pack_mxfp4(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kBlock = 272;
  const long blocks = source.columns / kQuantBlock, rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kBlock * static_cast<size_t>(depth / kQuantBlock));
  const auto* scales = static_cast<const uint8_t*>(source.scale);
  bool finite = true;
  for (long b = 0; b < blocks; ++b, out += kBlock)
    for (long r = 0; r < rows; ++r) {
      const size_t at = static_cast<size_t>((tile * kTileRows + r) * blocks + b);
      finite &= scales[at] <= kLargestExponent;
      out[r] = scales[at];
      put_neighbours(source.data + at * 16, r, out + 16);
    }
  return finite;
}

bool f16_is_finite(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return (half & 0x7c00u) != 0x7c00u;
}

// Scale and minimum of sub-block j of 8, 6 bits each, out of 12 bytes (ggml's get_scale_min_k4).
void split_scales(const uint8_t* packed, int j, uint8_t& scale, uint8_t& minimum) {
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4));
    minimum = static_cast<uint8_t>((packed[j + 4] >> 4) | (packed[j] >> 6 << 4));
  }
}

// q4_K: f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles; q5_K: 32 bytes of fifth bits before the
// nibbles.
template <bool kFive>
bool pack_k45(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kFrom = kFive ? 176 : 144, kBlock = (kFive ? 96 : 32) + 256, kSuper = 64 + 8 * kBlock;
  const long supers = source.columns / 256, rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kSuper * static_cast<size_t>(depth / 256));
  bool finite = true;
  for (long s = 0; s < supers; ++s, out += kSuper)
    for (long r = 0; r < rows; ++r) {
      const uint8_t* from = source.data + static_cast<size_t>((tile * kTileRows + r) * supers + s) * kFrom;
      finite &= f16_is_finite(from) && f16_is_finite(from + 2);
      std::memcpy(out + r * 2, from, 2);
      std::memcpy(out + 32 + r * 2, from + 2, 2);
      const uint8_t* upper = from + 16;
      for (int j = 0; j < 8; ++j) {
        uint8_t* block = out + 64 + static_cast<size_t>(j) * kBlock;
        split_scales(from + 4, j, block[r], block[16 + r]);
        const uint8_t* nibbles = from + (kFive ? 48 : 16) + j / 2 * 32;
        uint8_t bytes[16];
        for (int i = 0; i < 16; ++i)
          bytes[i] = static_cast<uint8_t>((nibbles[i] >> (j % 2 * 4) & 15) |
                                          ((nibbles[16 + i] >> (j % 2 * 4) & 15) << 4));
        put_nibbles(bytes, r, block + kBlock - 256);
        if (!kFive) continue;
        uint32_t word = 0;
        for (int w = 0; w < 4; ++w)
          for (int i = 0; i < 4; ++i) {
            word |= static_cast<uint32_t>(upper[4 * w + i] >> j & 1) << (8 * i + w);
            word |= static_cast<uint32_t>(upper[16 + 4 * w + i] >> j & 1) << (8 * i + 4 + w);
          }
        std::memcpy(block + 32 + r * 4, &word, 4);
      }
    }
  return finite;
}

// q6_K: 128 bytes of nibbles, 64 of upper bits, 16 signed scales, f16 d.
bool pack_q6_k(const Source& source, long tile, int depth, uint8_t* out) {
  constexpr size_t kFrom = 210, kBlock = 32 + 128 + 256, kSuper = 32 + 8 * kBlock;
  const long supers = source.columns / 256, rows = present_rows(source, tile);
  if (rows < kTileRows) std::memset(out, 0, kSuper * static_cast<size_t>(depth / 256));
  bool finite = true;
  for (long s = 0; s < supers; ++s, out += kSuper)
    for (long r = 0; r < rows; ++r) {
      const uint8_t* from = source.data + static_cast<size_t>((tile * kTileRows + r) * supers + s) * kFrom;
      finite &= f16_is_finite(from + 208);
      std::memcpy(out + r * 2, from + 208, 2);
      for (int j = 0; j < 8; ++j) {
        // Half h has four blocks: 0 and 1 in the low nibbles of its two rows of 32 bytes, 2 and 3 in the high
        // ones.
        const int h = j / 4, q = j % 4;
        uint8_t* block = out + 32 + static_cast<size_t>(j) * kBlock;
        block[r] = from[192 + 8 * h + 2 * q];
        block[16 + r] = from[192 + 8 * h + 2 * q + 1];
        const uint8_t* nibbles = from + 64 * h + q % 2 * 32;
        const uint8_t* upper = from + 128 + 32 * h;
        uint8_t bytes[16];
        for (int i = 0; i < 16; ++i)
          bytes[i] = static_cast<uint8_t>((nibbles[i] >> (q / 2 * 4) & 15) |
                                          ((nibbles[16 + i] >> (q / 2 * 4) & 15) << 4));
        put_nibbles(bytes, r, block + 160);
        for (int part = 0; part < 2; ++part) {
          uint32_t word = 0;
          for (int w = 0; w < 4; ++w)
            for (int i = 0; i < 4; ++i)
              word |= static_cast<uint32_t>(upper[16 * part + 4 * w + i] >> (2 * q) & 3) << (8 * i + 2 * w);
          std::memcpy(block + 32 + 64 * part + r * 4, &word, 4);
        }
      }
    }
  return finite;
}

// The first block of kBlock bytes for kColumns columns whose scale (of two bytes, at kAt, and perhaps a
// second one behind it) is not finite.
template <int kBlock, int kColumns, int kAt, int kScales>
std::string describe_blocks(const Source& source) {
  const long blocks = source.columns / kColumns;
  for (long i = 0; i < source.rows * blocks; ++i)
    for (int s = 0; s < kScales; ++s)
      if (!f16_is_finite(source.data + static_cast<size_t>(i) * kBlock + kAt + s * 2))
        return std::string(format_name(source.format)) + " scale at row " + std::to_string(i / blocks) +
               ", block " + std::to_string(i % blocks) + " is not finite; the checkpoint is damaged";
  return "all scales are finite";
}

std::string describe_scale(const Source& source, long row, long block) {
  return std::string(format_name(source.format)) + " scale at row " + std::to_string(row) + ", block " +
         std::to_string(block) + " is no number that a weight has; the checkpoint is damaged";
}

std::string describe_int4_g32(const Source& source) {
  const long blocks = source.columns / kQuantBlock;
  for (long i = 0; i < source.rows * blocks; ++i)
    if ((static_cast<const uint16_t*>(source.scale)[i] & 0x7f80u) == 0x7f80u)
      return describe_scale(source, i / blocks, i % blocks);
  return "all scales are finite";
}

std::string describe_int4_g128(const Source& source) {
  for (long i = 0; i < source.rows * (source.columns / 128); ++i)
    if ((static_cast<const uint16_t*>(source.scale)[i] & 0x7c00u) == 0x7c00u)
      return describe_scale(source, i % source.rows, i / source.rows);
  return "all scales are finite";
}

std::string describe_mxfp4(const Source& source) {
  const long blocks = source.columns / kQuantBlock;
  for (long i = 0; i < source.rows * blocks; ++i)
    if (static_cast<const uint8_t*>(source.scale)[i] > kLargestExponent)
      return describe_scale(source, i / blocks, i % blocks);
  return "all scales are finite";
}

template <int kBlock, int kColumns>
size_t block_row_bytes(long columns) {
  return static_cast<size_t>(columns / kColumns) * kBlock;
}

template <int kHeader, int kBlock, int kColumns>
size_t block_tile_bytes(int depth) {
  return kHeader + static_cast<size_t>(depth / kColumns) * kBlock;
}

}  // namespace

const Storage* int_storage(Format format) {
  static constexpr Storage kTable[] = {
      {kInt8, 1, 32, nullptr, block_tile_bytes<64, 512, 32>, {}, nullptr, nullptr},
      {kInt4, 1, 32, nullptr, block_tile_bytes<64, 256, 32>, {}, nullptr, nullptr},
      {kInt4G32,
       32,
       32,
       block_row_bytes<16, 32>,
       block_tile_bytes<0, 288, 32>,
       {kScaleU16, 1, 32, false},
       pack_int4_g32,
       describe_int4_g32},
      {kInt4G128,
       128,
       128,
       block_row_bytes<64, 128>,
       block_tile_bytes<0, 32 + 1024, 128>,
       {kScaleU16, 1, 128, true},
       pack_int4_g128,
       describe_int4_g128},
      {kMxfp4,
       32,
       32,
       block_row_bytes<16, 32>,
       block_tile_bytes<0, 272, 32>,
       {kScaleU8, 1, 32, false},
       pack_mxfp4,
       describe_mxfp4},
      {kQ4_0,
       32,
       32,
       block_row_bytes<18, 32>,
       block_tile_bytes<0, 288, 32>,
       {},
       pack_transposed<1, 4>,
       describe_blocks<18, 32, 0, 1>},
      {kQ4_1,
       32,
       32,
       block_row_bytes<20, 32>,
       block_tile_bytes<0, 320, 32>,
       {},
       pack_transposed<2, 4>,
       describe_blocks<20, 32, 0, 2>},
      {kQ8_0,
       32,
       32,
       block_row_bytes<34, 32>,
       block_tile_bytes<0, 544, 32>,
       {},
       pack_transposed<1, 8>,
       describe_blocks<34, 32, 0, 1>},
      {kQ4K,
       256,
       256,
       block_row_bytes<144, 256>,
       block_tile_bytes<0, 64 + 8 * 288, 256>,
       {},
       pack_k45<false>,
       describe_blocks<144, 256, 0, 2>},
      {kQ5K,
       256,
       256,
       block_row_bytes<176, 256>,
       block_tile_bytes<0, 64 + 8 * 352, 256>,
       {},
       pack_k45<true>,
       describe_blocks<176, 256, 0, 2>},
      {kQ6K,
       256,
       256,
       block_row_bytes<210, 256>,
       block_tile_bytes<0, 32 + 8 * 416, 256>,
       {},
       pack_q6_k,
       describe_blocks<210, 256, 208, 1>},
  };
  for (const Storage& row : kTable)
    if (row.format == format) return &row;
  return nullptr;
}

}  // namespace kt
