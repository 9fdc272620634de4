// Operations on rows, AVX-512.
#if !defined(__AVX512F__)
#error "this file is compiled with -mavx512f"
#endif

#include "rows_avx512.inl"

#include "kernels_rows.inl"

namespace kt {

void install_avx512_rows(Kernels& table) { install_rows(table); }

}  // namespace kt
