#include "plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "rows.h"

namespace kt {
namespace {

void require(bool fits, const std::string& what) {
  if (!fits) throw std::invalid_argument(what);
}

std::string text(View view) { return std::to_string(view.width) + " columns"; }

}  // namespace

View Plan::buffer(long width, bool picked) {
  require(width > 0 && width <= (1l << 30),
          "a buffer needs between 1 and 2^30 columns, not " + std::to_string(width));
  buffers_.push_back({width, picked, -1, 0, 0, -1});
  return {static_cast<int>(buffers_.size()) - 1, 0, width};
}

void Plan::check(View view) const {
  require(
      view.buffer >= 0 && static_cast<size_t>(view.buffer) < buffers_.size() && view.offset >= 0 &&
          view.width > 0 && view.offset + view.width <= width(view),
      "a view of " + text(view) + " at column " + std::to_string(view.offset) + " lies outside its buffer");
}

void Plan::check_whole(View view) const {
  check(view);
  require(view.width == width(view),
          "an operation needs whole rows here, not " + text(view) + " of " + std::to_string(width(view)));
}

void Plan::tell(std::initializer_list<View> used, Operation operation) {
  const size_t index = operations_.size();
  const bool picked = buffers_[static_cast<size_t>(used.begin()->buffer)].picked;
  for (const View view : used) {
    Buffer& buffer = buffers_[static_cast<size_t>(view.buffer)];
    require(buffer.picked == picked, "an operation mixes all rows with the picked ones");
    if (buffer.last == 0) buffer.first = index;
    buffer.last = index + 1;
  }
  operations_.push_back(std::move(operation));
  assigned_ = false;
}

void Plan::norm(View from, View to, std::vector<float> weight, float eps) {
  check(from);
  check(to);
  const auto size = static_cast<long>(weight.size());
  require(size > 0 && from.width % size == 0 && from.width == to.width,
          "a norm of " + text(from) + " to " + text(to) + " with a weight of " + std::to_string(size));
  const auto groups = static_cast<int>(from.width / size);
  tell({from, to}, [this, from, to, groups, eps, weight = std::move(weight)](const Step&) {
    norm_rows(*team_, at(from), rows(from), width(from), groups, static_cast<int>(weight.size()),
              weight.data(), eps, at(to), width(to));
  });
}

void Plan::multiply(std::vector<std::shared_ptr<Linear>> maps, View from, View to, bool add) {
  check_whole(from);
  check(to);
  long outputs = 0;
  for (const auto& map : maps) {
    require(map->columns() == from.width,
            "a map of " + std::to_string(map->columns()) + " inputs is given " + text(from));
    outputs += map->rows();
  }
  require(outputs == to.width,
          "maps with " + std::to_string(outputs) + " outputs are told to fill " + text(to));
  std::vector<const Linear*> plain;
  for (const auto& map : maps) plain.push_back(map.get());
  tell({from, to}, [this, from, to, add, plain, maps = std::move(maps)](const Step&) {
    kt::multiply(plain, at(from), rows(from), at(to), width(to), add);
  });
}

void Plan::silu_product(View both, View to) {
  check_whole(both);
  check_whole(to);
  require(both.width == 2 * to.width, "gate and up of " + text(both) + " for a product of " + text(to));
  tell({both, to},
       [this, both, to](const Step&) { silu_product_rows(*team_, at(both), rows(both), to.width, at(to)); });
}

int Plan::rotation(std::vector<float> frequencies, bool interleaved) {
  rotations_.emplace_back(std::move(frequencies), interleaved);
  return static_cast<int>(rotations_.size()) - 1;
}

void Plan::attend(const AttentionShape& given, std::vector<float> sinks, int rotation, float* cache,
                  long tokens, View qkv, View to) {
  check_whole(qkv);
  check_whole(to);
  AttentionShape shape = given;
  const long wide = static_cast<long>(shape.heads + shape.kv_heads) * shape.key_dim +
                    static_cast<long>(shape.kv_heads) * shape.value_dim;
  require(
      qkv.width == wide && to.width == static_cast<long>(shape.heads) * shape.value_dim,
      "attention of " + std::to_string(shape.heads) + " heads is given " + text(qkv) + " and " + text(to));
  require(sinks.empty() || sinks.size() == static_cast<size_t>(shape.heads),
          std::to_string(sinks.size()) + " sinks for " + std::to_string(shape.heads) + " heads");
  require(rotation < static_cast<int>(rotations_.size()), "attention names a rotation that was not told");
  require(rotation < 0 ||
              2 * static_cast<long>(rotations_[static_cast<size_t>(rotation)].first.size()) <= shape.key_dim,
          "a rotation is wider than a head");
  float* values = cache + tokens * shape.kv_heads * shape.key_dim;
  tell({qkv, to},
       [this, shape, rotation, cache, values, tokens, qkv, to, sinks = std::move(sinks)](const Step& step) {
         AttentionShape own = shape;
         own.sinks = sinks.empty() ? nullptr : sinks.data();
         static const Rotation kNone;
         attend_grouped(*team_, step, own, rotation < 0 ? kNone : angles_[static_cast<size_t>(rotation)],
                        at(qkv), cache, values, tokens, at(to));
       });
}

void Plan::attend_latent(const AttentionShape& shape, float* cache, long tokens, View queries, View keys,
                         View to) {
  check_whole(queries);
  check_whole(keys);
  check_whole(to);
  require(queries.width == static_cast<long>(shape.heads) * shape.key_dim && keys.width == shape.key_dim &&
              to.width == static_cast<long>(shape.heads) * shape.value_dim &&
              shape.value_dim <= shape.key_dim,
          "latent attention of " + std::to_string(shape.heads) + " heads is given " + text(queries) + ", " +
              text(keys) + " and " + text(to));
  tell({queries, keys, to}, [this, shape, cache, tokens, queries, keys, to](const Step& step) {
    kt::attend_latent(*team_, step, shape, at(queries), at(keys), cache, tokens, at(to));
  });
}

void Plan::mix(std::shared_ptr<Experts> experts, const RouterShape& shape, std::vector<float> bias,
               int64_t* hits, View logits, View from, View to) {
  check_whole(logits);
  check_whole(from);
  check_whole(to);
  require(logits.width == shape.experts && experts->shape().count == shape.experts &&
              (bias.empty() || bias.size() == static_cast<size_t>(shape.experts)),
          "router, bias and experts must agree on a number of experts, not " + std::to_string(logits.width) +
              ", " + std::to_string(bias.size()) + " and " + std::to_string(experts->shape().count));
  require(from.width == experts->shape().hidden && to.width == from.width,
          "experts of width " + std::to_string(experts->shape().hidden) + " are given " + text(from) +
              " and " + text(to));
  const View made = buffer(to.width, buffers_[static_cast<size_t>(to.buffer)].picked);
  tell({logits, from, to, made}, [this, shape, hits, logits, from, to, made, experts = std::move(experts),
                                  bias = std::move(bias)](const Step&) {
    const long count = rows(from);
    ids_.resize(static_cast<size_t>(count) * shape.k);
    weights_.resize(ids_.size());
    route(*team_, shape, at(logits), bias.empty() ? nullptr : bias.data(), count, ids_.data(),
          weights_.data(), hits);
    experts->forward(at(from), {ids_.data(), weights_.data(), count, shape.k}, at(made));
    add_rows(*team_, at(made), count, to.width, at(to));
  });
}

void Plan::pick(View from, View to) {
  check_whole(from);
  check_whole(to);
  require(from.width == to.width && !buffers_[static_cast<size_t>(from.buffer)].picked &&
              buffers_[static_cast<size_t>(to.buffer)].picked,
          "rows are picked from " + text(from) + " to " + text(to) + " of picked rows");
  buffers_[static_cast<size_t>(to.buffer)].first = operations_.size();
  buffers_[static_cast<size_t>(to.buffer)].last = operations_.size() + 1;
  tell({from}, [this, from, to](const Step& step) {
    float* out = at(to);
    for (const long row : step.picked) {
      std::memcpy(out, at(from) + row * from.width, static_cast<size_t>(from.width) * sizeof(float));
      out += from.width;
    }
  });
}

void Plan::bind(View view) {
  check_whole(view);
  buffers_[static_cast<size_t>(view.buffer)].bound = bound_++;
}

// Buffers whose operations don't overlap share memory.
void Plan::assign() {
  std::vector<size_t> free_from;  // of each slot
  slots_.clear();
  std::vector<size_t> order(buffers_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers_[a].first < buffers_[b].first; });
  for (const size_t index : order) {
    Buffer& buffer = buffers_[index];
    if (buffer.bound >= 0) continue;
    int best = -1;
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (free_from[s] > buffer.first || slots_[s].second != buffer.picked) continue;
      const auto off = [&](size_t slot) { return std::abs(slots_[slot].first - buffer.width); };
      if (best < 0 || off(s) < off(static_cast<size_t>(best))) best = static_cast<int>(s);
    }
    if (best < 0) {
      best = static_cast<int>(slots_.size());
      slots_.emplace_back(0, buffer.picked);
      free_from.push_back(0);
    }
    auto& slot = slots_[static_cast<size_t>(best)];
    slot.first = std::max(slot.first, buffer.width);
    free_from[static_cast<size_t>(best)] = buffer.last;
    buffer.slot = best;
  }
  assigned_ = true;
}

void Plan::run(const Step& step, const std::vector<float*>& given) {
  require(given.size() == static_cast<size_t>(bound_), "a plan with " + std::to_string(bound_) +
                                                           " buffers of the caller's is given " +
                                                           std::to_string(given.size()));
  if (!assigned_) assign();
  const auto all = static_cast<long>(step.slots.size()), picked = static_cast<long>(step.picked.size());
  std::vector<size_t> begin;
  size_t floats = 0;
  for (const auto& [width, some] : slots_) {
    begin.push_back(floats);
    floats += (static_cast<size_t>(width) * static_cast<size_t>(some ? picked : all) + 15) / 16 * 16;
  }
  if (memory_.size() < floats * sizeof(float)) {
    memory_ = Memory();
    memory_ = Memory(floats * sizeof(float), -1);
  }
  auto* memory = reinterpret_cast<float*>(memory_.data());
  places_.clear();
  for (const Buffer& buffer : buffers_)
    places_.push_back({buffer.bound >= 0 ? given[static_cast<size_t>(buffer.bound)]
                                         : memory + begin[static_cast<size_t>(buffer.slot)],
                       buffer.picked ? picked : all, buffer.width});
  angles_.clear();
  for (const auto& [frequencies, interleaved] : rotations_)
    angles_.push_back(rotate_step(step, frequencies, interleaved));
  for (const Operation& operation : operations_) operation(step);
}

}  // namespace kt
