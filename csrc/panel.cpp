#include "panel.h"

#include <algorithm>
#include <cstring>

namespace kt {

int sweep_rows(const FormatKernels& path) { return 480 / path.panel_rows * path.panel_rows; }

long padded_rows(const FormatKernels& path, long rows) {
  return (rows + path.panel_rows - 1) / path.panel_rows * path.panel_rows;
}

int panel_steps(const FormatKernels& path, int depth) { return depth / path.per_dword; }

size_t panel_scratch_bytes(const FormatKernels& path) {
  return size_t{2} * static_cast<size_t>(path.chunk / path.per_dword) * kTileRows * 4;
}

void interleave_block(const Kernels& kernels, const FormatKernels& path, const uint8_t* const* rows,
                      long count, long block, int depth, uint32_t* out) {
  const uint32_t* pointers[kMaxPanelRows];
  const long first = block * path.panel_rows;
  const int m = static_cast<int>(std::min<long>(path.panel_rows, count - first));
  for (int i = 0; i < m; ++i) pointers[i] = reinterpret_cast<const uint32_t*>(rows[first + i]);
  kernels.interleave(pointers, m, path.panel_rows, panel_steps(path, depth), out);
}

void multiply_panel(const FormatKernels& path, const uint8_t* tile0, const uint8_t* tile1, int depth,
                    const uint32_t* a, int rows, uint8_t* scratch, float* c0, float* c1) {
  const int steps = panel_steps(path, depth);
  const size_t sums = static_cast<size_t>(rows) * kTileRows * sizeof(float);
  std::memset(c0, 0, sums);
  if (tile1) std::memset(c1, 0, sums);
  auto* panel0 = reinterpret_cast<uint32_t*>(scratch);
  uint32_t* panel1 = tile1 ? panel0 + static_cast<size_t>(path.chunk / path.per_dword) * kTileRows : nullptr;
  for (int begin = 0; begin < depth; begin += path.chunk) {
    const int end = std::min(depth, begin + path.chunk);
    const float scale0 = path.convert(tile0, depth, begin, end, panel0);
    const float scale1 = tile1 ? path.convert(tile1, depth, begin, end, panel1) : 0.0f;
    for (int row = 0; row < rows; row += path.panel_rows) {
      const uint32_t* block =
          a + (static_cast<size_t>(row) * static_cast<size_t>(steps) +
               static_cast<size_t>(begin / path.per_dword) * static_cast<size_t>(path.panel_rows));
      path.gemm(block, panel0, panel1, (end - begin) / path.per_dword, std::min(path.panel_rows, rows - row),
                c0 + static_cast<size_t>(row) * kTileRows,
                tile1 ? c1 + static_cast<size_t>(row) * kTileRows : nullptr, scale0, scale1);
    }
  }
}

}  // namespace kt
