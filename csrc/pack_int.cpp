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

bool f16_is_finite(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return (half & 0x7c00u) != 0x7c00u;
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

template <int kBlock, int kColumns>
size_t block_row_bytes(long columns) {
  return static_cast<size_t>(columns / kColumns) * kBlock;
}

template <int kBlock, int kColumns>
size_t block_tile_bytes(int depth) {
  return static_cast<size_t>(depth / kColumns) * kBlock;
}

}  // namespace

const Storage* int_storage(Format format) {
  static constexpr Storage kTable[] = {
      {kQ4_1,
       32,
       32,
       block_row_bytes<20, 32>,
       block_tile_bytes<320, 32>,
       {},
       pack_transposed<2, 4>,
       describe_blocks<20, 32, 0, 2>,
       nullptr},
      {kQ8_0,
       32,
       32,
       block_row_bytes<34, 32>,
       block_tile_bytes<544, 32>,
       {},
       pack_transposed<1, 8>,
       describe_blocks<34, 32, 0, 1>,
       nullptr},
  };
  for (const Storage& row : kTable)
    if (row.format == format) return &row;
  return nullptr;
}

}  // namespace kt
