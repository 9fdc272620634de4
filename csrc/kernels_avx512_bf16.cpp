#include "kernels.h"
namespace kt {
void install_avx512_bf16(Kernels& table) { table.name = "avx512_bf16"; }
}  // namespace kt
