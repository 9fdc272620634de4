// Many rows of int8 activations times tiles of integers: slices of the tiles become bytes with f32 factors,
// once for all rows, and stay in the first-level cache while the rows sweep over them.

namespace kt {
namespace {

constexpr int kSliceBlocks = 8;
constexpr int kSliceBlockBytes = 512 + 4 * 64;  // bytes; factors and minima, of two halves

struct SliceWords {
  static KT_INLINE Words word(const uint8_t* slice, int w) { return load_words(slice + w * 64); }
};

template <int kLargest, int kParts>
struct Slice : SliceWords {
  static constexpr int kPeak = kLargest, kHalves = kParts;
};

// Where block b of a tile lies, and the header that belongs to it.
template <typename Tile>
const uint8_t* block_of(const uint8_t* tile, int b, const uint8_t*& header) {
  constexpr size_t kGroupBytes = Tile::kHeader + static_cast<size_t>(Tile::kBlocks) * Tile::kBlockBytes;
  const int group = Tile::kBlocks ? b / Tile::kBlocks : 0;
  header = tile + static_cast<size_t>(group) * kGroupBytes;
  return header + Tile::kHeader + static_cast<size_t>(b - group * Tile::kBlocks) * Tile::kBlockBytes;
}

template <typename Tile>
void slice(const uint8_t* tile, int first, int count, uint8_t* to) {
  for (int b = first; b < first + count; ++b, to += kSliceBlockBytes) {
    const uint8_t* header;
    const uint8_t* block = block_of<Tile>(tile, b, header);
    const typename Tile::Group group = Tile::group(header);
    KT_UNROLL
    for (int w = 0; w < 8; ++w) store_words(to + w * 64, Tile::word(block, w));
    float* factors = reinterpret_cast<float*>(to + 512);
    KT_UNROLL
    for (int half = 0; half < Tile::kHalves; ++half) {
      const Rows factor = Tile::factor(group, block, half);
      store_rows(factors + half * 32, factor);
      store_rows(factors + half * 32 + 16, Tile::minimum(group, block, half, factor));
    }
  }
}

// A block of rows holds, per 32 columns, 8 words of four columns of each row, the scales of the rows, and
// their sums or those of either half.
template <int kHalves>
constexpr size_t arranged_bytes() {
  return static_cast<size_t>(kIntPanelRows) * (32 + 4 + 4 * kHalves);
}

template <int kHalves>
size_t int_block_bytes(int depth) {
  return (static_cast<size_t>(depth / kQuantBlock) * arranged_bytes<kHalves>() + 63) / 64 * 64;
}

template <int kHalves>
void int_arrange(const uint8_t* const* rows, int m, int depth, uint8_t* block) {
  for (int b = 0; b < depth / kQuantBlock; ++b, block += arranged_bytes<kHalves>())
    for (int i = 0; i < kIntPanelRows; ++i) {
      uint32_t words[8] = {};
      float numbers[3] = {};
      if (i < m) {
        const Side from = side(rows[i], 1, depth);
        memcpy(words, rows[i] + static_cast<size_t>(b) * kQuantBlock, sizeof words);
        numbers[0] = from.scales[b];
        for (int h = 0; h < kHalves; ++h)
          numbers[1 + h] = kHalves == 2 ? from.half_sums[2 * b + h] : from.sums[b];
      }
      for (int w = 0; w < 8; ++w) memcpy(block + (w * kIntPanelRows + i) * 4, words + w, 4);
      for (int n = 0; n < 1 + kHalves; ++n) memcpy(block + ((8 + n) * kIntPanelRows + i) * 4, numbers + n, 4);
    }
}

size_t int_scratch_bytes(int) { return size_t{2} * kSliceBlocks * kSliceBlockBytes; }

// Adds the products of M rows with one slice of `Width` tiles to c.
template <typename Part, int M, int Width>
void slice_rows(const uint8_t* block, const uint8_t* const (&slices)[Width], int blocks,
                float* const (&c)[Width]) {
  Rows totals[Width][M];
  KT_UNROLL
  for (int t = 0; t < Width; ++t) KT_UNROLL
  for (int m = 0; m < M; ++m) totals[t][m] = load_rows(c[t] + m * kTileRows);
  for (int b = 0; b < blocks; ++b, block += arranged_bytes<Part::kHalves>()) {
    const int8_t* x[M];
    const uint8_t* data[Width];
    KT_UNROLL
    for (int m = 0; m < M; ++m) x[m] = reinterpret_cast<const int8_t*>(block) + 4 * m;
    KT_UNROLL
    for (int t = 0; t < Width; ++t) data[t] = slices[t] + static_cast<size_t>(b) * kSliceBlockBytes;
    const float* scales = reinterpret_cast<const float*>(block) + 8 * kIntPanelRows;
    KT_UNROLL
    for (int half = 0; half < Part::kHalves; ++half) {
      Words dots[Width][M];
      if (half == 0)
        dot<Part, 4 * kIntPanelRows, 0, 8 / Part::kHalves>(data, x, dots);
      else
        dot<Part, 4 * kIntPanelRows, 4, 4>(data, x, dots);
      const float* sums = scales + (1 + half) * kIntPanelRows;
      KT_UNROLL
      for (int t = 0; t < Width; ++t) {
        const float* factors = reinterpret_cast<const float*>(data[t] + 512) + half * 32;
        const Rows factor = load_rows(factors);
        KT_UNROLL
        for (int m = 0; m < M; ++m) {
          totals[t][m] = multiply_add_scalar(multiply(to_rows(dots[t][m]), factor), scales + m, totals[t][m]);
          if (Part::kPeak)
            totals[t][m] = multiply_add_scalar(load_rows(factors + 16), sums + m, totals[t][m]);
        }
      }
    }
  }
  KT_UNROLL
  for (int t = 0; t < Width; ++t) KT_UNROLL
  for (int m = 0; m < M; ++m) store_rows(c[t] + m * kTileRows, totals[t][m]);
}

template <typename Part, int Width, int M = kIntPanelRows>
void slice_any(const uint8_t* block, const uint8_t* const (&slices)[Width], int blocks, int m,
               float* const (&c)[Width]) {
  if (m == M) {
    slice_rows<Part, M, Width>(block, slices, blocks, c);
  } else if constexpr (M > 1) {
    slice_any<Part, Width, M - 1>(block, slices, blocks, m, c);
  }
}

using SliceFn = void (*)(const uint8_t* tile, int first, int count, uint8_t* to);

template <typename Part>
void sweep(SliceFn convert, const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks,
           int rows, uint8_t* scratch, float* c0, float* c1) {
  memset(c0, 0, static_cast<size_t>(rows) * kTileRows * sizeof(float));
  if (tile1) memset(c1, 0, static_cast<size_t>(rows) * kTileRows * sizeof(float));
  const uint8_t* const slices[2] = {scratch, scratch + kSliceBlocks * kSliceBlockBytes};
  const int all = depth / kQuantBlock;
  for (int first = 0; first < all; first += kSliceBlocks) {
    const int count = all - first < kSliceBlocks ? all - first : kSliceBlocks;
    convert(tile0, first, count, scratch);
    if (tile1) convert(tile1, first, count, scratch + kSliceBlocks * kSliceBlockBytes);
    for (int row = 0; row < rows; row += kIntPanelRows) {
      const uint8_t* block =
          blocks + static_cast<size_t>(row / kIntPanelRows) * int_block_bytes<Part::kHalves>(depth) +
          static_cast<size_t>(first) * arranged_bytes<Part::kHalves>();
      const int m = rows - row < kIntPanelRows ? rows - row : kIntPanelRows;
      float* const c[2] = {c0 + static_cast<size_t>(row) * kTileRows,
                           tile1 ? c1 + static_cast<size_t>(row) * kTileRows : nullptr};
      if constexpr (kIntPanelTiles == 2)
        if (tile1) {
          slice_any<Part, 2>(block, slices, count, m, c);
          continue;
        }
      slice_any<Part, 1>(block, {slices[0]}, count, m, {c[0]});
      if (tile1) slice_any<Part, 1>(block, {slices[1]}, count, m, {c[1]});
    }
  }
}

template <typename Tile>
void int_multiply(const uint8_t* tile0, const uint8_t* tile1, int depth, const uint8_t* blocks, int rows,
                  uint8_t* scratch, float* c0, float* c1) {
  // Formats of similar bytes share the code of the sweep.
  constexpr int kPeak = Tile::kPeak > 15 && Tile::kPeak < 31 ? 31 : Tile::kPeak;
  sweep<Slice<kPeak, Tile::kHalves>>(slice<Tile>, tile0, tile1, depth, blocks, rows, scratch, c0, c1);
}

template <typename Tile>
constexpr PanelKernels panel_int8() {
  constexpr int kHalves = Tile::kHalves;
  return {kActInt8,          kIntPanelRows,     int_block_bytes<kHalves>, int_arrange<kHalves>,
          int_scratch_bytes, int_multiply<Tile>};
}

}  // namespace
}  // namespace kt
