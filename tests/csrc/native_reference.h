// What a layer should give, in double precision, and how far a kernel may be from it.
#pragma once

#include "experts.h"
#include "native_weights.h"

namespace kt_test {

// Values of a matrix [rows][columns], read out with unit vectors through the scalar kernels.
inline std::vector<double> values_of(const Matrix& matrix) {
  static const auto team = make_team(1, "scalar");
  const long rows = matrix.source.rows, columns = matrix.source.columns;
  const kt::Linear linear(team, matrix.source, kt::kExact);
  std::vector<float> unit(static_cast<size_t>(columns * columns)), out(static_cast<size_t>(columns * rows));
  for (long k = 0; k < columns; ++k) unit[static_cast<size_t>(k * columns + k)] = 1.0f;
  linear.forward(unit.data(), columns, out.data());
  std::vector<double> values(out.size());
  for (long k = 0; k < columns; ++k)
    for (long r = 0; r < rows; ++r)
      values[static_cast<size_t>(r * columns + k)] = out[static_cast<size_t>(k * rows + r)];
  return values;
}

// The roundings of one variant: relative to each product, and as steps of the largest of 32 activations.
struct Rounding {
  double relative, step;
};

inline Rounding rounding_of(Form form, kt::Mode mode, const std::string& isa, long columns) {
  const bool integers = form.stored >= kt::kMxfp4;
  // Terms are larger than the weight that is their difference, at most eight times the block's largest.
  Rounding r{(4 + 2 * std::sqrt(static_cast<double>(columns))) * 0x1p-24 * (integers ? 8 : 1), 0};
  // The wide variants multiply rounded activations and, on tiles, rounded weights.
  const bool wide = isa.rfind("avx512_bf16", 0) == 0 || isa == "amx";
  if (wide && form.stored != kt::kF32) r.relative += 2 * 0x1p-8;
  if (integers) r.step = 0.51 / (mode == kt::kFast ? 127.0 : 254.0 * 127.0);
  return r;
}

// One product in double precision: value, and the sum of the magnitudes of its terms where each weight counts
// as the largest of its 32, and each activation likewise.
struct Product {
  double value, size;
};

inline Product multiply(const double* w, const double* x, long columns) {
  Product p{0, 0};
  for (long begin = 0; begin < columns; begin += 32) {
    const long end = std::min(begin + 32, columns);
    double w_peak = 0, x_peak = 0;
    for (long k = begin; k < end; ++k) {
      p.value += w[k] * x[k];
      w_peak = std::max(w_peak, std::fabs(w[k]));
      x_peak = std::max(x_peak, std::fabs(x[k]));
    }
    p.size += static_cast<double>(end - begin) * w_peak * x_peak;
  }
  return p;
}

inline double silu(double x) { return x / (1 + std::exp(-x)); }

// The values of gate, up and down of one expert.
struct ExpertValues {
  std::vector<double> gate, up, down;
};

// y [tokens][hidden] of an expert layer and the error allowed for each element.
inline void expected_experts(const std::vector<ExpertValues>& experts, long hidden, long intermediate,
                             const float* x, const kt::Routing& routing, Rounding rounding,
                             std::vector<double>& y, std::vector<double>& bound) {
  y.assign(static_cast<size_t>(routing.tokens * hidden), 0);
  bound.assign(y.size(), 1e-30);
  const double unit = rounding.relative + rounding.step;
  std::vector<double> row(static_cast<size_t>(hidden)), h(static_cast<size_t>(intermediate)), miss(h.size());
  for (long route = 0; route < routing.tokens * routing.per_token; ++route) {
    if (routing.ids[route] < 0) continue;
    const ExpertValues& expert = experts[static_cast<size_t>(routing.ids[route])];
    const long token = route / routing.per_token;
    for (long k = 0; k < hidden; ++k) row[static_cast<size_t>(k)] = x[token * hidden + k];
    for (long j = 0; j < intermediate; ++j) {
      const Product g = multiply(expert.gate.data() + j * hidden, row.data(), hidden);
      const Product u = multiply(expert.up.data() + j * hidden, row.data(), hidden);
      const auto at = static_cast<size_t>(j);
      h[at] = silu(g.value) * u.value;
      // |d silu| <= 1.1 |d gate|, and both may be off at once.
      const double dg = unit * g.size, du = unit * u.size;
      miss[at] = 1.1 * dg * std::fabs(u.value) + (std::fabs(silu(g.value)) + 1.1 * dg) * du +
                 1e-6 * std::fabs(h[at]);
    }
    for (long i = 0; i < hidden; ++i) {
      const double* down = expert.down.data() + i * intermediate;
      const Product p = multiply(down, h.data(), intermediate);
      double carried = 0;
      for (long j = 0; j < intermediate; ++j) carried += std::fabs(down[j]) * miss[static_cast<size_t>(j)];
      const double weight = routing.weights[route];
      y[static_cast<size_t>(token * hidden + i)] += weight * p.value;
      bound[static_cast<size_t>(token * hidden + i)] += 1.2 * std::fabs(weight) * (unit * p.size + carried);
    }
  }
}

// The largest error as a share of what is allowed; infinite for what is not a number.
inline double worst_share(const Exact<float>& got, const std::vector<double>& expected,
                          const std::vector<double>& bound) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double share = std::fabs(static_cast<double>(got[i]) - expected[i]) / bound[i];
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

}  // namespace kt_test
