// AMX: tiles of bf16 for the panels of formats of floating-point numbers.
#if !defined(__AMX_TILE__) || !defined(__AMX_BF16__) || !defined(__AMX_INT8__)
#error "this file is compiled with -mamx-tile -mamx-bf16 -mamx-int8"
#endif

#include "rows_avx512.inl"

#include "amx_panel.inl"

namespace kt {
namespace {

constexpr int kPrefetchAhead = 4096;

float copy_pairs(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  const uint8_t* from = tile + static_cast<size_t>(begin) * 32;
  for (int step = 0; step < (end - begin) / 2; ++step, from += 64, panel += kTileRows) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + kPrefetchAhead, _MM_HINT_T0);
    _mm512_storeu_si512(panel, _mm512_loadu_si512(from));
  }
  return 1.0f;
}

// Multiply-adds of tiles only, four sums apart.
double tile_bf16(long iterations) {
  configure_tiles(kTileRows);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (long n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2.0 * kTileRows * kTileRows * kTileDepth * static_cast<double>(iterations);
}

}  // namespace

void install_amx(Kernels& table) {
  table.name = "amx";
  for (int mode = 0; mode < kModes; ++mode) table.formats[kBf16][mode].panel = TilePanel<Converted<copy_pairs>>::kernels();
  table.fma_bf16 = tile_bf16;
}

}  // namespace kt
