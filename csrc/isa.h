// Which instruction sets this processor and operating system offer, and the kernels of each.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace kt {

// Names of usable variants, lowest first: "scalar", then "avx2", "avx512", "avx512_bf16".
std::vector<std::string> available_isas();

// The kernels of one available variant; throws std::invalid_argument for any other name.
const Kernels& kernels_for(const std::string& isa);

}  // namespace kt
