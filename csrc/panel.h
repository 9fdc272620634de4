// Panel multiplication: convert a slice of one or two tiles once, then sweep all activation rows over it.
#pragma once

#include "kernels.h"

namespace kt {

// Rows of one sweep; more rows are cut into pieces. Keeps the sums of a sweep in the second-level cache.
int sweep_rows(const FormatKernels& path);

// Rows rounded up to whole gemm steps.
long padded_rows(const FormatKernels& path, long rows);

// Dwords per activation row as the panel path reads it.
int panel_steps(const FormatKernels& path, int depth);

// Bytes that multiply_panel needs as `scratch`.
size_t panel_scratch_bytes(const FormatKernels& path);

// Interleaves prepared rows to the order of gemm: [block of panel_rows][step][panel_rows], block by block.
// `block` selects the block; out is where that block goes.
void interleave_block(const Kernels& kernels, const FormatKernels& path, const uint8_t* const* rows,
                      long count, long block, int depth, uint32_t* out);

// c0[row][16] = rows . tile0, and the same for tile1/c1 unless tile1 is null. `a` is interleaved.
void multiply_panel(const FormatKernels& path, const uint8_t* tile0, const uint8_t* tile1, int depth,
                    const uint32_t* a, int rows, uint8_t* scratch, float* c0, float* c1);

}  // namespace kt
