// AVX2 with FMA and F16C: formats of integers.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include "rows_avx2.inl"

namespace kt {
namespace {

struct Q4;
struct Q8;
template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);
template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]);

}  // namespace
}  // namespace kt

#include "kernels_int.inl"

namespace kt {
namespace {

template <int M>
void int8_dots(Q4, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  __m256i sums[M][2];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  KT_UNROLL
  for (int j = 0; j < Q4::kWords; ++j) {
    KT_UNROLL
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i low = _mm256_and_si256(word, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(word, 4), mask);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        // A 16-bit lane adds up 16 products of at most 15 * 127.
        const __m256i a = _mm256_maddubs_epi16(low, same_four(x[m] + 4 * j));
        const __m256i b = _mm256_maddubs_epi16(high, same_four(x[m] + 16 + 4 * j));
        sums[m][h] = _mm256_add_epi16(sums[m][h], _mm256_add_epi16(a, b));
      }
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m)
    dots[m] = {_mm256_cvtepi32_ps(_mm256_madd_epi16(sums[m][0], ones)),
               _mm256_cvtepi32_ps(_mm256_madd_epi16(sums[m][1], ones))};
}

template <int M>
void int8_dots(Q8, const uint8_t* data, const int8_t* const* x, Rows (&dots)[M]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[M][2];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
  KT_UNROLL
  for (int j = 0; j < Q8::kWords; ++j) {
    KT_UNROLL
    for (int h = 0; h < 2; ++h) {
      const __m256i word = load_bytes(data + j * 64 + h * 32);
      const __m256i magnitude = _mm256_abs_epi8(word);
      KT_UNROLL
      for (int m = 0; m < M; ++m) {
        const __m256i products =
            _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(same_four(x[m] + 4 * j), word));
        sums[m][h] = _mm256_add_epi32(sums[m][h], _mm256_madd_epi16(products, ones));
      }
    }
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) dots[m] = {_mm256_cvtepi32_ps(sums[m][0]), _mm256_cvtepi32_ps(sums[m][1])};
}

}  // namespace

void install_avx2_int(Kernels& table) { install_int_formats(table); }

}  // namespace kt
