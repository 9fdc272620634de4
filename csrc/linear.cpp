#include "linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace kt {
namespace {

constexpr long kTokensPerCall = 64;     // rows handed to gemv at once
constexpr long kSerialPreparation = 2;  // with so few tokens the caller prepares them before the team starts

}  // namespace

Linear::Linear(std::shared_ptr<Team> team, const Source& source, Mode mode)
    : team_(std::move(team)),
      path_(team_->kernels().formats[source.stored][mode]),
      format_(source.stored),
      rows_(source.rows),
      columns_(source.columns),
      tiles_(tile_count(source.rows)),
      depth_(padded_depth(source.stored, source.columns)),
      tile_bytes_(tile_bytes(source.stored, depth_)) {
  if (!path_.gemv)
    throw std::invalid_argument(std::string("weights in format ") + format_name(source.stored) +
                                " are not supported");
  const auto guard = team_->lock();
  for (int group = 0; group < team_->groups(); ++group) {
    shares_.push_back(team_->group_share(tiles_, group));
    tiles_by_group_.push_back(shares_.back().end - shares_.back().begin);
    parts_.emplace_back(static_cast<size_t>(tiles_by_group_.back()) * tile_bytes_,
                        team_->groups() > 1 ? team_->node(group) : -1);
    team_->add_note(parts_.back().note());
  }
  std::atomic<bool> finite{true};
  team_->for_each(tiles_by_group_, [&](int group, long item, int) {
    uint8_t* to = parts_[static_cast<size_t>(group)].data() + static_cast<size_t>(item) * tile_bytes_;
    if (!pack_tile(source, shares_[static_cast<size_t>(group)].begin + item, to)) finite = false;
  });
  if (!finite) throw std::invalid_argument(describe_fault(source));
}

size_t Linear::bytes() const { return static_cast<size_t>(tiles_) * tile_bytes_; }

const uint8_t* Linear::tile(long index) const {
  size_t group = 0;
  while (index >= shares_[group].end) ++group;
  return parts_[group].data() + static_cast<size_t>(index - shares_[group].begin) * tile_bytes_;
}

void Linear::forward(const float* x, long tokens, float* y, bool add) const {
  multiply({this}, x, tokens, y, rows_, add);
}

// Maps that take the same activations, prepared in the same way, multiplied together.
class Product {
 public:
  Product(const std::vector<const Linear*>& maps, const float* x, long tokens, float* y, long stride,
          bool add)
      : maps_(maps),
        first_(*maps.front()),
        team_(*first_.team_),
        x_(x),
        tokens_(tokens),
        stride_(stride),
        add_(add) {
    for (const Linear* map : maps) {
      outputs_.push_back(y);
      y += map->rows_;
    }
  }

  static bool by_panels(const Linear& map, long tokens) {
    return map.path_.panel.rows && tokens > map.path_.gemv_rows;
  }

  // Whether both maps can be part of one product.
  static bool alike(const Linear& a, const Linear& b, long tokens) {
    const bool panels = by_panels(a, tokens);
    if (a.team_ != b.team_ || a.columns_ != b.columns_ || a.depth_ != b.depth_ ||
        panels != by_panels(b, tokens))
      return false;
    const PanelKernels &p = a.path_.panel, &q = b.path_.panel;
    if (!panels) return a.path_.activation == b.path_.activation;
    return p.activation == q.activation && p.rows == q.rows && p.arrange == q.arrange &&
           p.block_bytes == q.block_bytes && p.sweep_bytes == q.sweep_bytes;
  }

  void run() {
    const auto guard = team_.lock();
    if (by_panels(first_, tokens_))
      panels();
    else
      rows();
  }

 private:
  void rows();
  void panels();

  // The work of each NUMA group when a map has count(map, tiles of the group) pieces of it.
  template <typename Count>
  std::vector<long> work(const Count& count) const {
    std::vector<long> items(first_.tiles_by_group_.size(), 0);
    for (const Linear* map : maps_)
      for (size_t g = 0; g < items.size(); ++g) items[g] += count(map->tiles_by_group_[g]);
    return items;
  }

  // The map that piece `item` of a group belongs to; item becomes its number among the map's own.
  template <typename Count>
  size_t find(int group, long& item, const Count& count) const {
    size_t m = 0;
    for (long own; item >= (own = count(maps_[m]->tiles_by_group_[static_cast<size_t>(group)])); ++m)
      item -= own;
    return m;
  }

  void store(size_t map, const float* sums, long count, long tile, long first) const {
    const long width = std::min<long>(kTileRows, maps_[map]->rows_ - tile * kTileRows);
    for (long i = 0; i < count; ++i) {
      const float* from = sums + i * kTileRows;
      float* to = outputs_[map] + (first + i) * stride_ + tile * kTileRows;
      if (add_)
        for (long r = 0; r < width; ++r) to[r] += from[r];
      else
        std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
    }
  }

  const std::vector<const Linear*>& maps_;
  const Linear& first_;
  Team& team_;
  const float* x_;
  long tokens_, stride_;
  bool add_;
  std::vector<float*> outputs_;
};

void Product::rows() {
  const Activation activation = first_.path_.activation;
  const long columns = first_.columns_;
  const int depth = first_.depth_;
  const size_t stride = activation_bytes(activation, depth);
  const bool as_is = activation == kActF32 && columns == depth;
  uint8_t* prepared = as_is ? nullptr : team_.workspace(stride * static_cast<size_t>(tokens_));
  team_.reserve_scratch(kTokensPerCall * kTileRows * sizeof(float));
  const auto prepare = [&](long token) {
    team_.kernels().prepare[activation](x_ + token * columns, 0, static_cast<int>(columns), depth,
                                        prepared + static_cast<size_t>(token) * stride);
  };
  if (!as_is) {
    if (tokens_ <= kSerialPreparation)
      for (long token = 0; token < tokens_; ++token) prepare(token);
    else
      team_.for_all(tokens_, [&](long token, int) { prepare(token); });
  }
  const auto each_tile = [](long tiles) { return tiles; };
  team_.for_each(work(each_tile), [&](int group, long item, int worker) {
    auto* sums = reinterpret_cast<float*>(team_.scratch(worker));
    const uint8_t* rows[kTokensPerCall];
    const size_t m = find(group, item, each_tile);
    const Linear& map = *maps_[m];
    const long t = map.shares_[static_cast<size_t>(group)].begin + item;
    for (long first = 0; first < tokens_; first += kTokensPerCall) {
      const long count = std::min(kTokensPerCall, tokens_ - first);
      for (long i = 0; i < count; ++i)
        rows[i] = as_is ? reinterpret_cast<const uint8_t*>(x_ + (first + i) * columns)
                        : prepared + static_cast<size_t>(first + i) * stride;
      map.path_.gemv(map.tile(t), depth, rows, static_cast<int>(count), sums);
      store(m, sums, count, t, first);
    }
  });
}

void Product::panels() {
  const PanelKernels& panel = first_.path_.panel;
  const long columns = first_.columns_;
  const int depth = first_.depth_;
  const PrepareFn prepare = team_.kernels().prepare[panel.activation];
  const size_t stride = activation_bytes(panel.activation, depth);
  const bool as_is = panel.activation == kActF32 && columns == depth;
  const size_t block_bytes = panel.block_bytes(depth);
  const long blocks = panel_blocks(panel, tokens_);
  uint8_t* arranged = team_.workspace(static_cast<size_t>(blocks) * block_bytes);

  const int sweep = sweep_rows(panel, depth);
  const size_t sums_bytes = static_cast<size_t>(sweep) * kTileRows * sizeof(float);
  size_t scratch_bytes = 0;
  for (const Linear* map : maps_)
    scratch_bytes = std::max(scratch_bytes, (map->path_.panel.scratch_bytes(depth) + 63) / 64 * 64);
  team_.reserve_scratch(std::max(scratch_bytes + 2 * sums_bytes, stride * static_cast<size_t>(panel.rows)));

  team_.for_all(blocks, [&](long block, int worker) {
    uint8_t* scratch = team_.scratch(worker);
    const uint8_t* rows[kMaxPanelRows];
    const long first = block * panel.rows, count = std::min<long>(panel.rows, tokens_ - first);
    for (long i = 0; i < count; ++i) {
      const float* row = x_ + (first + i) * columns;
      rows[i] = as_is ? reinterpret_cast<const uint8_t*>(row) : scratch + static_cast<size_t>(i) * stride;
      if (!as_is)
        prepare(row, 0, static_cast<int>(columns), depth, scratch + static_cast<size_t>(i) * stride);
    }
    panel.arrange(rows, static_cast<int>(count), depth, arranged + static_cast<size_t>(block) * block_bytes);
  });
  // A task is two tiles times one sweep of tokens.
  const long sweeps = (tokens_ + sweep - 1) / sweep;
  const auto pairs = [sweeps](long tiles) { return (tiles + 1) / 2 * sweeps; };
  team_.for_each(work(pairs), [&](int group, long task, int worker) {
    uint8_t* scratch = team_.scratch(worker);
    auto* c0 = reinterpret_cast<float*>(scratch + scratch_bytes);
    float* c1 = c0 + static_cast<size_t>(sweep) * kTileRows;
    const size_t m = find(group, task, pairs);
    const Linear& map = *maps_[m];
    const Range share = map.shares_[static_cast<size_t>(group)];
    const long t = share.begin + task / sweeps * 2, first = task % sweeps * sweep;
    const int count = static_cast<int>(std::min<long>(sweep, tokens_ - first));
    const bool two = t + 1 < share.end;
    map.path_.panel.multiply(map.tile(t), two ? map.tile(t + 1) : nullptr, depth,
                             arranged + static_cast<size_t>(first / panel.rows) * block_bytes, count, scratch,
                             c0, c1);
    store(m, c0, count, t, first);
    if (two) store(m, c1, count, t + 1, first);
  });
}

void multiply(const std::vector<const Linear*>& maps, const float* x, long tokens, float* y, long stride,
              bool add) {
  if (tokens == 0) return;
  for (size_t begin = 0, end; begin < maps.size(); begin = end) {
    std::vector<const Linear*> together;
    long outputs = 0;
    for (end = begin; end < maps.size() && Product::alike(*maps[begin], *maps[end], tokens); ++end) {
      together.push_back(maps[end]);
      outputs += maps[end]->rows();
    }
    Product(together, x, tokens, y, stride, add).run();
    y += outputs;
  }
}

}  // namespace kt
