// Weights of the formats of integers as panels of bf16 pairs: rounded to bf16, like the activations that they
// meet. Needs kernels_int.inl and AVX-512 with BF16 before.

namespace kt {
namespace {

// Two columns of 16 rows, each nearest in bf16.
KT_INLINE __m512i pairs_of(Rows even, Rows odd) {
  const __m512i in_turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                           7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh both = _mm512_cvtne2ps_pbh(odd.all, even.all);
  __m512i words;
  memcpy(&words, &both, sizeof words);
  return _mm512_permutexvar_epi16(in_turn, words);
}

template <typename Tile>
float convert_int_pairs(const uint8_t* tile, int, int begin, int end, uint32_t* panel) {
  for (int b = begin / kQuantBlock; b < end / kQuantBlock; ++b) {
    const uint8_t* header;
    const uint8_t* block = block_of<Tile>(tile, b, header);
    const typename Tile::Group group = Tile::group(header);
    KT_UNROLL
    for (int half = 0; half < Tile::kHalves; ++half) {
      const Rows factor = Tile::factor(group, block, half);
      const Rows minimum = Tile::minimum(group, block, half, factor);
      KT_UNROLL
      for (int i = 0; i < 8 / Tile::kHalves; ++i, panel += 2 * kTileRows) {
        constexpr bool kSigned = Tile::kPeak == 0;
        const Words words = Tile::word(block, half * 4 + i);
        _mm512_storeu_si512(panel, pairs_of(multiply_add(value<0, kSigned>(words), factor, minimum),
                                            multiply_add(value<1, kSigned>(words), factor, minimum)));
        _mm512_storeu_si512(panel + kTileRows,
                            pairs_of(multiply_add(value<2, kSigned>(words), factor, minimum),
                                     multiply_add(value<3, kSigned>(words), factor, minimum)));
      }
    }
  }
  return 1.0f;
}

// Calls install.template operator()<Tile>(format) for each format of integers.
template <typename Install>
void for_int_formats(Install install) {
  install.template operator()<Q4_0>(kQ4_0);
  install.template operator()<Q4_1>(kQ4_1);
  install.template operator()<Q8_0>(kQ8_0);
  install.template operator()<Q4K>(kQ4K);
  install.template operator()<Q5K>(kQ5K);
  install.template operator()<Q6K>(kQ6K);
  install.template operator()<Int8>(kInt8);
  install.template operator()<Int4>(kInt4);
  install.template operator()<Int4G32>(kInt4G32);
  install.template operator()<Int4G128>(kInt4G128);
  install.template operator()<Mxfp4>(kMxfp4);
}

}  // namespace
}  // namespace kt
