// AMX: tiles of bf16 for the panels of formats of floating-point numbers.
#if !defined(__AMX_TILE__) || !defined(__AMX_BF16__) || !defined(__AMX_INT8__)
#error "this file is compiled with -mamx-tile -mamx-bf16 -mamx-int8"
#endif

#include "rows_avx512.inl"

#include "kernels_float.inl"

#include "amx_panel.inl"

namespace kt {
namespace {

struct Bf16Weights {
  static constexpr int kSourceBytes = kTileBytes, kSliceTiles = 8;
  const uint8_t* tile;
  Bf16Weights(const uint8_t* from, int) : tile(from) {}
  const uint8_t* source(int begin) const { return tile + static_cast<size_t>(begin) * 32; }
  void convert(int begin, int end, uint32_t* panel) {
    const uint8_t* from = source(begin);
    for (int step = 0; step < (end - begin) / 2; ++step, from += 64, panel += kTileRows)
      _mm512_storeu_si512(panel, _mm512_loadu_si512(from));
  }
  void finish(float*, int) {}
};

// The value of each E4M3 magnitude. The last, a NaN, is never used: such weights are refused when they are
// packed.
struct CodeValues {
  float value[128];
  constexpr CodeValues() : value{} {
    for (int code = 0; code < 127; ++code) {
      const int exponent = code >> 3, mantissa = code & 7;
      float v = static_cast<float>(exponent ? 8 + mantissa : mantissa) / 512.0f;
      for (int e = 1; e < exponent; ++e) v *= 2.0f;
      value[code] = v;
    }
  }
};

constexpr CodeValues kCodeValues;

// Low and high bytes of the bf16 nearest to each magnitude times a scale. With a table for each block of 128
// columns the scale costs nothing at the weights themselves.
struct alignas(64) CodeTable {
  uint8_t low[128], high[128];

  void fill(float scale) {
    const __m512 factor = _mm512_set1_ps(scale);
    for (int i = 0; i < 128; i += 32) {
      const __m512bh rounded =
          _mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_loadu_ps(kCodeValues.value + i + 16), factor),
                              _mm512_mul_ps(_mm512_loadu_ps(kCodeValues.value + i), factor));
      __m512i words;
      memcpy(&words, &rounded, sizeof words);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(low + i), _mm512_cvtepi16_epi8(words));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(high + i),
                          _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8)));
    }
  }

  // `quads` words of codes (16 rows x 4 columns) as pairs; `adjust` sees each step of two columns.
  template <typename Adjust>
  void convert(const uint8_t* codes, int quads, uint32_t* panel, Adjust adjust) const {
    const __m512i low0 = _mm512_load_si512(low), low1 = _mm512_load_si512(low + 64);
    const __m512i high0 = _mm512_load_si512(high), high1 = _mm512_load_si512(high + 64);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    // In each 128-bit lane, columns 0-1 of four rows and then their columns 2-3.
    const __m512i by_pair =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    for (int q = 0; q < quads; ++q, codes += 64, panel += 2 * kTileRows) {
      const __m512i code = _mm512_shuffle_epi8(_mm512_loadu_si512(codes), by_pair);
      const __m512i lower = _mm512_permutex2var_epi8(low0, code, low1);
      // upper ^ (code & sign): a scale may be negative
      const __m512i upper =
          _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, code, high1), code, sign, 0x78);
      _mm512_storeu_si512(panel, adjust(_mm512_unpacklo_epi8(lower, upper)));
      _mm512_storeu_si512(panel + kTileRows, adjust(_mm512_unpackhi_epi8(lower, upper)));
    }
  }
};

// Bytes of the codes of a tile of depth.
constexpr int kCodeBytes = kTileRows * kTileDepth;

struct Fp8BlockWeights {
  static constexpr int kSourceBytes = kCodeBytes, kSliceTiles = 12;
  const uint8_t* tile;
  int depth;
  CodeTable table;
  Fp8BlockWeights(const uint8_t* from, int columns) : tile(from), depth(columns) {}
  const uint8_t* source(int begin) const {
    return Fp8Block128::codes(Fp8Block128::block(tile, depth, begin));
  }
  void convert(int begin, int end, uint32_t* panel) {
    if (begin % kScaleBlock == 0) table.fill(reinterpret_cast<const float*>(tile)[begin / kScaleBlock]);
    table.convert(source(begin), (end - begin) / 4, panel, [](__m512i pairs) { return pairs; });
  }
  void finish(float*, int) {}
};

struct Fp8ChannelWeights {
  static constexpr int kSourceBytes = kCodeBytes, kSliceTiles = 12;
  const uint8_t* tile;
  int depth;
  CodeTable table;
  Fp8ChannelWeights(const uint8_t* from, int columns) : tile(from), depth(columns) { table.fill(1.0f); }
  const uint8_t* source(int begin) const { return Fp8Channel::codes(Fp8Channel::block(tile, depth, begin)); }
  void convert(int begin, int end, uint32_t* panel) {
    table.convert(source(begin), (end - begin) / 4, panel, [](__m512i pairs) { return pairs; });
  }
  void finish(float* sums, int rows) {
    const __m512 scale = _mm512_loadu_ps(reinterpret_cast<const float*>(tile));
    for (int i = 0; i < rows; ++i, sums += kTileRows)
      _mm512_storeu_ps(sums, _mm512_mul_ps(_mm512_loadu_ps(sums), scale));
  }
};

// A code has four significant bits and its scale is a power of two, so the bf16 is exact; the scale is an
// addition to the exponent. Products that bf16 does not hold as normal numbers go through f32.
struct Mxfp8Weights {
  static constexpr int kSourceBytes = kCodeBytes, kSliceTiles = 12;
  const uint8_t* tile;
  int depth;
  CodeTable table;
  Mxfp8Weights(const uint8_t* from, int columns) : tile(from), depth(columns) { table.fill(1.0f); }
  const uint8_t* source(int begin) const { return Mxfp8::block(tile, depth, begin); }
  void convert(int begin, int end, uint32_t* panel) {
    const uint8_t* block = source(begin);
    const uint8_t* codes = Mxfp8::codes(block);
    const int quads = (end - begin) / 4;
    const __m512i power = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
    const __m512i shift = _mm512_sub_epi32(power, _mm512_set1_epi32(127));
    // Codes have bf16 exponents from 118 (2^-9) to 135 (448).
    const bool normal = _mm512_cmp_epi32_mask(shift, _mm512_set1_epi32(-117), _MM_CMPINT_LT) == 0 &&
                        _mm512_cmp_epi32_mask(shift, _mm512_set1_epi32(119), _MM_CMPINT_NLE) == 0;
    if (normal) {
      const __m512i word = _mm512_and_si512(_mm512_slli_epi32(shift, 7), _mm512_set1_epi32(0xffff));
      const __m512i both = _mm512_or_si512(word, _mm512_slli_epi32(word, 16));
      const __m512i magnitude = _mm512_set1_epi16(0x7fff);
      table.convert(codes, quads, panel, [&](__m512i pairs) {
        return _mm512_mask_add_epi16(pairs, _mm512_test_epi16_mask(pairs, magnitude), pairs, both);
      });
    } else {
      const __m512 scale = powers_of_two(block).all;
      table.convert(codes, quads, panel, [&](__m512i pairs) {
        const __m512 even = _mm512_mul_ps(low_half_f32({pairs}).all, scale);
        const __m512 odd = _mm512_mul_ps(high_half_f32({pairs}).all, scale);
        return _mm512_mask_mov_epi16(_mm512_castps_si512(odd), 0x55555555u,
                                     _mm512_srli_epi32(_mm512_castps_si512(even), 16));
      });
    }
  }
  void finish(float*, int) {}
};

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

// The loop of TilePanel without all that surrounds it: four multiply-adds and the loads of their operands,
// which stay in the first-level cache.
double tile_loop(long iterations) {
  constexpr int kSteps = 4;
  alignas(64) uint8_t weights[2 * kSteps * kTileBytes] = {}, activations[2 * kSteps * kTileBytes] = {};
  configure_tiles(kTileRows);
  for (long n = 0; n < iterations; ++n) {
    const uint8_t* a = activations + n % kSteps * 2 * kTileBytes;
    const uint8_t* b = weights + n % kSteps * kTileBytes;
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b + kSteps * kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    keep_order();
  }
  _tile_release();
  return 4.0 * 2.0 * kTileRows * kTileRows * kTileDepth * static_cast<double>(iterations);
}

}  // namespace

void install_amx(Kernels& table) {
  table.name = "amx";
  for (int mode = 0; mode < kModes; ++mode) {
    table.formats[kBf16][mode].panel = TilePanel<Bf16Weights>::kernels();
    table.formats[kFp8Block128][mode].panel = TilePanel<Fp8BlockWeights>::kernels();
    table.formats[kFp8Channel][mode].panel = TilePanel<Fp8ChannelWeights>::kernels();
    table.formats[kMxfp8][mode].panel = TilePanel<Mxfp8Weights>::kernels();
  }
  table.fma_bf16 = tile_bf16;
  table.tile_loop = tile_loop;
}

}  // namespace kt
