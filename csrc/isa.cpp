#include "isa.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>

#if defined(KT_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif

namespace kt {
namespace {

enum Level : int { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx, kLevels };
constexpr const char* kNames[kLevels] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};

struct Detected {
  int level = kScalar;
  std::vector<std::string> notes;
};

#if defined(KT_X86)
// The register state that the operating system saves (XCR0). Written in bytes, because the intrinsic would
// need the whole file to be compiled with -mxsave.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Level 0 scalar, 1 AVX2 + FMA + F16C, 2 AVX-512 F/BW/VL/DQ, 3 with BF16, VNNI and VBMI.
int vector_level() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return kScalar;
  const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
  if (!fma || !osxsave || !avx || !f16c) return kScalar;
  const uint64_t state = saved_state();
  if ((state & 0x6) != 0x6) return kScalar;
  unsigned b7, c7, d7;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return kScalar;
  const unsigned leaf7_subleaves = a;
  if (!(b7 >> 5 & 1)) return kScalar;
  const bool f = b7 >> 16 & 1, dq = b7 >> 17 & 1, bw = b7 >> 30 & 1, vl = b7 >> 31 & 1;
  if (!f || !dq || !bw || !vl || (state & 0xe6) != 0xe6) return kAvx2;
  const bool vbmi = c7 >> 1 & 1, vnni = c7 >> 11 & 1;
  if (leaf7_subleaves < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return kAvx512;
  const bool bf16 = a >> 5 & 1;
  return vbmi && vnni && bf16 ? kAvx512Bf16 : kAvx512;
}

// Tiles are 8 KiB of state that a thread's stack frames for signals must hold too, so the kernel gives them
// to a process only when it asks (Documentation/arch/x86/xstate.rst). Threads and children inherit the
// permission.
std::string refusal_of_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  constexpr uint64_t kTileState = 3ull << 17;
  if ((saved_state() & kTileState) != kTileState)
    return "the processor has AMX, but the operating system does not save its tiles; kernels use AVX-512 "
           "(Linux "
           "5.16 or newer is needed)";
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    return std::string("the processor has AMX, but the operating system refused its tiles (") +
           std::strerror(errno) +
           "); kernels use AVX-512 (an alternate signal stack of the process may be too small)";
  return "";
}

Detected detect() {
  Detected found;
  found.level = vector_level();
  unsigned a, b, c, d;
  if (found.level < kAvx512Bf16 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  if (!(d >> 22 & 1) || !(d >> 24 & 1) || !(d >> 25 & 1)) return found;
  const std::string refusal = refusal_of_tiles();
  if (refusal.empty())
    found.level = kAmx;
  else
    found.notes.push_back(refusal);
  return found;
}
#else
Detected detect() { return {}; }
#endif

const Detected& detected() {
  static const Detected found = detect();
  return found;
}

struct Variant {
  Kernels kernels{};
  std::string detail;
};

#if defined(KT_X86)
using Peak = double (*)(long iterations);

// Operations per second of each, measured in turn so that a disturbance meets all; the best of many short
// rounds.
std::vector<double> peaks(const std::vector<Peak>& functions) {
  constexpr int kRounds = 12;
  constexpr long kIterations = 1000;
  std::vector<double> best(functions.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < functions.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      const double operations = functions[i](kIterations);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      best[i] = std::max(best[i], operations / std::max(spent.count(), 1e-9));
    }
  return best;
}

// Panels of bf16 give way to those of `other` in the formats where both have one.
void take_panels(Kernels& table, const Kernels& other) {
  for (int format = 0; format < kFormats; ++format)
    for (int mode = 0; mode < kModes; ++mode) {
      PanelKernels& panel = table.formats[format][mode].panel;
      const PanelKernels& instead = other.formats[format][mode].panel;
      if (panel.rows && panel.activation == kActBf16 && instead.rows) panel = instead;
    }
}

// Formats of integers multiply int8 activations again.
void take_fast_panels(Kernels& table, const Kernels& other) {
  for (int format = kMxfp4; format < kFormats; ++format)
    table.formats[format][kFast].panel = other.formats[format][kFast].panel;
}

std::string rate(const char* name, double operations) {
  char text[64];
  std::snprintf(text, sizeof text, "%s %.0f", name, operations / 1e9);
  return text;
}

// The wider instruction is not always the faster one: where bf16 dot products run at a fraction of the rate
// of f32 multiply-adds, f32 panels win. A margin keeps the choice from depending on the noise of a
// measurement; real ratios lie far from it.
constexpr double kMargin = 1.3;

void choose(int wanted, Variant& variant, const Kernels& f32_table) {
  Kernels& table = variant.kernels;
  install_avx512_bf16(table);
  install_avx512_vnni(table);
  std::vector<Peak> functions{f32_table.fma_f32, table.fma_bf16};
  Kernels tiles = table;
  if (wanted >= kAmx) {
    install_amx(tiles);
    install_amx_int(tiles);
    functions.push_back(tiles.fma_bf16);
    functions.push_back(tiles.int8_peak);
  }
  const std::vector<double> measured = peaks(functions);
  std::string used = "bf16 dot products";
  double reached = measured[1];
  if (measured[0] > kMargin * measured[1]) {
    take_panels(table, f32_table);
    used = "f32";
    reached = measured[0];
  }
  std::string figures = rate("f32", measured[0]) + ", " + rate("bf16 dot products", measured[1]);
  if (wanted >= kAmx) {
    figures += ", " + rate("tiles", measured[2]) + ", " + rate("int8 dot products", measured[3]);
    if (measured[2] > kMargin * reached) {
      if (measured[2] <= kMargin * measured[3]) take_fast_panels(tiles, table);
      table = tiles;
      used = "tiles";
    }
    table.name = kNames[kAmx];
  }
  variant.detail = "many rows: " + used + " (GFLOP/s of one core: " + figures + ")";
}
#endif

void build(int wanted, Variant& variant) {
  Kernels& table = variant.kernels;
  install_scalar(table);
  install_scalar_int(table);
  install_scalar_rows(table);
#if defined(KT_X86)
  if (wanted >= kAvx2) {
    install_avx2(table);
    install_avx2_int(table);
    install_avx2_rows(table);
  }
  if (wanted >= kAvx512) {
    install_avx512(table);
    install_avx512_int(table);
    install_avx512_rows(table);
  }
  if (wanted >= kAvx512Bf16) {
    const Kernels f32_table = table;
    choose(wanted, variant, f32_table);
  }
#else
  (void)wanted;
#endif
  if (variant.detail.empty()) variant.detail = "many rows: f32";
}

const Variant& variant_for(const std::string& isa) {
  static Variant variants[kLevels];
  static std::once_flag built[kLevels];
  std::string offered;
  for (int level = 0; level <= detected().level; ++level) {
    if (isa == kNames[level]) {
      std::call_once(built[level], [level] { build(level, variants[level]); });
      return variants[level];
    }
    offered += (level ? ", " : "") + std::string(kNames[level]);
  }
  throw std::invalid_argument("instruction set '" + isa + "' is not available here; this machine offers " +
                              offered);
}

}  // namespace

std::vector<std::string> available_isas() { return {kNames, kNames + detected().level + 1}; }

std::vector<std::string> isa_notes() { return detected().notes; }

const Kernels& kernels_for(const std::string& isa) { return variant_for(isa).kernels; }

std::string isa_detail(const std::string& isa) { return variant_for(isa).detail; }

}  // namespace kt
