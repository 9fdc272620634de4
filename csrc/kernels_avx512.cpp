#include "kernels.h"
namespace kt {
void install_avx512(Kernels& table) { table.name = "avx512"; }
}  // namespace kt
