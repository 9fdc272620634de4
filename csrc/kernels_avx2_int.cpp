// AVX2 with FMA and F16C: formats of integers.
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mfma -mf16c"
#endif

#include "rows_avx2.inl"

#include "int_rows_avx2.inl"

#include "kernels_int.inl"

namespace kt {

void install_avx2_int(Kernels& table) { install_int_formats(table); }

}  // namespace kt
