// The choice of experts.
#pragma once

#include "team.h"

namespace kt {

enum class Score { kSigmoid, kSoftmax, kTopkSoftmax };

struct RouterShape {
  int experts, k;
  Score score;
  int groups, keep;  // groups that the experts fall into and how many are kept; 0: no groups
  bool renormalise;
  float scale;
};

// logits [tokens][experts], bias [experts] or null (moves the choice, never the weights); ids and weights
// [tokens][k], best first, equals in the order of their numbers. hits [experts] counts the choices.
void route(Team& team, const RouterShape& shape, const float* logits, const float* bias, long tokens,
           int32_t* ids, float* weights, int64_t* hits);

}  // namespace kt
