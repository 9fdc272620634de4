#include "router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kt {
namespace {

void softmax(float* values, int count) {
  const float largest = *std::max_element(values, values + count);
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += values[i] = std::exp(values[i] - largest);
  for (int i = 0; i < count; ++i) values[i] /= sum;
}

// Sets the scores of all but the best groups to minus infinity; a group counts as much as its two best
// together.
void keep_groups(const RouterShape& shape, float* choice) {
  const int size = shape.experts / shape.groups;
  std::vector<float> strength(static_cast<size_t>(shape.groups));
  for (int g = 0; g < shape.groups; ++g) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else if (choice[i] > second) {
        second = choice[i];
      }
    }
    strength[static_cast<size_t>(g)] = size > 1 ? first + second : first;
  }
  std::vector<int> order(static_cast<size_t>(shape.groups));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return strength[static_cast<size_t>(a)] > strength[static_cast<size_t>(b)];
  });
  for (int i = shape.keep; i < shape.groups; ++i)
    std::fill_n(choice + order[static_cast<size_t>(i)] * size, size, -INFINITY);
}

void route_token(const RouterShape& shape, const float* logits, const float* bias, int32_t* ids,
                 float* weights) {
  const auto experts = static_cast<size_t>(shape.experts);
  std::vector<float> scores(logits, logits + experts);
  if (shape.score == Score::kSigmoid)
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));
  else if (shape.score == Score::kSoftmax)
    softmax(scores.data(), shape.experts);
  std::vector<float> choice = scores;
  if (bias)
    for (size_t i = 0; i < experts; ++i) choice[i] += bias[i];
  if (shape.groups) keep_groups(shape, choice.data());
  std::vector<int32_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  // A NaN would break the ordering: it counts as the smallest value.
  const auto value = [&](int32_t i) {
    const float v = choice[static_cast<size_t>(i)];
    return std::isnan(v) ? -INFINITY : v;
  };
  std::partial_sort(order.begin(), order.begin() + shape.k, order.end(), [&](int32_t a, int32_t b) {
    return value(a) > value(b) || (value(a) == value(b) && a < b);
  });
  for (int j = 0; j < shape.k; ++j) {
    ids[j] = order[static_cast<size_t>(j)];
    weights[j] = scores[static_cast<size_t>(ids[j])];
  }
  if (shape.score == Score::kTopkSoftmax) softmax(weights, shape.k);
  if (shape.renormalise) {
    float sum = 1e-20f;
    for (int j = 0; j < shape.k; ++j) sum += weights[j];
    for (int j = 0; j < shape.k; ++j) weights[j] /= sum;
  }
  for (int j = 0; j < shape.k; ++j) weights[j] *= shape.scale;
}

}  // namespace

void route(Team& team, const RouterShape& shape, const float* logits, const float* bias, long tokens,
           int32_t* ids, float* weights, int64_t* hits) {
  const auto one = [&](long token, int) {
    route_token(shape, logits + token * shape.experts, bias, ids + token * shape.k,
                weights + token * shape.k);
  };
  if (tokens <= 4) {
    for (long token = 0; token < tokens; ++token) one(token, 0);
  } else {
    const auto guard = team.lock();
    team.for_all(tokens, one);
  }
  for (long i = 0; i < tokens * shape.k; ++i) ++hits[ids[i]];
}

}  // namespace kt
