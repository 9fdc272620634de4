// Random matrices in every format that a checkpoint can have, for the native tests. What they mean is told by
// the scalar kernels, which pytest compares with an independent oracle.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "isa.h"
#include "linear.h"

namespace kt_test {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  long below(long count) { return static_cast<long>(engine_() % static_cast<uint64_t>(count)); }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  float normal() { return std::normal_distribution<float>()(engine_); }
  bool chance(double share) { return uniform(0, 1) < share; }

 private:
  std::mt19937_64 engine_;
};

// The seed is printed, and may be given again as the environment's KT_SEED.
inline uint64_t choose_seed() {
  const char* given = std::getenv("KT_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("KT_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

// Memory of exactly the wanted size, so that the address sanitizer sees the first byte beyond it.
template <typename T>
class Exact {
 public:
  Exact() = default;
  explicit Exact(size_t count, size_t alignment = 64) : size_(count) {
    void* memory = nullptr;
    if (count && posix_memalign(&memory, alignment, count * sizeof(T)) != 0) std::abort();
    memory_.reset(static_cast<T*>(memory));
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return memory_.get()[i]; }
  const T& operator[](size_t i) const { return memory_.get()[i]; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};

// How a layer's weights come in and how they are packed.
struct Form {
  kt::Format source, stored;
  std::string name() const {
    const std::string from = kt::format_name(source);
    return source == stored ? from : from + " as " + kt::format_name(stored);
  }
};

// Every format that a checkpoint holds, and every one that can be made of another.
inline std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (int source = 0; source < kt::kFormats; ++source)
    for (int stored = 0; stored < kt::kFormats; ++stored) {
      const auto from = static_cast<kt::Format>(source), to = static_cast<kt::Format>(stored);
      if (!kt::storage(from).source_row_bytes) continue;
      if (from == to || kt::can_quantise(from, to)) forms.push_back({from, to});
    }
  return forms;
}

struct Matrix {
  Exact<uint8_t> data, scale;
  kt::Source source;
};

// Where in a block of ggml its f16 factors lie.
struct BlockFactors {
  kt::Format format;
  size_t bytes, at, count;
};
constexpr BlockFactors kBlockFactors[] = {{kt::kQ4_0, 18, 0, 1}, {kt::kQ4_1, 20, 0, 2},
                                          {kt::kQ8_0, 34, 0, 1}, {kt::kQ4K, 144, 0, 2},
                                          {kt::kQ5K, 176, 0, 2}, {kt::kQ6K, 210, 208, 1}};

inline uint16_t random_half(Random& random) {
  // Exponents of 2^-10 to 2^-5, some subnormal.
  const long exponent = random.chance(0.05) ? 0 : 5 + random.below(6);
  return static_cast<uint16_t>(random.below(2) << 15 | exponent << 10 | random.below(1024));
}

inline void put_scales(Exact<uint8_t>& to, Random& random) {
  for (size_t i = 0; i < to.size(); i += 4) {
    const auto value = static_cast<float>(std::exp2(random.uniform(-12, -6)));
    std::memcpy(to.data() + i, &value, 4);
  }
}

inline Matrix random_matrix(Form form, long rows, long columns, Random& random) {
  const kt::Storage& storage = kt::storage(form.source);
  Matrix made;
  made.data = Exact<uint8_t>(kt::source_row_bytes(form.source, columns) * static_cast<size_t>(rows), 16);
  uint8_t* data = made.data.data();
  const size_t bytes = made.data.size();
  if (form.source == kt::kF32 || form.source == kt::kBf16) {
    const size_t width = form.source == kt::kF32 ? 4 : 2;
    for (size_t i = 0; i < bytes; i += width) {
      const float value = random.normal();
      std::memcpy(data + i, reinterpret_cast<const uint8_t*>(&value) + 4 - width, width);
    }
  } else {
    const bool fp8 =
        form.source == kt::kFp8Block128 || form.source == kt::kFp8Channel || form.source == kt::kMxfp8;
    for (size_t i = 0; i < bytes; ++i) {
      data[i] = static_cast<uint8_t>(random.below(256));
      if (fp8 && (data[i] & 0x7f) == 0x7f) --data[i];
    }
    for (const BlockFactors& block : kBlockFactors)
      for (size_t i = 0; block.format == form.source && i < bytes; i += block.bytes)
        for (size_t f = 0; f < block.count; ++f) {
          const uint16_t half = random_half(random);
          std::memcpy(data + i + block.at + 2 * f, &half, 2);
        }
  }
  const kt::ScaleLayout& layout = storage.scale;
  const auto blocks = [](long count, int block) { return static_cast<size_t>((count + block - 1) / block); };
  const size_t scales =
      blocks(rows, layout.row_block) * (layout.column_block ? blocks(columns, layout.column_block) : 1);
  if (layout.type == kt::kScaleF32) {
    made.scale = Exact<uint8_t>(scales * 4, 16);
    put_scales(made.scale, random);
  } else if (layout.type == kt::kScaleU8) {
    made.scale = Exact<uint8_t>(scales, 16);
    for (size_t i = 0; i < scales; ++i) made.scale[i] = static_cast<uint8_t>(110 + random.below(15));
  } else if (layout.type == kt::kScaleU16) {
    made.scale = Exact<uint8_t>(scales * 2, 16);
    for (size_t i = 0; i < scales; ++i) {
      // The upper half of a float is bfloat16.
      const auto value = static_cast<float>(std::exp2(random.uniform(-12, -6)));
      uint16_t bits;
      std::memcpy(&bits, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
      if (form.source == kt::kInt4G128) bits = random_half(random);
      std::memcpy(made.scale.data() + i * 2, &bits, 2);
    }
  }
  made.source = {form.source, data,    made.scale.size() ? made.scale.data() : nullptr,
                 rows,        columns, form.stored};
  return made;
}

inline Exact<float> random_rows(long tokens, long columns, double size, Random& random) {
  Exact<float> x(static_cast<size_t>(tokens * columns), 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = random.normal() * static_cast<float>(size);
  return x;
}

// Columns at the edges of a format's blocks, and others where it takes any number.
inline std::vector<long> edge_columns(Form form) {
  const long align = kt::storage(form.source).source_align;
  const long stored = kt::storage(form.stored).depth_align;
  if (align > 32) return {align, 2 * align};
  if (align == 32) return {32, 64, 96};
  if (stored == 32) return {1, 31, 32, 33, 97};
  return {1, 3, 4, 5, 127, 129, 132};
}

// A team with this many threads; CPUs repeat where the machine has fewer, and from the third thread on the
// workers belong to other NUMA nodes.
inline std::shared_ptr<kt::Team> make_team(int threads, const std::string& isa) {
  const std::vector<kt::Core> usable = kt::usable_cores();
  std::vector<kt::Core> cores;
  for (int i = 0; i < threads; ++i)
    cores.push_back({usable[static_cast<size_t>(i) % usable.size()].cpu, i < 2 ? 0 : i < 3 ? 1 : 2});
  return std::make_shared<kt::Team>(cores, isa);
}

// The instruction sets of this machine whose kernels this build has.
inline std::vector<std::string> tested_isas() {
  std::vector<std::string> isas = kt::available_isas();
#if defined(KT_SMALL)
  if (isas.size() > 2) isas.resize(2);
#endif
  return isas;
}

inline int most_threads() { return static_cast<int>(kt::usable_cores().size()) + 2; }

}  // namespace kt_test
