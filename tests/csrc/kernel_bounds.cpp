// The kernels themselves on memory of exactly the size that the layouts of kernels.h promise: the address
// sanitizer sees any step beyond a tile, a prepared row, a block of a panel, scratch or results.
#include "native_weights.h"

namespace {

using namespace kt_test;
using kt::FormatKernels;
using kt::Kernels;

long failures = 0;

void expect_finite(const Exact<float>& values, size_t count, const std::string& what) {
  for (size_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i])) {
      ++failures;
      std::printf("FAIL: %s gives a number that is not finite\n", what.c_str());
      return;
    }
}

struct Prepared {
  std::vector<Exact<uint8_t>> memory;
  std::vector<const uint8_t*> rows;
};

Prepared prepare(const Kernels& kernels, kt::Activation activation, long columns, int depth, int count,
                 Random& random) {
  Prepared made;
  for (int i = 0; i < count; ++i) {
    const Exact<float> x = random_rows(1, columns, 1, random);
    // A row that is read as it is has no padding to a cache line.
    const size_t bytes =
        activation == kt::kActF32 ? static_cast<size_t>(depth) * 4 : kt::activation_bytes(activation, depth);
    made.memory.emplace_back(bytes);
    std::memset(made.memory.back().data(), 0, bytes);
    kernels.prepare[activation](x.data(), 0, static_cast<int>(columns), depth, made.memory.back().data());
    made.rows.push_back(made.memory.back().data());
  }
  return made;
}

Exact<uint8_t> packed(const kt::Source& source, long tile, int depth) {
  Exact<uint8_t> out(kt::tile_bytes(source.stored, depth));
  if (!kt::pack_tile(source, tile, out.data())) {
    ++failures;
    std::printf("FAIL: %s\n", kt::describe_fault(source).c_str());
  }
  return out;
}

void try_kernels(const Kernels& kernels, Form form, kt::Mode mode, long columns, Random& random) {
  const FormatKernels& path = kernels.formats[form.stored][mode];
  if (!path.gemv) return;
  const int depth = kt::padded_depth(form.stored, columns);
  const std::string what = form.name() + (mode == kt::kFast ? " fast " : " exact ") + kernels.name + ", " +
                           std::to_string(columns) + " columns";
  const Matrix matrix = random_matrix(form, 17, columns, random);
  const Exact<uint8_t> tile0 = packed(matrix.source, 0, depth), tile1 = packed(matrix.source, 1, depth);
  for (const int m : {1, 2, 3, 4, 5, 6, 7, 9, 16, 33}) {
    const Prepared x = prepare(kernels, path.activation, columns, depth, m, random);
    Exact<float> out(static_cast<size_t>(m) * kt::kTileRows);
    path.gemv(tile0.data(), depth, x.rows.data(), m, out.data());
    expect_finite(out, out.size(), what);
    path.gemv(tile1.data(), depth, x.rows.data(), m, out.data());
    expect_finite(out, out.size(), what);
    for (size_t i = 0; i < out.size(); ++i)
      if (i % kt::kTileRows && std::fabs(out[i]) > 1e-30f) {  // an MXFP4 kernel subtracts tiny numbers
        ++failures;
        std::printf("FAIL: %s: row %zu behind the matrix gives %g\n", what.c_str(), i % kt::kTileRows,
                    out[i]);
        break;
      }
  }
  const kt::PanelKernels& panel = path.panel;
  if (!panel.rows) return;
  for (const int m : {1, panel.rows - 1, panel.rows, panel.rows + 1, 3 * panel.rows - 1}) {
    if (m < 1) continue;
    const Prepared x = prepare(kernels, panel.activation, columns, depth, m, random);
    const auto blocks = static_cast<size_t>(kt::panel_blocks(panel, m));
    const size_t block_bytes = panel.block_bytes(depth);
    Exact<uint8_t> arranged(blocks * block_bytes), scratch(panel.scratch_bytes(depth));
    std::memset(arranged.data(), 0xff, arranged.size());
    if (scratch.size()) std::memset(scratch.data(), 0xff, scratch.size());
    for (size_t b = 0; b < blocks; ++b) {
      const int first = static_cast<int>(b) * panel.rows;
      panel.arrange(x.rows.data() + first, std::min(panel.rows, m - first), depth,
                    arranged.data() + b * block_bytes);
    }
    const size_t floats = blocks * static_cast<size_t>(panel.rows) * kt::kTileRows;
    const size_t meant = static_cast<size_t>(m) * kt::kTileRows;
    for (const bool two : {false, true}) {
      Exact<float> c0(floats), c1(two ? floats : 0);
      panel.multiply(tile0.data(), two ? tile1.data() : nullptr, depth, arranged.data(), m, scratch.data(),
                     c0.data(), c1.data());
      expect_finite(c0, meant, what + ", panel");
      if (two) expect_finite(c1, meant, what + ", panel");
    }
  }
}

}  // namespace

int main() {
  Random random(choose_seed());
  for (const std::string& isa : tested_isas()) {
    const Kernels& kernels = kt::kernels_for(isa);
    for (const Form form : all_forms())
      for (const kt::Mode mode : {kt::kExact, kt::kFast})
        for (const long columns : edge_columns(form)) try_kernels(kernels, form, mode, columns, random);
    // Deep enough for kernels that work in slices of the depth.
    for (const Form form :
         {Form{kt::kF32, kt::kF32}, Form{kt::kBf16, kt::kBf16}, Form{kt::kFp8Channel, kt::kFp8Channel},
          Form{kt::kFp8Block128, kt::kFp8Block128}, Form{kt::kBf16, kt::kInt8}})
      for (const kt::Mode mode : {kt::kExact, kt::kFast})
        for (const long columns : {255, 256, 257, 1030}) try_kernels(kernels, form, mode, columns, random);
    for (const Form form : all_forms())
      for (const kt::Mode mode : {kt::kExact, kt::kFast})
        if (form.source == form.stored && kt::storage(form.source).source_align > 1)
          try_kernels(kernels, form, mode, 1280, random);
  }
  std::printf("kernel_bounds: %ld failures\n", failures);
  return failures ? 1 : 0;
}
