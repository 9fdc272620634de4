// From a checkpoint's bytes to the tiles that kernels read (layouts in kernels.h).
#pragma once

#include <atomic>
#include <string>

#include "kernels.h"

namespace kt {

// A row-major weight matrix as it lies in a checkpoint: out_features rows of in_features columns.
struct Source {
  Format format;
  const uint8_t* data;
  const float* scale;  // fp8_block128: [ceil(rows/128)][ceil(columns/128)], else null
  long rows;
  long columns;
};

Format format_from_name(const std::string& name);
const char* format_name(Format format);

// Bytes of one source row; throws std::invalid_argument where the format cannot hold such a row.
size_t source_row_bytes(Format format, long columns);

// Columns are padded to a multiple of this.
int depth_align(Format format);
int padded_depth(Format format, long columns);
long tile_count(long rows);
size_t tile_bytes(Format format, int depth);

// Bytes of one prepared activation row, rounded up to whole cache lines.
size_t activation_bytes(Activation activation, int depth);

// Rows of one sweep of a panel path; more rows are cut into pieces, to keep the sums in the second-level
// cache.
int sweep_rows(const PanelKernels& panel);

// Blocks that this many rows fill.
long panel_blocks(const PanelKernels& panel, long rows);

// Packs rows [16 * tile, 16 * tile + 16); rows beyond the matrix become zero. Returns false when an FP8
// weight is NaN (code 0x7f or 0xff), which no correct checkpoint holds.
bool pack_tile(const Source& source, long tile, uint8_t* out);

// Where the first NaN of an FP8 matrix is, as a sentence.
std::string describe_nan(const Source& source);

// Throws when a scale is not a finite number.
void check_scales(const Source& source);

}  // namespace kt
