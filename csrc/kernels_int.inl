// The kernels of formats that hold integers, written once over a vector of one tile's 16 rows: the including
// file includes rows_*.inl and int_rows_*.inl of one instruction set before.
#include "int_formats.inl"
#include "int_gemv.inl"
#include "int_panel.inl"
#include "panel_f32.inl"

namespace kt {
namespace {

template <typename Tile, int I>
void convert_word(Words words, Rows factor, Rows minimum, float* panel) {
  const Rows weight = value<I, Tile::kPeak == 0>(words);
  store_rows(panel + I * kTileRows, multiply_add(weight, factor, minimum));
  if constexpr (I < 3) convert_word<Tile, I + 1>(words, factor, minimum, panel);
}

template <typename Tile>
float convert_int(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  float* to = reinterpret_cast<float*>(panel);
  for (int b = begin / kQuantBlock; b < end / kQuantBlock; ++b) {
    const uint8_t* header;
    const uint8_t* block = block_of<Tile>(tile, b, header);
    const typename Tile::Group group = Tile::group(header);
    KT_UNROLL
    for (int half = 0; half < Tile::kHalves; ++half) {
      const Rows factor = Tile::factor(group, block, half);
      const Rows minimum = Tile::minimum(group, block, half, factor);
      KT_UNROLL
      for (int i = 0; i < 8 / Tile::kHalves; ++i, to += 4 * kTileRows)
        convert_word<Tile, 0>(Tile::word(block, half * 4 + i), factor, minimum, to);
    }
  }
  return 1.0f;
}

template <typename Tile>
void install_fast(Kernels& table, Format format) {
  table.formats[format][kFast] = {kActInt8, gemv_int<Tile, 1>, kFastGemvRows, panel_int8<Tile>()};
}

template <typename Tile>
void install_both(Kernels& table, Format format) {
  install_fast<Tile>(table, format);
  table.formats[format][kExact] = {kActInt16, gemv_int<Tile, 2>, kExactGemvRows,
                                   panel_f32<kActF32, convert_int<Tile>>()};
}

[[maybe_unused]] void install_int_formats(Kernels& table) {
  install_both<Q4_0>(table, kQ4_0);
  install_both<Q4_1>(table, kQ4_1);
  install_both<Q8_0>(table, kQ8_0);
  install_both<Q4K>(table, kQ4K);
  install_both<Q5K>(table, kQ5K);
  install_both<Q6K>(table, kQ6K);
  install_both<Int8>(table, kInt8);
  install_both<Int4>(table, kInt4);
  install_both<Int4G32>(table, kInt4G32);
  install_both<Int4G128>(table, kInt4G128);
  install_both<Mxfp4>(table, kMxfp4);
}

}  // namespace
}  // namespace kt
