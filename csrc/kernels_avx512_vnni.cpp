// AVX-512 with VNNI: integer dot products.
#if !defined(__AVX512VNNI__)
#error "this file is compiled with -mavx512vnni"
#endif
#define KT_VNNI

#include "rows_avx512.inl"

#include "int_rows_avx512.inl"

#include "kernels_int.inl"

namespace kt {

void install_avx512_vnni(Kernels& table) { install_int_formats(table); }

}  // namespace kt
