// AMX: tiles of bf16 for the panels of formats of integers, in both modes.
//
// Tiles of bytes multiply at twice the rate, but the sums of formats with scales for 16 to 256 columns would
// have to leave the tiles after every one or two instructions.
#if !defined(__AMX_TILE__) || !defined(__AMX_BF16__) || !defined(__AMX_INT8__)
#error "this file is compiled with -mamx-tile -mamx-bf16 -mamx-int8"
#endif
#define KT_VNNI

#include "rows_avx512.inl"

#include "int_rows_avx512.inl"

#include "kernels_int.inl"

#include "int_pairs.inl"

#include "amx_panel.inl"

namespace kt {
namespace {

template <typename Tile>
struct IntWeights {
  static constexpr int kSourceBytes = Tile::kBlockBytes, kSliceTiles = 12;
  const uint8_t* tile;
  IntWeights(const uint8_t* from, int) : tile(from) {}
  const uint8_t* source(int begin) const {
    const uint8_t* header;
    return block_of<Tile>(tile, begin / kQuantBlock, header);
  }
  void convert(int begin, int end, uint32_t* panel) { convert_int_pairs<Tile>(tile, 0, begin, end, panel); }
  void finish(float*, int) {}
};

}  // namespace

void install_amx_int(Kernels& table) {
  for_int_formats([&]<typename Tile>(Format format) {
    const PanelKernels panel = TilePanel<IntWeights<Tile>>::kernels();
    for (int mode = 0; mode < kModes; ++mode) table.formats[format][mode].panel = panel;
  });
}

}  // namespace kt
