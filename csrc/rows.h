// Norms and gates of rows of activations.
#pragma once

#include "team.h"

namespace kt {

// out = x / sqrt(mean(x^2) + eps) * weight over each of the `groups` runs of `width` numbers in a row. Rows
// lie stride numbers apart; out may be x.
void norm_rows(Team& team, const float* x, long rows, long stride, int groups, int width, const float* weight,
               float eps, float* out, long out_stride);

// out [rows][inner] = silu(gate) * up of rows [gate | up].
void silu_product_rows(Team& team, const float* both, long rows, long inner, float* out);

// to += from, both [rows][width].
void add_rows(Team& team, const float* from, long rows, long width, float* to);

}  // namespace kt
