// As int_rows_avx2.inl, in 512-bit registers (needs rows_avx512.inl). With KT_VNNI the processor has dot
// products of bytes.
#define KT_INLINE inline __attribute__((always_inline))

namespace kt {
namespace {

constexpr int kIntPassRows = 8;
constexpr int kIntPanelRows = 8;  // 8 x 2 tiles of sums fill 16 of 32 registers
constexpr int kIntPanelTiles = 2;
constexpr int kFastGemvRows = 8, kExactGemvRows = 4;

Words low_nibbles(Words w) { return {_mm512_and_si512(w.all, _mm512_set1_epi8(15))}; }
Words high_nibbles(Words w) { return low_nibbles({_mm512_srli_epi16(w.all, 4)}); }
KT_INLINE Words bits(Words w, int right, int mask) {
  const __m512i kept = _mm512_set1_epi8(static_cast<char>(mask));
  const __m512i moved = right >= 0 ? _mm512_srli_epi32(w.all, static_cast<unsigned>(right >= 0 ? right : 0))
                                   : _mm512_slli_epi32(w.all, static_cast<unsigned>(right < 0 ? -right : 0));
  return {_mm512_and_si512(moved, kept)};
}
Words join(Words a, Words b) { return {_mm512_or_si512(a.all, b.all)}; }
Words lookup(const uint8_t (&table)[16], Words codes) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, codes.all)};
}
void store_words(uint8_t* p, Words w) { _mm512_storeu_si512(p, w.all); }
Rows to_rows(Words w) { return {_mm512_cvtepi32_ps(w.all)}; }

template <int I, bool kSigned>
Rows value(Words w) {
  if (kSigned) return byte<I>(w);
  return to_rows({_mm512_and_si512(_mm512_srli_epi32(w.all, 8 * I), _mm512_set1_epi32(255))});
}

__m128i load_sixteen(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
Rows bytes_to_rows(const uint8_t* p) { return to_rows({_mm512_cvtepu8_epi32(load_sixteen(p))}); }
Rows signed_bytes_to_rows(const uint8_t* p) { return to_rows({_mm512_cvtepi8_epi32(load_sixteen(p))}); }
Rows bf16_to_rows(const uint8_t* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_bytes(p)), 16))};
}

#ifdef KT_VNNI
template <typename Source, int kStride, int kFirst, int kCount, int M, int kWidth>
KT_INLINE void dot(const uint8_t* const (&data)[kWidth], const int8_t* const (&x)[M],
                   Words (&dots)[kWidth][M]) {
  KT_UNROLL
  for (int t = 0; t < kWidth; ++t) KT_UNROLL
  for (int m = 0; m < M; ++m) dots[t][m].all = _mm512_setzero_si512();
  // The instruction multiplies unsigned by signed bytes: where weights are signed x + 128 is used, and
  // 128 * (sum of weights) taken off again.
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i excess[kWidth];
  KT_UNROLL
  for (int t = 0; t < kWidth; ++t) excess[t] = _mm512_setzero_si512();
  KT_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const int w = kCount == 8 ? i / 2 + i % 2 * 4 : kFirst + i;
    __m512i words[kWidth];
    KT_UNROLL
    for (int t = 0; t < kWidth; ++t) {
      words[t] = Source::word(data[t], w).all;
      if (Source::kPeak == 0) excess[t] = _mm512_dpbusd_epi32(excess[t], flip, words[t]);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i four = same_four(x[m] + w * kStride);
      KT_UNROLL
      for (int t = 0; t < kWidth; ++t)
        dots[t][m].all = Source::kPeak == 0
                             ? _mm512_dpbusd_epi32(dots[t][m].all, _mm512_xor_si512(four, flip), words[t])
                             : _mm512_dpbusd_epi32(dots[t][m].all, words[t], four);
    }
  }
  if (Source::kPeak == 0) {
    KT_UNROLL
    for (int t = 0; t < kWidth; ++t) KT_UNROLL
    for (int m = 0; m < M; ++m) dots[t][m].all = _mm512_sub_epi32(dots[t][m].all, excess[t]);
  }
}
#else
template <typename Source, int kStride, int kFirst, int kCount, int M, int kWidth>
KT_INLINE void dot(const uint8_t* const (&data)[kWidth], const int8_t* const (&x)[M],
                   Words (&dots)[kWidth][M]) {
  const __m512i ones = _mm512_set1_epi16(1), zero = _mm512_setzero_si512();
  // A 16-bit lane adds up two products a word; that many words stay below 2^15.
  constexpr int kPeak = Source::kPeak ? Source::kPeak : 128;
  constexpr int kFits = 32767 / (2 * 127 * kPeak);
  constexpr int kRun = kFits >= 8 ? 8 : kFits >= 4 ? 4 : kFits >= 2 ? 2 : 1;
  __m512i sums[kWidth][M];
  KT_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const int w = kCount == 8 ? i / 2 + i % 2 * 4 : kFirst + i;
    __m512i words[kWidth];
    __mmask64 negative[kWidth];
    KT_UNROLL
    for (int t = 0; t < kWidth; ++t) {
      words[t] = Source::word(data[t], w).all;
      negative[t] = Source::kPeak ? 0 : _mm512_movepi8_mask(words[t]);
      if (Source::kPeak == 0) words[t] = _mm512_abs_epi8(words[t]);
    }
    KT_UNROLL
    for (int m = 0; m < M; ++m) {
      const __m512i four = same_four(x[m] + w * kStride);
      KT_UNROLL
      for (int t = 0; t < kWidth; ++t) {
        const __m512i right = Source::kPeak ? four : _mm512_mask_sub_epi8(four, negative[t], zero, four);
        const __m512i products = _mm512_maddubs_epi16(words[t], right);
        sums[t][m] = i % kRun == 0 ? products : _mm512_add_epi16(sums[t][m], products);
        // In the order written: the compiler would add products up as a tree, and so keep all of them.
        __asm__("" : "+v"(sums[t][m]));
        if (i % kRun == kRun - 1) {
          const __m512i wide = _mm512_madd_epi16(sums[t][m], ones);
          dots[t][m].all = i < kRun ? wide : _mm512_add_epi32(dots[t][m].all, wide);
        }
      }
    }
  }
}
#endif

}  // namespace
}  // namespace kt
