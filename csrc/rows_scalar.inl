// The vector of 16 rows as plain C, with which the kernels of rows_avx2.inl's kind can be built for any
// processor.
#include <stdint.h>
#include <string.h>

#include "kernels_shared.inl"

namespace kt {
namespace {

constexpr int kPanelRows = 4;

struct Rows {
  float value[kTileRows];
};

Rows zero_rows() { return {}; }
Rows load_rows(const float* p) {
  Rows rows;
  memcpy(rows.value, p, sizeof rows.value);
  return rows;
}
void store_rows(float* p, Rows rows) { memcpy(p, rows.value, sizeof rows.value); }
Rows multiply_add(Rows a, Rows b, Rows c) {
  for (int i = 0; i < kTileRows; ++i) c.value[i] += a.value[i] * b.value[i];
  return c;
}
Rows multiply_add_scalar(Rows a, const float* x, Rows c) {
  for (int i = 0; i < kTileRows; ++i) c.value[i] += a.value[i] * *x;
  return c;
}
float sum_of(Rows rows) {
  float half[8], quarter[4];
  for (int i = 0; i < 8; ++i) half[i] = rows.value[i] + rows.value[i + 8];
  for (int i = 0; i < 4; ++i) quarter[i] = half[i] + half[i + 4];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

}  // namespace
}  // namespace kt
