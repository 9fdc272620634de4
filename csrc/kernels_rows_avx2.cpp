// Operations on rows, AVX2 with FMA.
#if !defined(__AVX2__) || !defined(__FMA__)
#error "this file is compiled with -mavx2 -mfma"
#endif

#include "rows_avx2.inl"

#include "kernels_rows.inl"

namespace kt {

void install_avx2_rows(Kernels& table) { install_rows(table); }

}  // namespace kt
