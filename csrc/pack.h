// From a checkpoint's bytes to the tiles that kernels read (layouts in kernels.h).
#pragma once

#include <string>

#include "kernels.h"

namespace kt {

// A weight matrix of rows x columns (output x input features) as it lies in a checkpoint.
struct Source {
  Format format;
  const uint8_t* data;
  const void* scale;  // as the format's ScaleLayout says, or null
  long rows;
  long columns;
  Format stored;  // how it is to be packed: as it is, or as an integer format made from it (quantise.cpp)
};

// Scales that lie apart from the weights: [ceil(rows / row_block)][ceil(columns / column_block)], the other
// way round if transposed, and [rows] alone where column_block is 0.
enum ScaleType { kNoScale, kScaleF32, kScaleU8, kScaleU16 };
struct ScaleLayout {
  ScaleType type = kNoScale;
  int row_block = 1;
  int column_block = 0;
  bool transposed = false;
};

// How a format is stored: one row of the tables in pack.cpp (floats) and pack_int.cpp (integers).
struct Storage {
  Format format;
  int source_align;  // a source's columns are a multiple of this
  int depth_align;   // packed columns are padded to a multiple of this
  // Bytes of this many columns of one source row; null if checkpoints don't hold the format.
  size_t (*source_row_bytes)(long columns);
  size_t (*tile_bytes)(int depth);
  ScaleLayout scale;
  // Packs one tile; rows beyond the matrix become zero. Returns false on a number that is not finite where
  // no correct checkpoint holds one.
  bool (*pack)(const Source& source, long tile, int depth, uint8_t* out);
  // Says in a sentence where the first such number is.
  std::string (*describe)(const Source& source);
};

// Rows of the two tables, null for a format of the other one.
const Storage* float_storage(Format format);
const Storage* int_storage(Format format);

// Throws std::invalid_argument for a format that has no storage.
const Storage& storage(Format format);

Format format_from_name(const std::string& name);
const char* format_name(Format format);

// Bytes of one source row; throws std::invalid_argument where the format cannot hold such a row.
size_t source_row_bytes(Format format, long columns);

int padded_depth(Format format, long columns);
long tile_count(long rows);
size_t tile_bytes(Format format, int depth);

// Bytes of one prepared activation row, rounded up to whole cache lines.
size_t activation_bytes(Activation activation, int depth);

// Rows of one sweep of a panel path at this depth; more rows are cut into pieces, to keep the sums in the
// second-level cache, and the activations too where the path names their limit.
int sweep_rows(const PanelKernels& panel, int depth);

// Blocks that this many rows fill.
long panel_blocks(const PanelKernels& panel, long rows);

// Packs rows [16 * tile, 16 * tile + 16). Returns false when the source holds a weight or scale that is not a
// finite number or too large for the kernels; describe_fault then says where.
bool pack_tile(const Source& source, long tile, uint8_t* out);

// Formats that can be made from another, and the same for one of them.
bool can_quantise(Format from, Format to);
bool quantise_tile(const Source& source, long tile, uint8_t* out);
// Where the first weight is that quantise_tile refuses, and why.
std::string describe_quantisation(const Source& source);

std::string describe_fault(const Source& source);

// Shared by the two tables.
inline size_t round_up(size_t value, size_t step) { return (value + step - 1) / step * step; }
inline long present_rows(const Source& source, long tile) {
  return source.rows - tile * kTileRows < kTileRows ? source.rows - tile * kTileRows : kTileRows;
}

}  // namespace kt
