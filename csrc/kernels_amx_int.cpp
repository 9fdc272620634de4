// AMX: tiles of bf16 for the panels of formats of integers.
#if !defined(__AMX_TILE__) || !defined(__AMX_BF16__) || !defined(__AMX_INT8__)
#error "this file is compiled with -mamx-tile -mamx-bf16 -mamx-int8"
#endif

#include "rows_avx512.inl"

#include "amx_panel.inl"

namespace kt {
namespace {}  // namespace

void install_amx_int(Kernels&) {}

}  // namespace kt
