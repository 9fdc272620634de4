// Stands in for the kernels that a small build leaves out (native.cmake); its tests use none of them.
#include <cstdlib>

#include "kernels.h"

namespace kt {

void install_avx512(Kernels&) { std::abort(); }
void install_avx512_int(Kernels&) { std::abort(); }
void install_avx512_rows(Kernels&) { std::abort(); }
void install_avx512_bf16(Kernels&) { std::abort(); }
void install_avx512_vnni(Kernels&) { std::abort(); }
void install_amx(Kernels&) { std::abort(); }
void install_amx_int(Kernels&) { std::abort(); }

}  // namespace kt
