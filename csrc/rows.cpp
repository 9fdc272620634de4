#include "rows.h"

#include "experts.h"

namespace kt {
namespace {

constexpr long kSerialRows = 4;  // so few rows are done by the caller alone

template <typename Job>
void each_row(Team& team, long rows, const Job& job) {
  if (rows <= kSerialRows) {
    for (long row = 0; row < rows; ++row) job(row);
    return;
  }
  const auto guard = team.lock();
  team.for_all(rows, [&](long row, int) { job(row); });
}

}  // namespace

void norm_rows(Team& team, const float* x, long rows, long stride, int groups, int width, const float* weight,
               float eps, float* out, long out_stride) {
  each_row(team, rows, [&](long row) {
    const float* from = x + row * stride;
    float* to = out + row * out_stride;
    for (int group = 0; group < groups; ++group, from += width, to += width)
      team.kernels().rms_norm(from, weight, eps, width, to);
  });
}

void silu_product_rows(Team& team, const float* both, long rows, long inner, float* out) {
  each_row(team, rows, [&](long row) {
    const float* gate = both + row * 2 * inner;
    team.kernels().gated_product(kSilu, gate, gate + inner, nullptr, nullptr, 1, static_cast<int>(inner),
                                 out + row * inner, static_cast<int>(inner));
  });
}

void add_rows(Team& team, const float* from, long rows, long width, float* to) {
  each_row(team, rows, [&](long row) {
    for (long i = row * width; i < (row + 1) * width; ++i) to[i] += from[i];
  });
}

}  // namespace kt
