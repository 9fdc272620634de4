// Which instruction sets this processor and operating system offer, and the kernels of each.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace kt {

// Names of usable variants, lowest first: "scalar", then "avx2", "avx512", "avx512_bf16", "amx".
std::vector<std::string> available_isas();

// Why a variant that the processor has is not offered, one sentence each.
std::vector<std::string> isa_notes();

// The kernels of one available variant; throws std::invalid_argument for any other name. The first use of
// "avx512_bf16" or "amx" measures for a millisecond which of its ways to multiply is the faster one.
const Kernels& kernels_for(const std::string& isa);

// What was chosen within a variant and the measured peaks that decided it, as one line.
std::string isa_detail(const std::string& isa);

}  // namespace kt
