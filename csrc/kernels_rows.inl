// Operations on rows of activations: normalisation, rotation, attention over cached keys and values. Written
// once over 16 f32 (rows_scalar.inl, rows_avx2.inl or rows_avx512.inl, one of which is included before).

namespace kt {
namespace {

constexpr int kKeys = 64;  // positions whose scores are worked on at once
constexpr float kNever = -__builtin_inff();

float dot(const float* a, const float* b, int n) {
  Rows sums[2] = {zero_rows(), zero_rows()};
  int i = 0;
  for (; i + 2 * kTileRows <= n; i += 2 * kTileRows) {
    sums[0] = multiply_add(load_rows(a + i), load_rows(b + i), sums[0]);
    sums[1] = multiply_add(load_rows(a + i + kTileRows), load_rows(b + i + kTileRows), sums[1]);
  }
  float total = sum_of(sums[0]) + sum_of(sums[1]);
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
  const float factor = 1.0f / __builtin_sqrtf(dot(x, x, n) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

// Rotates pairs (i, i + half), or (2i, 2i + 1) if interleaved, of one head.
void rotate(float* head, const float* cosine, const float* sine, int half, bool interleaved) {
  const int step = interleaved ? 2 : 1;
  float* first = head;
  float* second = head + (interleaved ? 1 : half);
  for (int i = 0; i < half; ++i) {
    const float a = first[i * step], b = second[i * step];
    first[i * step] = a * cosine[i] - b * sine[i];
    second[i * step] = b * cosine[i] + a * sine[i];
  }
}

// c[m][16] (+)= a[m][k] . b[k][16]
template <int M>
void multiply_block(const float* a, int lda, const float* b, long ldb, float* c, int ldc, int depth,
                    bool add) {
  Rows sums[M];
  KT_UNROLL
  for (int m = 0; m < M; ++m) sums[m] = add ? load_rows(c + m * ldc) : zero_rows();
  for (int k = 0; k < depth; ++k) {
    const Rows row = load_rows(b + k * ldb);
    KT_UNROLL
    for (int m = 0; m < M; ++m) sums[m] = multiply_add_scalar(row, a + m * lda + k, sums[m]);
  }
  KT_UNROLL
  for (int m = 0; m < M; ++m) store_rows(c + m * ldc, sums[m]);
}

template <int M = kPanelRows>
void multiply_blocks(const float* a, int lda, const float* b, long ldb, float* c, int ldc, int rows,
                     int depth, bool add) {
  for (; rows >= M; rows -= M, a += M * lda, c += M * ldc)
    multiply_block<M>(a, lda, b, ldb, c, ldc, depth, add);
  if constexpr (M > 1)
    if (rows > 0) multiply_blocks<M - 1>(a, lda, b, ldb, c, ldc, rows, depth, add);
}

// c[rows][columns] (+)= a[rows][depth] . b[depth][columns], all row-major
void multiply_matrices(const float* a, int lda, const float* b, long ldb, float* c, int ldc, int rows,
                       int columns, int depth, bool add) {
  int n = 0;
  for (; n + kTileRows <= columns; n += kTileRows)
    multiply_blocks(a, lda, b + n, ldb, c + n, ldc, rows, depth, add);
  if (n == columns) return;
  for (int m = 0; m < rows; ++m) {
    float* to = c + m * ldc;
    if (!add)
      for (int j = n; j < columns; ++j) to[j] = 0.0f;
    for (int k = 0; k < depth; ++k)
      for (int j = n; j < columns; ++j) to[j] += a[m * lda + k] * b[k * ldb + j];
  }
}

// scores[query][kKeys] of `count` keys from a slot on. Keys that lie one by one are transposed first.
void score_keys(const AttendTask& task, const float* queries, long slot, int count, float* turned,
                float* scores) {
  const int many = task.rows * task.group, depth = task.key_dim;
  const int blocks = (count + kTileRows - 1) / kTileRows;
  if (task.key_stride == 0) {
    for (int b = 0; b < blocks; ++b)
      multiply_blocks(queries, depth, task.keys + (slot / kTileRows + b) * kTileRows * depth, kTileRows,
                      scores + b * kTileRows, kKeys, many, depth, false);
    return;
  }
  const float* keys = task.keys + slot * task.key_stride;
  for (int j = 0; j < blocks * kTileRows; ++j)
    for (int k = 0; k < depth; ++k) turned[k * kKeys + j] = j < count ? keys[j * task.key_stride + k] : 0.0f;
  multiply_matrices(queries, depth, turned, kKeys, scores, kKeys, many, blocks * kTileRows, depth, false);
}

// Turns one query's scores into weights, after taking what it has seen so far to the new largest score.
void weigh_scores(float* scores, int begin, int end, int count, float& peak, float& weight, float* sums,
                  int value_dim) {
  float lanes[8] = {peak, peak, peak, peak, peak, peak, peak, peak};
  int j = begin;
  for (; j + 8 <= end; j += 8)
    for (int i = 0; i < 8; ++i) lanes[i] = scores[j + i] > lanes[i] ? scores[j + i] : lanes[i];
  for (; j < end; ++j) lanes[0] = scores[j] > lanes[0] ? scores[j] : lanes[0];
  float largest = peak;
  for (int i = 0; i < 8; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  if (peak != largest && weight != 0.0f) {
    const float factor = exp_f32(peak - largest);
    weight *= factor;
    for (int d = 0; d < value_dim; ++d) sums[d] *= factor;
  }
  peak = largest;
  float partial[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  for (j = 0; j < begin; ++j) scores[j] = 0.0f;
  for (; j + 8 <= end; j += 8)
    for (int i = 0; i < 8; ++i) {
      scores[j + i] = exp_f32(scores[j + i] - largest);
      partial[i] += scores[j + i];
    }
  for (; j < end; ++j) {
    scores[j] = exp_f32(scores[j] - largest);
    partial[0] += scores[j];
  }
  for (j = end < begin ? begin : end; j < count; ++j) scores[j] = 0.0f;
  weight += ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
            ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

long clamp(long value, long low, long high) { return value < low ? low : value > high ? high : value; }

// One stretch of neighbouring slots, of positions from `first` on.
void attend_run(const AttendTask& task, const float* queries, long slot, long first, int count, float* turned,
                float* scores) {
  score_keys(task, queries, slot, count, turned, scores);
  for (int r = 0; r < task.rows; ++r) {
    const long seen = task.position + r + 1;  // positions that the row may look at, itself included
    const int end = static_cast<int>(clamp(seen - first, 0, count));
    const int begin = static_cast<int>(task.window ? clamp(seen - task.window - first, 0, end) : 0);
    for (int g = 0; g < task.group; ++g) {
      const int i = r * task.group + g;
      weigh_scores(scores + i * kKeys, begin, end, count, task.peaks[i], task.weights[i],
                   task.sums + static_cast<long>(i) * task.value_dim, task.value_dim);
    }
  }
  multiply_matrices(scores, kKeys, task.values + slot * task.value_stride, task.value_stride, task.sums,
                    task.value_dim, task.rows * task.group, task.value_dim, count, true);
}

void attend(const AttendTask& task) {
  const int many = task.rows * task.group;
  float* queries = task.scratch;
  float* turned = queries + static_cast<long>(many) * task.key_dim;
  float* scores = turned + static_cast<long>(kKeys) * task.key_dim;
  for (int i = 0; i < many; ++i) {
    const float* from = task.queries + i / task.group * task.query_stride + i % task.group * task.key_dim;
    for (int k = 0; k < task.key_dim; ++k) queries[i * task.key_dim + k] = from[k] * task.scale;
    task.peaks[i] = kNever;
    task.weights[i] = 0.0f;
  }
  memset(task.sums, 0, sizeof(float) * static_cast<size_t>(many) * static_cast<size_t>(task.value_dim));
  long first = 0;  // position of the run's first slot
  for (int run = 0; run < task.run_count; first += task.runs[run].count, ++run) {
    const long begin = clamp(task.begin - first, 0, task.runs[run].count);
    const long end = clamp(task.end - first, 0, task.runs[run].count);
    for (long at = begin; at < end; at += kKeys) {
      const int count = static_cast<int>(end - at < kKeys ? end - at : kKeys);
      attend_run(task, queries, task.runs[run].first + at, first + at, count, turned, scores);
    }
  }
}

size_t attend_scratch(int many, int key_dim) {
  return static_cast<size_t>(many + kKeys) * static_cast<size_t>(key_dim) + static_cast<size_t>(many) * kKeys;
}

// Branches on the biases lie outside the loops; n is a constant where it is a tile's.
template <bool kBiased>
inline __attribute__((always_inline)) void gated_rows(const Gating& gating, const float* __restrict gate,
                                                      const float* __restrict up, const float* gate_bias,
                                                      const float* up_bias, int rows, int n,
                                                      float* __restrict out, int stride) {
  const float limit = gating.limit, alpha = gating.alpha, shift = gating.shift;
  for (int i = 0; i < rows; ++i, gate += n, up += n, out += stride)
    for (int j = 0; j < n; ++j) {
      // A NaN passes all comparisons as it is.
      float g = kBiased ? gate[j] + gate_bias[j] : gate[j];
      float u = kBiased ? up[j] + up_bias[j] : up[j];
      g = g > limit ? limit : g;
      u = u > limit ? limit : u;
      u = u < -limit ? -limit : u;
      const float gated = g / (1.0f + exp_f32(-alpha * g));
      // exp_f32 clamps, so a NaN gate must be kept by hand.
      out[j] = (g == g ? gated : g) * (u + shift);
    }
}

void gated_product(const Gating& gating, const float* gate, const float* up, const float* gate_bias,
                   const float* up_bias, int rows, int n, float* out, int stride) {
  if (n == kTileRows && gate_bias)
    gated_rows<true>(gating, gate, up, gate_bias, up_bias, rows, kTileRows, out, stride);
  else if (n == kTileRows)
    gated_rows<false>(gating, gate, up, nullptr, nullptr, rows, kTileRows, out, stride);
  else if (gate_bias)
    gated_rows<true>(gating, gate, up, gate_bias, up_bias, rows, n, out, stride);
  else
    gated_rows<false>(gating, gate, up, nullptr, nullptr, rows, n, out, stride);
}

template <bool kBiased>
inline __attribute__((always_inline)) void add_tile(const Destination& to, const float* __restrict sums,
                                                    const float* __restrict bias, int width,
                                                    float* __restrict y) {
  const float weight = to.weight;
  if (to.first)
    for (int j = 0; j < width; ++j) y[j] = weight * (kBiased ? sums[j] + bias[j] : sums[j]);
  else
    for (int j = 0; j < width; ++j) y[j] += weight * (kBiased ? sums[j] + bias[j] : sums[j]);
}

template <bool kBiased>
void add_rows(const Destination* to, int rows, const float* sums0, const float* sums1, const float* bias,
              int width, float* y, long stride) {
  constexpr int kAhead = 8;  // each row lies on a page of its own
  for (int i = 0; i < rows; ++i, sums0 += kTileRows) {
    if (i + kAhead < rows) {
      const float* soon = y + to[i + kAhead].token * stride;
      __builtin_prefetch(soon, 1);
      if (sums1) __builtin_prefetch(soon + kTileRows, 1);
    }
    float* row = y + to[i].token * stride;
    if (width >= kTileRows)
      add_tile<kBiased>(to[i], sums0, bias, kTileRows, row);
    else
      add_tile<kBiased>(to[i], sums0, bias, width, row);
    if (!sums1) continue;
    if (width == 2 * kTileRows)
      add_tile<kBiased>(to[i], sums1 + i * kTileRows, bias + kTileRows, kTileRows, row + kTileRows);
    else
      add_tile<kBiased>(to[i], sums1 + i * kTileRows, bias + kTileRows, width - kTileRows, row + kTileRows);
  }
}

void add_weighted(const Destination* to, int rows, const float* sums0, const float* sums1, const float* bias,
                  int width, float* y, long stride) {
  if (bias)
    add_rows<true>(to, rows, sums0, sums1, bias, width, y, stride);
  else
    add_rows<false>(to, rows, sums0, sums1, sums0, width, y, stride);
}

[[maybe_unused]] void install_rows(Kernels& table) {
  table.rms_norm = rms_norm;
  table.rotate = rotate;
  table.attend = attend;
  table.attend_scratch = attend_scratch;
  table.gated_product = gated_product;
  table.add_weighted = add_weighted;
}

}  // namespace
}  // namespace kt
