#include "experts.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "experts_pass.h"

namespace kt {

Experts::Experts(std::shared_ptr<Team> team, Format source, Format format, Mode mode, int count, long hidden,
                 long intermediate)
    : team_(std::move(team)),
      path_(team_->kernels().formats[format][mode]),
      source_(source),
      format_(format),
      hidden_(hidden),
      intermediate_(intermediate),
      inner_tiles_(tile_count(intermediate)),
      outer_tiles_(tile_count(hidden)),
      hidden_depth_(padded_depth(format, hidden)),
      intermediate_depth_(padded_depth(format, intermediate)),
      gate_bytes_(tile_bytes(format, hidden_depth_)),
      down_bytes_(tile_bytes(format, intermediate_depth_)),
      loaded_(static_cast<size_t>(count), false) {
  if (!path_.gemv)
    throw std::invalid_argument(std::string("experts in format ") + format_name(format) +
                                " are not supported");
  const auto guard = team_->lock();
  for (int group = 0; group < team_->groups(); ++group) {
    // Intermediate rows are shared out in pairs of tiles, the unit in which activations are quantised.
    const Range pairs = team_->group_share((inner_tiles_ + 1) / 2, group);
    Part part{{std::min(pairs.begin * 2, inner_tiles_), std::min(pairs.end * 2, inner_tiles_)},
              team_->group_share(outer_tiles_, group),
              0,
              {}};
    const size_t bytes = static_cast<size_t>(part.inner.end - part.inner.begin) * 2 * gate_bytes_ +
                         static_cast<size_t>(part.outer.end - part.outer.begin) * down_bytes_;
    part.expert_bytes = (bytes + 4095) / 4096 * 4096;
    part.memory =
        Memory(part.expert_bytes * static_cast<size_t>(count), team_->groups() > 1 ? team_->node(group) : -1);
    team_->add_note(part.memory.note());
    parts_.push_back(std::move(part));
  }
}

const uint8_t* Experts::gate_tile(const Part& part, int expert, long tile) const {
  return part.memory.data() + static_cast<size_t>(expert) * part.expert_bytes +
         static_cast<size_t>(tile - part.inner.begin) * 2 * gate_bytes_;
}

const uint8_t* Experts::down_tile(const Part& part, int expert, long tile) const {
  return gate_tile(part, expert, part.inner.end) + static_cast<size_t>(tile - part.outer.begin) * down_bytes_;
}

void Experts::load(int expert, const Source& gate, const Source& up, const Source& down) {
  if (expert < 0 || expert >= count())
    throw std::invalid_argument("expert " + std::to_string(expert) + " does not exist; there are " +
                                std::to_string(count()));
  const auto guard = team_->lock();
  loaded_[static_cast<size_t>(expert)] = false;
  std::atomic<const Source*> broken{nullptr};
  // Items are first the tiles of intermediate rows, then those of hidden rows.
  std::vector<long> items;
  for (const Part& part : parts_)
    items.push_back(part.inner.end - part.inner.begin + part.outer.end - part.outer.begin);
  team_->for_each(items, [&](int group, long item, int) {
    const Part& part = parts_[static_cast<size_t>(group)];
    const auto pack = [&](const Source& source, long tile, const uint8_t* to) {
      if (!pack_tile(source, tile, const_cast<uint8_t*>(to))) broken = &source;
    };
    const long inner = part.inner.begin + item, outer = part.outer.begin + inner - part.inner.end;
    if (inner < part.inner.end) {
      pack(gate, inner, gate_tile(part, expert, inner));
      pack(up, inner, gate_tile(part, expert, inner) + gate_bytes_);
    } else {
      pack(down, outer, down_tile(part, expert, outer));
    }
  });
  if (const Source* source = broken) {
    const char* matrix = source == &gate ? "gate" : source == &up ? "up" : "down";
    throw std::invalid_argument("expert " + std::to_string(expert) + ", " + matrix + ": " +
                                describe_fault(*source));
  }
  loaded_[static_cast<size_t>(expert)] = true;
}

size_t Experts::bytes() const {
  const auto resident = static_cast<size_t>(std::count(loaded_.begin(), loaded_.end(), true));
  return resident * (static_cast<size_t>(inner_tiles_) * 2 * gate_bytes_ +
                     static_cast<size_t>(outer_tiles_) * down_bytes_);
}

std::vector<Experts::Route> Experts::sort_by_expert(const Routing& routing) const {
  std::vector<long> first(loaded_.size() + 1, 0);
  const long total = routing.tokens * routing.per_token;
  for (long i = 0; i < total; ++i) {
    const int32_t expert = routing.ids[i];
    if (expert < 0) continue;
    if (expert >= count())
      throw std::invalid_argument("token " + std::to_string(i / routing.per_token) +
                                  " was routed to expert " + std::to_string(expert) +
                                  ", but there are only " + std::to_string(count()));
    if (!loaded_[static_cast<size_t>(expert)])
      throw std::invalid_argument("token " + std::to_string(i / routing.per_token) +
                                  " was routed to expert " + std::to_string(expert) +
                                  ", which is not loaded");
    ++first[static_cast<size_t>(expert) + 1];
  }
  for (size_t e = 1; e < first.size(); ++e) first[e] += first[e - 1];
  std::vector<Route> routes(static_cast<size_t>(first.back()));
  for (long i = 0; i < total; ++i) {
    const int32_t expert = routing.ids[i];
    if (expert < 0) continue;
    routes[static_cast<size_t>(first[static_cast<size_t>(expert)]++)] = {expert, i / routing.per_token,
                                                                         routing.weights[i]};
  }
  return routes;
}

void Experts::forward(const float* x, const Routing& routing, float* y) const {
  const auto guard = team_->lock();
  const std::vector<Route> routes = sort_by_expert(routing);
  std::memset(y, 0, static_cast<size_t>(routing.tokens * hidden_) * sizeof(float));
  if (routes.empty()) return;

  // Enough rows at once to keep the team busy and to convert each expert's weights once, yet few enough that
  // the workspace stays in the tens of megabytes.
  constexpr size_t kRowsPerPass = 4096;
  const bool panels = path_.panel.rows > 0;
  const auto sweep = static_cast<size_t>(
      panels ? sweep_rows(path_.panel, std::max(hidden_depth_, intermediate_depth_)) : path_.gemv_rows);
  std::vector<Piece> pieces;
  size_t pass_begin = 0;
  for (size_t i = 0; i < routes.size();) {
    size_t end = i;
    while (end < routes.size() && end - i < sweep && routes[end].expert == routes[i].expert) ++end;
    pieces.push_back({routes[i].expert, i - pass_begin, static_cast<int>(end - i),
                      panels && static_cast<int>(end - i) > path_.gemv_rows});
    i = end;
    if (i - pass_begin >= kRowsPerPass || i == routes.size()) {
      Pass(*this, routing.tokens,
           {routes.begin() + static_cast<long>(pass_begin), routes.begin() + static_cast<long>(i)}, pieces)
          .run(x, y);
      pieces.clear();
      pass_begin = i;
    }
  }
}

}  // namespace kt
