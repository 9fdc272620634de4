// Multiplication by panels of bf16 pairs on tiles (AMX). Needs rows_avx512.inl before.
//
// A tile register holds 16 rows of 64 bytes. 16 steps of a panel of pairs, [step][16 rows], are the
// right-hand tile as they are; the left-hand tile is 16 activation rows x 32 columns. Two of each make four
// tiles of sums, which stay in registers over a slice of the depth.

namespace kt {
namespace {

constexpr int kTileDepth = 32;                   // columns that one tile instruction multiplies
constexpr int kTileBytes = 1024;                 // of one tile register
constexpr int kBlockRows = 2 * kTileRows;        // activation rows of a block
constexpr size_t kSweepBytes = size_t{3} << 19;  // of a second-level cache of 2 MiB

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile instructions are opaque to the compiler, which must not move memory accesses across them.
inline __attribute__((always_inline)) void keep_order() { __asm__ volatile("" ::: "memory"); }

// Registers 0-3 hold sums, 4-5 activations and 6-7 weights. With fewer than 16 activation rows the
// instructions take as much less time.
void configure_tiles(int rows) {
  TileConfig config;
  for (int i = 0; i < 6; ++i) config.rows[i] = static_cast<uint8_t>(rows < kTileRows ? rows : kTileRows);
  // The intrinsic tells the compiler of the first bytes only.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Weights come from memory, into the second-level cache: the first one's few buffers are for activations.
void fetch_ahead(const uint8_t* from, int bytes) {
  constexpr int kWeightsAhead = 8192;
  for (int at = 0; at < bytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from) + kWeightsAhead + at, _MM_HINT_T1);
}

int depth_tiles(int depth) { return (depth + kTileDepth - 1) / kTileDepth; }

size_t tile_block_bytes(int depth) { return static_cast<size_t>(depth_tiles(depth)) * 2 * kTileBytes; }

// Rows of bf16 as [depth tile][half of the rows][16 rows][64 bytes].
void arrange_tiles(const uint8_t* const* rows, int m, int depth, uint8_t* block) {
  const __m512i zero = _mm512_setzero_si512();
  for (int i = 0; i < kBlockRows; ++i) {
    uint8_t* to = block + (i / kTileRows) * kTileBytes + (i % kTileRows) * 64;
    for (int k = 0; k < depth; k += kTileDepth, to += 2 * kTileBytes) {
      const int left = depth - k;
      const __mmask32 present = left < kTileDepth ? (1u << left) - 1u : 0xffffffffu;
      _mm512_storeu_si512(
          to, i < m ? _mm512_maskz_loadu_epi16(present, rows[i] + 2 * static_cast<size_t>(k)) : zero);
    }
  }
}

// What a format brings: `Weights` is made from a packed tile and writes columns [begin, end) of it, a tile of
// depth, as a panel of pairs; source(begin) is where they lie in kSourceBytes bytes; kSliceTiles tiles of
// depth are multiplied while the sums stay in registers, which is more the longer a conversion takes;
// finish() is applied to the finished sums.
template <typename Weights>
struct TilePanel {
  static constexpr int kSliceTiles = Weights::kSliceTiles;
  static constexpr int kSliceBytes = kSliceTiles * kTileBytes;

  // Writes one tile of depth of one of the matrices, with zeros behind the end.
  static void convert(Weights& weights, int depth, int index, uint8_t* to) {
    const int begin = index * kTileDepth;
    const int end = depth - begin < kTileDepth ? depth : begin + kTileDepth;
    weights.convert(begin, end, reinterpret_cast<uint32_t*>(to));
    if (end - begin < kTileDepth)
      memset(to + (end - begin) * 32, 0, static_cast<size_t>(kTileDepth - (end - begin)) * 32);
  }

  // One slice of up to kSliceTiles for one block; next(t) is called when weights t have been used.
  template <bool kTwoHalves, bool kTwoTiles, typename Next>
  static void multiply_slice(const uint8_t* a, const uint8_t* b, int tiles, bool first, float* c0, float* c1,
                             Next next) {
    if (first) {
      _tile_zero(0);
      if (kTwoTiles) _tile_zero(1);
      if (kTwoHalves) _tile_zero(2);
      if (kTwoHalves && kTwoTiles) _tile_zero(3);
    } else {
      _tile_loadd(0, c0, 64);
      if (kTwoTiles) _tile_loadd(1, c1, 64);
      if (kTwoHalves) _tile_loadd(2, c0 + 256, 64);
      if (kTwoHalves && kTwoTiles) _tile_loadd(3, c1 + 256, 64);
    }
    for (int t = 0; t < tiles; ++t, a += 2 * kTileBytes, b += kTileBytes) {
      // Activations come from the second-level cache and are not to displace the weights in the first.
      _tile_loadd(6, b, 64);
      _tile_stream_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (kTwoHalves) {
        _tile_stream_loadd(5, a + kTileBytes, 64);
        _tile_dpbf16ps(2, 5, 6);
      }
      if (kTwoTiles) {
        _tile_loadd(7, b + kSliceBytes, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (kTwoHalves) _tile_dpbf16ps(3, 5, 7);
      }
      keep_order();
      next(t);
      keep_order();
    }
    _tile_stored(0, c0, 64);
    if (kTwoTiles) _tile_stored(1, c1, 64);
    if (kTwoHalves) _tile_stored(2, c0 + 256, 64);
    if (kTwoHalves && kTwoTiles) _tile_stored(3, c1 + 256, 64);
    keep_order();
  }

  template <bool kTwoTiles>
  static void run(const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks, int rows,
                  uint8_t* scratch, float* c0, float* c1) {
    Weights weights0(tile0, depth), weights1(kTwoTiles ? tile1 : tile0, depth);
    const int tiles = depth_tiles(depth);
    const size_t block_bytes = tile_block_bytes(depth);
    const auto convert_both = [&](int index, int place) __attribute__((always_inline)) {
      convert(weights0, depth, index, scratch + place * kTileBytes);
      if (kTwoTiles) convert(weights1, depth, index, scratch + kSliceBytes + place * kTileBytes);
    };
    for (int t = 0; t < tiles && t < kSliceTiles; ++t) convert_both(t, t);
    configure_tiles(rows);
    for (int begin = 0; begin < tiles; begin += kSliceTiles) {
      const int count = tiles - begin < kSliceTiles ? tiles - begin : kSliceTiles;
      const int following = begin + kSliceTiles;
      const int after = tiles - following < kSliceTiles ? tiles - following : kSliceTiles;
      // Requests to memory are spread evenly over the slice.
      const int steps = count * ((rows + kBlockRows - 1) / kBlockRows);
      int fetched = 0, due = 0;
      for (int row = 0; row < rows; row += kBlockRows) {
        const uint8_t* a = blocks + static_cast<size_t>(row / kBlockRows) * block_bytes +
                           static_cast<size_t>(begin) * 2 * kTileBytes;
        float* to0 = c0 + static_cast<size_t>(row) * kTileRows;
        float* to1 = kTwoTiles ? c1 + static_cast<size_t>(row) * kTileRows : nullptr;
        const bool last = row + kBlockRows >= rows;
        // The last block is the last to use a tile of weights: the next slice's takes its place, converted in
        // the shadow of the tile instructions. A second buffer would push activations and sums out of the
        // cache.
        const auto next = [&](int t) __attribute__((always_inline)) {
          for (due += count; due >= steps; due -= steps, ++fetched) {
            fetch_ahead(weights0.source((begin + fetched) * kTileDepth), Weights::kSourceBytes);
            if (kTwoTiles)
              fetch_ahead(weights1.source((begin + fetched) * kTileDepth), Weights::kSourceBytes);
          }
          if (last && t < after) convert_both(following + t, t);
        };
        if (rows - row > kTileRows)
          multiply_slice<true, kTwoTiles>(a, scratch, count, begin == 0, to0, to1, next);
        else
          multiply_slice<false, kTwoTiles>(a, scratch, count, begin == 0, to0, to1, next);
      }
    }
    // Tiles that are in use would have to be saved at every context switch.
    _tile_release();
    weights0.finish(c0, rows);
    if (kTwoTiles) weights1.finish(c1, rows);
  }

  static size_t scratch_bytes(int) { return size_t{2} * kSliceBytes; }

  static void multiply(const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks, int rows,
                       uint8_t* scratch, float* c0, float* c1) {
    if (tile1)
      run<true>(tile0, tile1, depth, blocks, rows, scratch, c0, c1);
    else
      run<false>(tile0, tile1, depth, blocks, rows, scratch, c0, c1);
  }

  static constexpr PanelKernels kernels() {
    return {kActBf16, kBlockRows, tile_block_bytes, arrange_tiles, scratch_bytes, multiply, kSweepBytes};
  }
};

}  // namespace
}  // namespace kt
