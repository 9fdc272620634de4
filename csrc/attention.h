// Attention of a step's rows over the paged key-value cache of one layer.
#pragma once

#include <memory>
#include <vector>

#include "team.h"

namespace kt {

// One sequence's part of a step: rows [begin, end) of the batch are its next tokens, behind `past` older
// ones.
struct Segment {
  long begin, end, past;
  std::vector<Slots> runs;  // the slots of all its tokens, the new ones included, in order
};

// What the operations of a step share.
struct Step {
  std::vector<Segment> segments;
  std::vector<long> picked;  // rows whose logits are wanted
  std::vector<long> slots;   // of each row

  // Throws std::invalid_argument when segments are not contiguous, their runs do not hold their tokens or a
  // picked row does not exist.
  void check_and_place();
};

// How the rows of a step are rotated: [rows][half] cosines and sines; half 0: not at all.
struct Rotation {
  std::vector<float> cosine, sine;
  int half = 0;
  bool interleaved = false;
};

// The rotation of each row's position in its sequence by angles of position * frequency.
Rotation rotate_step(const Step& step, const std::vector<float>& frequencies, bool interleaved);

struct AttentionShape {
  int heads, kv_heads;
  int key_dim, value_dim;
  float scale;
  long window;         // 0: all positions
  const float* sinks;  // [heads] or null: a score that takes part in the softmax without a value
};

// Grouped-query attention. `qkv` is [rows][(heads + kv_heads) * key_dim + kv_heads * value_dim] and is
// changed: the first 2 * rotation.half values of each query and key head are rotated. `keys` is
// [kv_heads][tokens / 16][key_dim][16], so that the scores of 16 positions are computed side by side;
// `values` is [kv_heads][tokens][value_dim]. New keys and values are written to them. `out` is [rows][heads *
// value_dim].
void attend_grouped(Team& team, const Step& step, const AttentionShape& shape, const Rotation& rotation,
                    float* qkv, float* keys, float* values, long tokens, float* out);

// Multi-head latent attention in its absorbed form: all heads share the key [latent | rotary] of a token,
// whose first value_dim numbers are its value as well. `queries` is [rows][heads][key_dim], `new_keys`
// [rows][key_dim], `cache` [tokens][key_dim]; nothing is rotated here. `out` is [rows][heads][value_dim].
void attend_latent(Team& team, const Step& step, const AttentionShape& shape, const float* queries,
                   const float* new_keys, float* cache, long tokens, float* out);

}  // namespace kt
