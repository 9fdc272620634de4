#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace kt {
namespace {

constexpr long kSplit = 512;      // positions of one task when a single row looks at a long history
constexpr int kTaskQueries = 96;  // queries that share a block of keys, as far as there are so many
constexpr int kTaskHeads = 32;    // and query heads among them
constexpr long kSerialWork =
    1 << 15;  // multiplications below which waking the team costs more than it brings

// Query heads [head, head + heads), which share a key head, of rows [first, first + rows) of a segment, and
// positions [begin, end).
struct Task {
  const Segment* segment;
  int kv_head, head, heads;
  long first, rows, begin, end;
  size_t partial;  // index of its results where a history is split
  int splits;      // tasks that share these rows; results are joined when there are several
};

struct Work {
  const AttentionShape& shape;
  const float* queries;
  long query_stride;  // floats between rows; heads are neighbours
  const float* keys;
  const float* values;
  long key_head_stride, value_head_stride, key_stride, value_stride;
  float* out;
  long out_stride;
};

std::vector<Task> cut(const Step& step, const AttentionShape& shape) {
  const int group = shape.heads / shape.kv_heads;
  const long rows_per_task = std::max(1, kTaskQueries / std::min(group, kTaskHeads));
  std::vector<Task> tasks;
  size_t partial = 0;
  for (const Segment& segment : step.segments) {
    const long count = segment.end - segment.begin;
    for (long first = 0; first < count; first += rows_per_task) {
      const long rows = std::min(rows_per_task, count - first);
      const long last = segment.past + first + rows;  // positions that the last row sees
      const long start =
          shape.window ? std::max(0l, segment.past + first + 1 - shape.window) / kTileRows * kTileRows : 0;
      const long splits = count == 1 ? std::max(1l, (last - start + kSplit - 1) / kSplit) : 1;
      for (int head = 0; head < shape.heads;) {
        const int kv_head = head / group, heads = std::min(kTaskHeads, (kv_head + 1) * group - head);
        for (long s = 0; s < splits; ++s)
          tasks.push_back({&segment, kv_head, head, heads, first, rows, start + s * kSplit,
                           splits > 1 ? std::min(last, start + (s + 1) * kSplit) : last,
                           splits > 1 ? partial++ : 0, static_cast<int>(splits)});
        head += heads;
      }
    }
  }
  return tasks;
}

// Where a task puts peaks, weights and sums: 2 + value_dim floats a query.
size_t result_floats(const AttentionShape& shape, long queries) {
  return static_cast<size_t>(queries) * static_cast<size_t>(2 + shape.value_dim);
}

void run_task(const Kernels& kernels, const Work& work, const Task& task, float* results, float* scratch) {
  const AttentionShape& shape = work.shape;
  const long queries = task.rows * task.heads;
  AttendTask native{};
  native.queries = work.queries + (task.segment->begin + task.first) * work.query_stride +
                   static_cast<long>(task.head) * shape.key_dim;
  native.query_stride = work.query_stride;
  native.rows = static_cast<int>(task.rows);
  native.group = task.heads;
  native.keys = work.keys + task.kv_head * work.key_head_stride;
  native.values = work.values + task.kv_head * work.value_head_stride;
  native.key_stride = work.key_stride;
  native.value_stride = work.value_stride;
  native.key_dim = shape.key_dim;
  native.value_dim = shape.value_dim;
  native.runs = task.segment->runs.data();
  native.run_count = static_cast<int>(task.segment->runs.size());
  native.begin = task.begin;
  native.end = task.end;
  native.position = task.segment->past + task.first;
  native.window = shape.window;
  native.scale = shape.scale;
  native.scratch = scratch;
  native.peaks = results;
  native.weights = results + queries;
  native.sums = results + 2 * queries;
  kernels.attend(native);
}

// Joins the results of tasks that looked at parts of one history, and divides by the sum of the weights.
void finish(const Work& work, const Task& task, const float* const* results, int count) {
  const AttentionShape& shape = work.shape;
  const long queries = task.rows * task.heads;
  for (long i = 0; i < queries; ++i) {
    const int head = task.head + static_cast<int>(i % task.heads);
    float peak = shape.sinks ? shape.sinks[head] : -INFINITY;
    for (int s = 0; s < count; ++s) peak = std::max(peak, results[s][i]);
    float weight = shape.sinks ? std::exp(shape.sinks[head] - peak) : 0.0f;
    float* to = work.out + (task.segment->begin + task.first + i / task.heads) * work.out_stride +
                head * shape.value_dim;
    std::fill(to, to + shape.value_dim, 0.0f);
    for (int s = 0; s < count; ++s) {
      if (results[s][queries + i] == 0.0f) continue;
      const float factor = std::exp(results[s][i] - peak);
      weight += factor * results[s][queries + i];
      const float* sums = results[s] + 2 * queries + i * shape.value_dim;
      for (int d = 0; d < shape.value_dim; ++d) to[d] += factor * sums[d];
    }
    const float inverse = 1.0f / weight;
    for (int d = 0; d < shape.value_dim; ++d) to[d] *= inverse;
  }
}

void run(Team& team, const Step& step, const Work& work) {
  const AttentionShape& shape = work.shape;
  const std::vector<Task> tasks = cut(step, shape);
  size_t longest = 0, partials = 0;
  int queries = 0;
  long multiplications = 0;
  for (const Task& task : tasks) {
    const long count = task.rows * task.heads;
    queries = std::max(queries, static_cast<int>(count));
    longest = std::max(longest, result_floats(shape, count));
    partials += task.splits > 1;
    multiplications += count * (task.end - task.begin) * (shape.key_dim + shape.value_dim);
  }
  const size_t scratch = team.kernels().attend_scratch(queries, shape.key_dim);
  team.reserve_scratch((longest + scratch) * sizeof(float));
  const size_t partial_floats = result_floats(shape, kTaskHeads);
  auto* shared = reinterpret_cast<float*>(team.workspace(partials * partial_floats * sizeof(float)));
  const auto one = [&](long index, int worker) {
    const Task& task = tasks[static_cast<size_t>(index)];
    auto* own = reinterpret_cast<float*>(team.scratch(worker));
    float* results = task.splits > 1 ? shared + task.partial * partial_floats : own;
    run_task(team.kernels(), work, task, results, own + longest);
    if (task.splits == 1) finish(work, task, &results, 1);
  };
  if (multiplications < kSerialWork) {
    for (size_t i = 0; i < tasks.size(); ++i) one(static_cast<long>(i), 0);
  } else {
    team.for_all(static_cast<long>(tasks.size()), one);
  }
  std::vector<const float*> results;
  for (size_t i = 0; i < tasks.size(); i += static_cast<size_t>(tasks[i].splits)) {
    if (tasks[i].splits == 1) continue;
    results.clear();
    for (int s = 0; s < tasks[i].splits; ++s)
      results.push_back(shared + tasks[i + static_cast<size_t>(s)].partial * partial_floats);
    finish(work, tasks[i], results.data(), tasks[i].splits);
  }
}

void check_slots(const Step& step, long tokens, long align) {
  for (const Segment& segment : step.segments)
    for (const Slots& run : segment.runs) {
      const bool last = &run == &segment.runs.back();
      if (run.first % align != 0 || (!last && run.count % align != 0) || tokens % align != 0)
        throw std::invalid_argument("slots lie in whole blocks of " + std::to_string(align) +
                                    ", but a run of " + std::to_string(run.count) + " begins at " +
                                    std::to_string(run.first) + " of " + std::to_string(tokens));
      if (run.first < 0 || run.first + run.count > tokens)
        throw std::invalid_argument("slots " + std::to_string(run.first) + " to " +
                                    std::to_string(run.first + run.count) + " lie outside a cache of " +
                                    std::to_string(tokens) + " tokens");
    }
}

// Calls job(row) for each row of the step, with the team when there are many.
template <typename Job>
void each_row(Team& team, const Step& step, const Job& job) {
  const long rows = static_cast<long>(step.slots.size());
  if (rows <= 4) {
    for (long row = 0; row < rows; ++row) job(row);
  } else {
    team.for_all(rows, [&](long row, int) { job(row); });
  }
}

}  // namespace

void Step::check_and_place() {
  long row = 0;
  slots.clear();
  for (const Segment& segment : segments) {
    if (segment.begin != row || segment.end <= segment.begin || segment.past < 0)
      throw std::invalid_argument(
          "the segments of a step must lie one behind the other, each with new tokens");
    row = segment.end;
    long position = 0;
    for (const Slots& run : segment.runs) {
      if (run.count <= 0) throw std::invalid_argument("a run of slots must hold at least one token");
      for (long i = std::max(0l, segment.past - position); i < run.count; ++i) slots.push_back(run.first + i);
      position += run.count;
    }
    if (position != segment.past + segment.end - segment.begin)
      throw std::invalid_argument("a segment has " + std::to_string(position) + " slots for " +
                                  std::to_string(segment.past + segment.end - segment.begin) + " tokens");
  }
  for (const long row : picked)
    if (row < 0 || row >= static_cast<long>(slots.size()))
      throw std::invalid_argument("logits are wanted of row " + std::to_string(row) + " of a step of " +
                                  std::to_string(slots.size()));
}

Rotation rotate_step(const Step& step, const std::vector<float>& frequencies, bool interleaved) {
  Rotation rotation{{}, {}, static_cast<int>(frequencies.size()), interleaved};
  rotation.cosine.reserve(step.slots.size() * frequencies.size());
  rotation.sine.reserve(step.slots.size() * frequencies.size());
  for (const Segment& segment : step.segments)
    for (long row = segment.begin; row < segment.end; ++row)
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(segment.past + row - segment.begin) * frequency;
        rotation.cosine.push_back(std::cos(angle));
        rotation.sine.push_back(std::sin(angle));
      }
  return rotation;
}

void attend_grouped(Team& team, const Step& step, const AttentionShape& shape, const Rotation& rotation,
                    float* qkv, float* keys, float* values, long tokens, float* out) {
  check_slots(step, tokens, kTileRows);
  const auto guard = team.lock();
  const long rotated = shape.heads + shape.kv_heads;
  const long width = rotated * shape.key_dim + static_cast<long>(shape.kv_heads) * shape.value_dim;
  each_row(team, step, [&](long row) {
    float* at = qkv + row * width;
    const long slot = step.slots[static_cast<size_t>(row)];
    if (rotation.half)
      for (long head = 0; head < rotated; ++head)
        team.kernels().rotate(at + head * shape.key_dim, rotation.cosine.data() + row * rotation.half,
                              rotation.sine.data() + row * rotation.half, rotation.half,
                              rotation.interleaved);
    const float* key = at + static_cast<long>(shape.heads) * shape.key_dim;
    const float* value = at + rotated * shape.key_dim;
    for (long head = 0; head < shape.kv_heads; ++head) {
      float* to = keys + (head * tokens + slot / kTileRows * kTileRows) * shape.key_dim + slot % kTileRows;
      for (int k = 0; k < shape.key_dim; ++k) to[k * kTileRows] = key[head * shape.key_dim + k];
      std::memcpy(values + (head * tokens + slot) * shape.value_dim, value + head * shape.value_dim,
                  static_cast<size_t>(shape.value_dim) * sizeof(float));
    }
  });
  run(team, step,
      {shape, qkv, width, keys, values, tokens * shape.key_dim, tokens * shape.value_dim, 0, shape.value_dim,
       out, static_cast<long>(shape.heads) * shape.value_dim});
}

void attend_latent(Team& team, const Step& step, const AttentionShape& shape, const float* queries,
                   const float* new_keys, float* cache, long tokens, float* out) {
  check_slots(step, tokens, 1);
  const auto guard = team.lock();
  each_row(team, step, [&](long row) {
    std::memcpy(cache + step.slots[static_cast<size_t>(row)] * shape.key_dim, new_keys + row * shape.key_dim,
                static_cast<size_t>(shape.key_dim) * sizeof(float));
  });
  run(team, step,
      {shape, queries, static_cast<long>(shape.heads) * shape.key_dim, cache, cache, 0, 0, shape.key_dim,
       shape.key_dim, out, static_cast<long>(shape.heads) * shape.value_dim});
}

}  // namespace kt
