// Few rows of int8 activations times a tile of integers.

namespace kt {
namespace {

constexpr int kAhead = 3072;  // bytes that a tile is fetched ahead

// What lies behind the integers of a prepared row.
struct Side {
  const float *scales, *sums, *half_sums;
};

KT_INLINE Side side(const uint8_t* row, int planes, int depth) {
  const int blocks = depth / kQuantBlock;
  const float* scales = reinterpret_cast<const float*>(row + static_cast<size_t>(planes) * depth);
  return {scales, scales + blocks, scales + 2 * static_cast<size_t>(blocks)};
}

// kPlanes is 1 for int8 and 2 for 16-bit activations, which are two rows of int8: 254 * first + second.
template <typename Tile, int kPlanes, int M>
struct Gemv {
  static void run(const uint8_t* tile, int depth, const uint8_t* const* rows, float* out) {
    const int blocks = depth / kQuantBlock;
    Rows totals[M];
    Side sides[M];
    const int8_t* x[M * kPlanes];
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      totals[m] = zero_rows();
      sides[m] = side(rows[m], kPlanes, depth);
      KT_UNROLL
      for (int p = 0; p < kPlanes; ++p)
        x[m * kPlanes + p] = reinterpret_cast<const int8_t*>(rows[m]) + static_cast<size_t>(p) * depth;
    }
    for (int b = 0; b < blocks;) {
      const typename Tile::Group group = Tile::group(tile);
      tile += Tile::kHeader;
      const int end = Tile::kBlocks && b + Tile::kBlocks < blocks ? b + Tile::kBlocks : blocks;
      for (; b < end; ++b, tile += Tile::kBlockBytes) {
        KT_UNROLL
        for (int at = 0; at < Tile::kBlockBytes; at += 64)
          _mm_prefetch(reinterpret_cast<const char*>(tile) + kAhead + at, _MM_HINT_T0);
        add_block(group, tile, b, sides, x, totals);
        KT_UNROLL
        for (int i = 0; i < M * kPlanes; ++i) x[i] += kQuantBlock;
      }
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) store_rows(out + m * kTileRows, totals[m]);
  }

  static KT_INLINE void add_block(const typename Tile::Group& group, const uint8_t* block, int b,
                                  const Side (&sides)[M], const int8_t* const (&x)[M * kPlanes],
                                  Rows (&totals)[M]) {
    KT_UNROLL
    for (int half = 0; half < Tile::kHalves; ++half) {
      Words dots[1][M * kPlanes];
      const uint8_t* const data[1] = {block};
      if (half == 0)
        dot<Tile, 4, 0, 8 / Tile::kHalves>(data, x, dots);
      else
        dot<Tile, 4, 4, 4>(data, x, dots);
      const Rows factor = Tile::factor(group, block, half);
      const Rows minimum = Tile::minimum(group, block, half, factor);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        Rows sum = to_rows(dots[0][m * kPlanes]);
        if (kPlanes == 2) sum = multiply_add(sum, same(254.0f), to_rows(dots[0][m * kPlanes + kPlanes - 1]));
        totals[m] = multiply_add(sum, multiply(factor, same(sides[m].scales[b])), totals[m]);
        if (Tile::kPeak) {
          const float* sums = Tile::kHalves == 2 ? sides[m].half_sums + 2 * b + half : sides[m].sums + b;
          totals[m] = multiply_add_scalar(minimum, sums, totals[m]);
        }
      }
    }
  }
};

// Any number of rows, some at a time.
template <typename Tile, int kPlanes, int M = kIntPassRows / kPlanes>
void gemv_int(const uint8_t* tile, int depth, const uint8_t* const* rows, int m, float* out) {
  for (; m >= M; m -= M, rows += M, out += M * kTileRows) Gemv<Tile, kPlanes, M>::run(tile, depth, rows, out);
  if constexpr (M > 1)
    if (m > 0) gemv_int<Tile, kPlanes, M - 1>(tile, depth, rows, m, out);
}

}  // namespace
}  // namespace kt
