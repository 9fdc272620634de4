#include "linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace kt {
namespace {

constexpr long kTokensPerCall = 64;     // rows handed to gemv at once
constexpr long kSerialPreparation = 2;  // with so few tokens the caller prepares them before the team starts

void store_rows(const float* sums, long count, long tile, long rows, float* y, bool add) {
  const long width = std::min<long>(kTileRows, rows - tile * kTileRows);
  for (long i = 0; i < count; ++i) {
    const float* from = sums + i * kTileRows;
    float* to = y + i * rows + tile * kTileRows;
    if (add)
      for (long r = 0; r < width; ++r) to[r] += from[r];
    else
      std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
  }
}

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
  if (tokens == 0) return;
  if (!path_.panel.rows || tokens <= path_.gemv_rows)
    forward_rows(x, tokens, y, add);
  else
    forward_panels(x, tokens, y, add);
}

void Linear::forward_rows(const float* x, long tokens, float* y, bool add) const {
  const auto guard = team_->lock();
  const Kernels& kernels = team_->kernels();
  const size_t stride = activation_bytes(path_.activation, depth_);
  const bool as_is = path_.activation == kActF32 && columns_ == depth_;
  uint8_t* prepared = as_is ? nullptr : team_->workspace(stride * static_cast<size_t>(tokens));
  team_->reserve_scratch(kTokensPerCall * kTileRows * sizeof(float));
  const auto prepare = [&](long token) {
    kernels.prepare[path_.activation](x + token * columns_, 0, static_cast<int>(columns_), depth_,
                                      prepared + static_cast<size_t>(token) * stride);
  };
  if (!as_is) {
    if (tokens <= kSerialPreparation)
      for (long token = 0; token < tokens; ++token) prepare(token);
    else
      team_->for_all(tokens, [&](long token, int) { prepare(token); });
  }
  team_->for_each(tiles_by_group_, [&](int group, long item, int worker) {
    auto* sums = reinterpret_cast<float*>(team_->scratch(worker));
    const uint8_t* rows[kTokensPerCall];
    const long t = shares_[static_cast<size_t>(group)].begin + item;
    for (long first = 0; first < tokens; first += kTokensPerCall) {
      const long count = std::min(kTokensPerCall, tokens - first);
      for (long i = 0; i < count; ++i)
        rows[i] = as_is ? reinterpret_cast<const uint8_t*>(x + (first + i) * columns_)
                        : prepared + static_cast<size_t>(first + i) * stride;
      path_.gemv(tile(t), depth_, rows, static_cast<int>(count), sums);
      store_rows(sums, count, t, rows_, y + first * rows_, add);
    }
  });
}

void Linear::forward_panels(const float* x, long tokens, float* y, bool add) const {
  const auto guard = team_->lock();
  const PanelKernels& panel = path_.panel;
  const PrepareFn prepare = team_->kernels().prepare[panel.activation];
  const size_t stride = activation_bytes(panel.activation, depth_);
  const bool as_is = panel.activation == kActF32 && columns_ == depth_;
  const size_t block_bytes = panel.block_bytes(depth_);
  const long blocks = panel_blocks(panel, tokens);
  uint8_t* arranged = team_->workspace(static_cast<size_t>(blocks) * block_bytes);

  const int sweep = sweep_rows(panel, depth_);
  const size_t sums_bytes = static_cast<size_t>(sweep) * kTileRows * sizeof(float);
  const size_t scratch_bytes = (panel.scratch_bytes(depth_) + 63) / 64 * 64;
  team_->reserve_scratch(std::max(scratch_bytes + 2 * sums_bytes, stride * static_cast<size_t>(panel.rows)));

  team_->for_all(blocks, [&](long block, int worker) {
    uint8_t* scratch = team_->scratch(worker);
    const uint8_t* rows[kMaxPanelRows];
    const long first = block * panel.rows, count = std::min<long>(panel.rows, tokens - first);
    for (long i = 0; i < count; ++i) {
      const float* row = x + (first + i) * columns_;
      rows[i] = as_is ? reinterpret_cast<const uint8_t*>(row) : scratch + static_cast<size_t>(i) * stride;
      if (!as_is)
        prepare(row, 0, static_cast<int>(columns_), depth_, scratch + static_cast<size_t>(i) * stride);
    }
    panel.arrange(rows, static_cast<int>(count), depth_, arranged + static_cast<size_t>(block) * block_bytes);
  });
  // A task is two tiles times one sweep of tokens.
  const long sweeps = (tokens + sweep - 1) / sweep;
  std::vector<long> tasks;
  for (long tiles : tiles_by_group_) tasks.push_back((tiles + 1) / 2 * sweeps);
  team_->for_each(tasks, [&](int group, long task, int worker) {
    uint8_t* scratch = team_->scratch(worker);
    auto* c0 = reinterpret_cast<float*>(scratch + scratch_bytes);
    float* c1 = c0 + static_cast<size_t>(sweep) * kTileRows;
    const Range share = shares_[static_cast<size_t>(group)];
    const long t = share.begin + task / sweeps * 2, first = task % sweeps * sweep;
    const int count = static_cast<int>(std::min<long>(sweep, tokens - first));
    const bool two = t + 1 < share.end;
    panel.multiply(tile(t), two ? tile(t + 1) : nullptr, depth_,
                   arranged + static_cast<size_t>(first / panel.rows) * block_bytes, count, scratch, c0, c1);
    store_rows(c0, count, t, rows_, y + first * rows_, add);
    if (two) store_rows(c1, count, t + 1, rows_, y + first * rows_, add);
  });
}

}  // namespace kt
