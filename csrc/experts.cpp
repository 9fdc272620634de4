#include "experts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "experts_pass.h"

namespace kt {
namespace {

// Of one forward, so that prepared activations stay below some hundred megabytes.
constexpr long kTokensAtOnce = 16384;
constexpr long kCopyBytes = 1 << 20;

}  // namespace

Experts::Phase::Phase(const Kernels& kernels, StoredAs as, Mode mode, long rows, long columns)
    : path(kernels.formats[as.stored][mode]),
      depth(padded_depth(as.stored, columns)),
      tiles(tile_count(rows)),
      tile_bytes(kt::tile_bytes(as.stored, depth)) {
  if (!path.gemv)
    throw std::invalid_argument(std::string("experts in format ") + format_name(as.stored) +
                                " are not supported");
}

Experts::Experts(std::shared_ptr<Team> team, const ExpertsShape& shape)
    : team_(std::move(team)),
      shape_(shape),
      inner_(team_->kernels(), shape.inner, shape.mode, shape.intermediate, shape.hidden),
      outer_(team_->kernels(), shape.outer, shape.mode, shape.hidden, shape.intermediate),
      loaded_(static_cast<size_t>(shape.count), false),
      biases_(static_cast<size_t>(shape.count)) {
  const auto guard = team_->lock();
  for (int group = 0; group < team_->groups(); ++group) {
    // Intermediate rows are shared out in pairs of tiles, the unit in which activations are quantised.
    const Range pairs = team_->group_share((inner_.tiles + 1) / 2, group);
    Part part{{std::min(pairs.begin * 2, inner_.tiles), std::min(pairs.end * 2, inner_.tiles)},
              team_->group_share(outer_.tiles, group),
              0,
              team_->groups() > 1 ? team_->node(group) : -1,
              {}};
    part.expert_bytes = round_up(down_offset(part, part.outer.end), 4096);
    part.memory = Memory(part.expert_bytes * static_cast<size_t>(shape.count), part.node);
    team_->add_note(part.memory.note());
    parts_.push_back(std::move(part));
  }
}

void Experts::check_expert(int expert) const {
  if (expert < 0 || expert >= shape_.count)
    throw std::invalid_argument("expert " + std::to_string(expert) + " does not exist; there are " +
                                std::to_string(shape_.count));
}

std::vector<float> Experts::padded_biases(int expert, const Biases& biases) const {
  if (!biases.gate && !biases.up && !biases.down) return {};
  const auto inner = static_cast<size_t>(inner_.tiles) * kTileRows;
  std::vector<float> all(2 * inner + static_cast<size_t>(outer_.tiles) * kTileRows, 0.0f);
  const auto put = [&](const char* name, const float* from, long count, size_t at) {
    for (long i = 0; from && i < count; ++i) {
      if (!std::isfinite(from[i]))
        throw std::invalid_argument("expert " + std::to_string(expert) + ", " + name + ": bias " +
                                    std::to_string(i) + " is not a finite number; the checkpoint is damaged");
      all[at + static_cast<size_t>(i)] = from[i];
    }
  };
  put("gate", biases.gate, shape_.intermediate, 0);
  put("up", biases.up, shape_.intermediate, inner);
  put("down", biases.down, shape_.hidden, 2 * inner);
  return all;
}

void Experts::load(int expert, const Source& gate, const Source& up, const Source& down,
                   const Biases& biases) {
  check_expert(expert);
  const auto number = static_cast<size_t>(expert);
  std::vector<float> padded = padded_biases(expert, biases);
  const auto guard = team_->lock();
  const bool replaces = loaded_[number];
  std::vector<Memory> aside;
  std::vector<uint8_t*> to;  // by part
  // Items are first the tiles of intermediate rows, then those of hidden rows.
  std::vector<long> items, chunks;
  for (const Part& part : parts_) {
    if (replaces) aside.emplace_back(part.expert_bytes, part.node);
    to.push_back(replaces ? aside.back().data() : part.expert(expert));
    items.push_back(part.inner.end - part.inner.begin + part.outer.end - part.outer.begin);
    chunks.push_back((static_cast<long>(part.expert_bytes) + kCopyBytes - 1) / kCopyBytes);
  }
  std::atomic<const Source*> broken{nullptr};
  team_->for_each(items, [&](int group, long item, int) {
    const Part& part = parts_[static_cast<size_t>(group)];
    const auto pack = [&](const Source& source, long tile, size_t offset) {
      if (!pack_tile(source, tile, to[static_cast<size_t>(group)] + offset)) broken = &source;
    };
    const long inner = part.inner.begin + item, outer = part.outer.begin + inner - part.inner.end;
    if (inner < part.inner.end) {
      pack(gate, inner, gate_offset(part, inner));
      pack(up, inner, gate_offset(part, inner) + inner_.tile_bytes);
    } else {
      pack(down, outer, down_offset(part, outer));
    }
  });
  if (const Source* source = broken) {
    if (!replaces) release(expert);
    const char* matrix = source == &gate ? "gate" : source == &up ? "up" : "down";
    throw std::invalid_argument("expert " + std::to_string(expert) + ", " + matrix + ": " +
                                describe_fault(*source));
  }
  if (replaces)
    team_->for_each(chunks, [&](int group, long item, int) {
      const Part& part = parts_[static_cast<size_t>(group)];
      const long begin = item * kCopyBytes;
      const long end = std::min(begin + kCopyBytes, static_cast<long>(part.expert_bytes));
      std::memcpy(part.expert(expert) + begin, to[static_cast<size_t>(group)] + begin,
                  static_cast<size_t>(end - begin));
    });
  biases_[number] = std::move(padded);
  loaded_[number] = true;
}

void Experts::release(int expert) {
  for (const Part& part : parts_) part.memory.discard(part.expert(expert), part.expert_bytes);
  biases_[static_cast<size_t>(expert)] = {};
  loaded_[static_cast<size_t>(expert)] = false;
}

void Experts::unload(int expert) {
  check_expert(expert);
  const auto guard = team_->lock();
  if (loaded_[static_cast<size_t>(expert)]) release(expert);
}

bool Experts::loaded(int expert) const {
  check_expert(expert);
  const auto guard = team_->lock();
  return loaded_[static_cast<size_t>(expert)];
}

size_t Experts::bytes() const {
  const auto guard = team_->lock();
  size_t bytes = 0;
  for (size_t expert = 0; expert < loaded_.size(); ++expert)
    if (loaded_[expert])
      bytes += static_cast<size_t>(inner_.tiles) * 2 * inner_.tile_bytes +
               static_cast<size_t>(outer_.tiles) * outer_.tile_bytes + biases_[expert].size() * sizeof(float);
  return bytes;
}

void Experts::check_routing(const Routing& routing) const {
  for (long i = 0; i < routing.tokens * routing.per_token; ++i) {
    const int32_t expert = routing.ids[i];
    if (expert < 0 || (expert < shape_.count && loaded_[static_cast<size_t>(expert)])) continue;
    throw std::invalid_argument(
        "token " + std::to_string(i / routing.per_token) + " was routed to expert " + std::to_string(expert) +
        (expert < shape_.count ? std::string(", which is not loaded")
                               : ", but there are only " + std::to_string(shape_.count)));
  }
}

void Experts::forward(const float* x, const Routing& routing, float* y) const {
  const auto guard = team_->lock();
  check_routing(routing);
  for (long first = 0; first < routing.tokens; first += kTokensAtOnce) {
    const Routing some{routing.ids + first * routing.per_token, routing.weights + first * routing.per_token,
                       std::min(kTokensAtOnce, routing.tokens - first), routing.per_token};
    Forward(*this, x + first * shape_.hidden, some, y + first * shape_.hidden).run();
  }
}

}  // namespace kt
