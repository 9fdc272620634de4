// AVX-512 F, BW, VL and DQ: formats of integers.
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) || !defined(__AVX512DQ__)
#error "this file is compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif

#include "rows_avx512.inl"

#include "int_rows_avx512.inl"

#include "kernels_int.inl"

namespace kt {

void install_avx512_int(Kernels& table) { install_int_formats(table); }

}  // namespace kt
