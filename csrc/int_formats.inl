// How the formats of integers hold their weights (layouts in kernels.h), over the vectors of int_rows_*.inl.
// A weight is byte * factor + minimum, a byte of word w (of 8) of a block being one of 4 columns from 4w on.
// A tile is a sequence of groups: a header, and kBlocks blocks (0: all of the tile).
//   kPeak     the largest byte; 0: bytes are signed, and there is no minimum
//   kHalves   2: columns 0-15 and 16-31 have factors of their own

namespace kt {
namespace {

struct Nothing {};

template <int kAt, int kOffset>
struct NibbleWords {
  static constexpr int kPeak = 15, kHalves = 1;
  static KT_INLINE Words word(const uint8_t* block, int w) {
    const Words words = load_words(block + kAt + w % 4 * 64);
    return w < 4 ? low_nibbles(words) : high_nibbles(words);
  }
  static Rows offset(Rows factor) { return multiply(factor, same(static_cast<float>(-kOffset))); }
};

template <int kAt>
struct ByteWords {
  static constexpr int kPeak = 0, kHalves = 1;
  static KT_INLINE Words word(const uint8_t* block, int w) { return load_words(block + kAt + w * 64); }
  static Rows offset(Rows) { return zero_rows(); }
};

struct Q4_0 : NibbleWords<32, 8> {
  static constexpr int kHeader = 0, kBlockBytes = 288, kBlocks = 1;
  using Group = Nothing;
  static Group group(const uint8_t*) { return {}; }
  static Rows factor(const Group&, const uint8_t* block, int) { return halves_to_rows(block); }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

struct Q4_1 : NibbleWords<64, 0> {
  static constexpr int kHeader = 0, kBlockBytes = 320, kBlocks = 1;
  using Group = Nothing;
  static Group group(const uint8_t*) { return {}; }
  static Rows factor(const Group&, const uint8_t* block, int) { return halves_to_rows(block); }
  static Rows minimum(const Group&, const uint8_t* block, int, Rows) { return halves_to_rows(block + 32); }
};

struct Q8_0 : ByteWords<32> {
  static constexpr int kHeader = 0, kBlockBytes = 544, kBlocks = 1;
  using Group = Nothing;
  static Group group(const uint8_t*) { return {}; }
  static Rows factor(const Group&, const uint8_t* block, int) { return halves_to_rows(block); }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

struct Int8 : ByteWords<0> {
  static constexpr int kHeader = 64, kBlockBytes = 512, kBlocks = 0;
  using Group = Rows;
  static Group group(const uint8_t* header) { return load_rows(reinterpret_cast<const float*>(header)); }
  static Rows factor(const Group& group, const uint8_t*, int) { return group; }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

struct Int4 : NibbleWords<0, 8> {
  static constexpr int kHeader = 64, kBlockBytes = 256, kBlocks = 0;
  using Group = Rows;
  static Group group(const uint8_t* header) { return load_rows(reinterpret_cast<const float*>(header)); }
  static Rows factor(const Group& group, const uint8_t*, int) { return group; }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

struct Int4G32 : NibbleWords<32, 8> {
  static constexpr int kHeader = 0, kBlockBytes = 288, kBlocks = 1;
  using Group = Nothing;
  static Group group(const uint8_t*) { return {}; }
  static Rows factor(const Group&, const uint8_t* block, int) { return bf16_to_rows(block); }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

struct Int4G128 : NibbleWords<0, 8> {
  static constexpr int kHeader = 32, kBlockBytes = 256, kBlocks = 4;
  using Group = Rows;
  static Group group(const uint8_t* header) { return halves_to_rows(header); }
  static Rows factor(const Group& group, const uint8_t*, int) { return group; }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) { return offset(factor); }
};

// Twelve more than twice the value of each e2m1 code.
constexpr uint8_t kMxfp4Bytes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct Mxfp4 {
  static constexpr int kPeak = 24, kHalves = 1, kHeader = 0, kBlockBytes = 272, kBlocks = 1;
  using Group = Nothing;
  static Group group(const uint8_t*) { return {}; }
  static Rows factor(const Group&, const uint8_t* block, int) {
    return multiply(powers_of_two(block), same(0.5f));
  }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) {
    return multiply(factor, same(-12.0f));
  }
  static KT_INLINE Words word(const uint8_t* block, int w) {
    return lookup(kMxfp4Bytes, NibbleWords<16, 0>::word(block, w));
  }
};

struct KGroup {
  Rows d, minimum;
};

template <int kData>
struct KQuant {
  static constexpr int kHalves = 1, kHeader = 64, kBlockBytes = kData + 256, kBlocks = 8;
  using Group = KGroup;
  static Group group(const uint8_t* header) { return {halves_to_rows(header), halves_to_rows(header + 32)}; }
  static Rows factor(const Group& group, const uint8_t* block, int) {
    return multiply(group.d, bytes_to_rows(block));
  }
  static Rows minimum(const Group& group, const uint8_t* block, int, Rows) {
    return multiply(multiply(group.minimum, same(-1.0f)), bytes_to_rows(block + 16));
  }
};

struct Q4K : KQuant<32> {
  static constexpr int kPeak = 15;
  static KT_INLINE Words word(const uint8_t* block, int w) { return NibbleWords<32, 0>::word(block, w); }
};

struct Q5K : KQuant<96> {
  static constexpr int kPeak = 31;
  static KT_INLINE Words word(const uint8_t* block, int w) {
    // Bit w of each byte becomes bit 4.
    return join(NibbleWords<96, 0>::word(block, w), bits(load_words(block + 32), w - 4, 16));
  }
};

struct Q6K {
  static constexpr int kPeak = 63, kHalves = 2, kHeader = 32, kBlockBytes = 32 + 128 + 256, kBlocks = 8;
  using Group = Rows;
  static Group group(const uint8_t* header) { return halves_to_rows(header); }
  static Rows factor(const Group& group, const uint8_t* block, int half) {
    return multiply(group, signed_bytes_to_rows(block + 16 * half));
  }
  static Rows minimum(const Group&, const uint8_t*, int, Rows factor) {
    return multiply(factor, same(-32.0f));
  }
  static KT_INLINE Words word(const uint8_t* block, int w) {
    // Bits 2j and 2j + 1 of each byte become bits 4 and 5.
    const Words upper = load_words(block + 32 + w / 4 * 64);
    return join(NibbleWords<160, 0>::word(block, w), bits(upper, w % 4 * 2 - 4, 48));
  }
};

}  // namespace
}  // namespace kt
