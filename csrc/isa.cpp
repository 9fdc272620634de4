#include "isa.h"

#include <stdexcept>

#if defined(KT_X86)
#include <cpuid.h>
#endif

namespace kt {
namespace {

#if defined(KT_X86)
// The register state that the operating system saves (XCR0). Written in bytes, because the intrinsic would
// need the whole file to be compiled with -mxsave.
uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Level 0 scalar, 1 AVX2 + FMA + F16C, 2 AVX-512 F/BW/VL/DQ, 3 with BF16, VNNI and VBMI.
int detect_level() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
  if (!fma || !osxsave || !avx || !f16c) return 0;
  const uint64_t state = saved_state();
  if ((state & 0x6) != 0x6) return 0;
  unsigned b7, c7, d7;
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return 0;
  const unsigned leaf7_subleaves = a;
  if (!(b7 >> 5 & 1)) return 0;
  const bool f = b7 >> 16 & 1, dq = b7 >> 17 & 1, bw = b7 >> 30 & 1, vl = b7 >> 31 & 1;
  if (!f || !dq || !bw || !vl || (state & 0xe6) != 0xe6) return 1;
  const bool vbmi = c7 >> 1 & 1, vnni = c7 >> 11 & 1;
  if (leaf7_subleaves < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return 2;
  const bool bf16 = a >> 5 & 1;
  return vbmi && vnni && bf16 ? 3 : 2;
}
#else
int detect_level() { return 0; }
#endif

int level() {
  static const int detected = detect_level();
  return detected;
}

constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "avx512_bf16"};

Kernels build(int wanted) {
  Kernels table{};
  install_scalar(table);
  install_scalar_int(table);
#if defined(KT_X86)
  if (wanted >= 1) {
    install_avx2(table);
    install_avx2_int(table);
  }
  if (wanted >= 2) {
    install_avx512(table);
    install_avx512_int(table);
  }
  if (wanted >= 3) {
    install_avx512_bf16(table);
    install_avx512_vnni(table);
  }
#else
  (void)wanted;
#endif
  return table;
}

}  // namespace

std::vector<std::string> available_isas() { return {kNames, kNames + level() + 1}; }

const Kernels& kernels_for(const std::string& isa) {
  static const Kernels tables[] = {build(0), build(level() >= 1 ? 1 : 0), build(level() >= 2 ? 2 : 0),
                                   build(level() >= 3 ? 3 : 0)};
  std::string offered;
  for (int i = 0; i <= level(); ++i) {
    if (isa == kNames[i]) return tables[i];
    offered += (i ? ", " : "") + std::string(kNames[i]);
  }
  throw std::invalid_argument("instruction set '" + isa + "' is not available here; this machine offers " +
                              offered);
}

}  // namespace kt
