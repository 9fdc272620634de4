// What the integer kernels are written with, in 256-bit registers (needs rows_avx2.inl):
//   low_nibbles, high_nibbles, bits<S> (shifted right by S, or left by -S, then masked), join, lookup: bytes
//   to_rows            16 dwords as f32; value<I>: byte I of each dword as f32
//   bytes_to_rows, signed_bytes_to_rows, bf16_to_rows  16 scales
//   dot                sums of products of bytes
#define KT_INLINE inline __attribute__((always_inline))

namespace kt {
namespace {

constexpr int kIntPassRows = 4;   // rows of int8 per pass of gemv
constexpr int kIntPanelRows = 4;  // 4 x 16 sums of 16 bits fill 8 of 16 registers
constexpr int kIntPanelTiles = 1;
constexpr int kFastGemvRows = 16, kExactGemvRows = 4;

Words low_nibbles(Words w) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(w.low, mask), _mm256_and_si256(w.high, mask)};
}
Words high_nibbles(Words w) {
  return low_nibbles({_mm256_srli_epi16(w.low, 4), _mm256_srli_epi16(w.high, 4)});
}
KT_INLINE Words bits(Words w, int right, int mask) {
  const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
  if (right >= 0)
    return {_mm256_and_si256(_mm256_srli_epi32(w.low, right), kept),
            _mm256_and_si256(_mm256_srli_epi32(w.high, right), kept)};
  return {_mm256_and_si256(_mm256_slli_epi32(w.low, -right), kept),
          _mm256_and_si256(_mm256_slli_epi32(w.high, -right), kept)};
}
Words join(Words a, Words b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
Words lookup(const uint8_t (&table)[16], Words codes) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, codes.low), _mm256_shuffle_epi8(t, codes.high)};
}
void store_words(uint8_t* p, Words w) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), w.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), w.high);
}
Rows to_rows(Words w) { return {_mm256_cvtepi32_ps(w.low), _mm256_cvtepi32_ps(w.high)}; }

template <int I, bool kSigned>
Rows value(Words w) {
  if (kSigned) return byte<I>(w);
  const __m256i mask = _mm256_set1_epi32(255);
  return to_rows({_mm256_and_si256(_mm256_srli_epi32(w.low, 8 * I), mask),
                  _mm256_and_si256(_mm256_srli_epi32(w.high, 8 * I), mask)});
}

__m128i load_eight(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
Rows bytes_to_rows(const uint8_t* p) {
  return to_rows({_mm256_cvtepu8_epi32(load_eight(p)), _mm256_cvtepu8_epi32(load_eight(p + 8))});
}
Rows signed_bytes_to_rows(const uint8_t* p) {
  return to_rows({_mm256_cvtepi8_epi32(load_eight(p)), _mm256_cvtepi8_epi32(load_eight(p + 8))});
}
Rows bf16_to_rows(const uint8_t* p) {
  const auto half = [](const uint8_t* at) {
    const __m128i bits16 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits16), 16));
  };
  return {half(p), half(p + 16)};
}

// Sums are kept in the order written: the compiler would add products up as a tree, and so keep all of them.
KT_INLINE void in_order(Words& sum) { __asm__("" : "+x"(sum.low), "+x"(sum.high)); }

// dots[t][m] = sum over words kFirst .. kFirst + kCount of a block of weights times bytes of x, where word w
// is multiplied with the four bytes at x[m] + w * kStride. Weights are Source::word, of at most Source::kPeak
// and not negative, or any signed bytes if kPeak is 0.
template <typename Source, int kStride, int kFirst, int kCount, int M, int kWidth>
KT_INLINE void dot(const uint8_t* const (&data)[kWidth], const int8_t* const (&x)[M],
                   Words (&dots)[kWidth][M]) {
  static_assert(kWidth == 1, "more tiles do not fit into 16 registers");
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (Source::kPeak == 0) {
    KT_UNROLL
    for (int w = kFirst; w < kFirst + kCount; ++w) {
      const Words words = Source::word(data[0], w);
      const __m256i low = _mm256_abs_epi8(words.low), high = _mm256_abs_epi8(words.high);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i four = same_four(x[m] + w * kStride);
        const __m256i a = _mm256_maddubs_epi16(low, _mm256_sign_epi8(four, words.low));
        const __m256i b = _mm256_maddubs_epi16(high, _mm256_sign_epi8(four, words.high));
        const __m256i c = _mm256_madd_epi16(a, ones), d = _mm256_madd_epi16(b, ones);
        dots[0][m].low = w == kFirst ? c : _mm256_add_epi32(dots[0][m].low, c);
        dots[0][m].high = w == kFirst ? d : _mm256_add_epi32(dots[0][m].high, d);
        in_order(dots[0][m]);
      }
    }
  } else {
    // A 16-bit lane adds up two products a word; that many words stay below 2^15.
    constexpr int kRun = 32767 / (2 * 127 * Source::kPeak) >= 8   ? 8
                         : 32767 / (2 * 127 * Source::kPeak) >= 4 ? 4
                                                                  : 2;
    Words sums[M];
    KT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      // Words w and w + 4 often come out of the same bytes.
      const int w = kCount == 8 ? i / 2 + i % 2 * 4 : kFirst + i;
      const Words words = Source::word(data[0], w);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i four = same_four(x[m] + w * kStride);
        const __m256i a = _mm256_maddubs_epi16(words.low, four);
        const __m256i b = _mm256_maddubs_epi16(words.high, four);
        sums[m].low = i % kRun == 0 ? a : _mm256_add_epi16(sums[m].low, a);
        sums[m].high = i % kRun == 0 ? b : _mm256_add_epi16(sums[m].high, b);
        in_order(sums[m]);
        if (i % kRun == kRun - 1) {
          const __m256i c = _mm256_madd_epi16(sums[m].low, ones), d = _mm256_madd_epi16(sums[m].high, ones);
          dots[0][m].low = i < kRun ? c : _mm256_add_epi32(dots[0][m].low, c);
          dots[0][m].high = i < kRun ? d : _mm256_add_epi32(dots[0][m].high, d);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kt
