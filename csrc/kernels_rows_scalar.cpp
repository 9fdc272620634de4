// Operations on rows for any processor.

#include "rows_scalar.inl"

#include "kernels_rows.inl"

namespace kt {

void install_scalar_rows(Kernels& table) { install_rows(table); }

}  // namespace kt
