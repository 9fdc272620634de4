#include "experts_pass.h"

#include <algorithm>
#include <cstring>

namespace kt {
namespace {

constexpr long kSerialPreparation = 2;  // with so few tokens the caller prepares them before the team starts

size_t sums_bytes(const FormatKernels& path) {
  return static_cast<size_t>(std::max(sweep_rows(path), path.gemv_rows)) * kTileRows * sizeof(float);
}

}  // namespace

Experts::Pass::Pass(const Experts& layer, long tokens, std::vector<Route> routes,
                    const std::vector<Piece>& pieces)
    : layer_(layer),
      team_(*layer.team_),
      path_(layer.path_),
      pieces_(pieces),
      routes_(std::move(routes)),
      tokens_(tokens),
      x_stride_(activation_bytes(layer.path_.activation, layer.hidden_depth_)),
      h_stride_(activation_bytes(layer.path_.activation, static_cast<int>(layer.inner_tiles_ * kTileRows))) {}

// Places everything that the workers share: prepared tokens, intermediate rows, interleaved panels.
void Experts::Pass::lay_out(const float* x) {
  const bool as_is = path_.activation == kActF32 && layer_.hidden_ == layer_.hidden_depth_;
  const auto x_steps = static_cast<size_t>(panel_steps(path_, layer_.hidden_depth_));
  const auto h_steps = static_cast<size_t>(panel_steps(path_, layer_.intermediate_depth_));
  size_t panel_rows = 0;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    if (!pieces_[p].panel) continue;
    const long padded = padded_rows(path_, pieces_[p].rows);
    for (long block = 0; block < padded / path_.panel_rows; ++block) panel_blocks_.emplace_back(p, block);
    panel_rows += static_cast<size_t>(padded);
  }

  const size_t prepared_bytes = as_is ? 0 : static_cast<size_t>(tokens_) * x_stride_;
  const size_t h_bytes = routes_.size() * h_stride_;
  const size_t x_panel_bytes = (panel_rows * x_steps * 4 + 63) / 64 * 64;
  uint8_t* memory = team_.workspace(prepared_bytes + h_bytes + x_panel_bytes + panel_rows * h_steps * 4);
  prepared_ = as_is ? nullptr : memory;
  h_ = memory + prepared_bytes;
  auto* x_panel = reinterpret_cast<uint32_t*>(h_ + h_bytes);
  auto* h_panel = reinterpret_cast<uint32_t*>(h_ + h_bytes + x_panel_bytes);

  for (size_t i = 0; i < routes_.size(); ++i) {
    x_rows_.push_back(as_is ? reinterpret_cast<const uint8_t*>(x + routes_[i].token * layer_.hidden_)
                            : prepared_ + static_cast<size_t>(routes_[i].token) * x_stride_);
    h_rows_.push_back(h_ + i * h_stride_);
  }
  for (const Piece& piece : pieces_) {
    x_panels_.push_back(piece.panel ? x_panel : nullptr);
    h_panels_.push_back(piece.panel ? h_panel : nullptr);
    if (!piece.panel) continue;
    const auto padded = static_cast<size_t>(padded_rows(path_, piece.rows));
    x_panel += padded * x_steps;
    h_panel += padded * h_steps;
  }
  team_.reserve_scratch(panel_scratch_bytes(path_) + 3 * sums_bytes(path_));
}

void Experts::Pass::prepare_token(const float* x, long token) const {
  team_.kernels().prepare[path_.activation](x + token * layer_.hidden_, static_cast<int>(layer_.hidden_),
                                            layer_.hidden_depth_,
                                            prepared_ + static_cast<size_t>(token) * x_stride_);
}

void Experts::Pass::interleave(size_t index, bool inner) const {
  const int depth = inner ? layer_.hidden_depth_ : layer_.intermediate_depth_;
  const auto steps = static_cast<size_t>(panel_steps(path_, depth));
  const auto [p, block] = panel_blocks_[index];
  const Piece& piece = pieces_[p];
  uint32_t* out = (inner ? x_panels_ : h_panels_)[p] + static_cast<size_t>(block * path_.panel_rows) * steps;
  interleave_block(team_.kernels(), path_, (inner ? x_rows_ : h_rows_).data() + piece.first, piece.rows,
                   block, depth, out);
}

// One tile of intermediate rows of one piece: h = silu(gate) * up.
void Experts::Pass::inner_item(long item, const Part& part, uint8_t* scratch) const {
  const long tiles = part.inner.end - part.inner.begin;
  const auto p = static_cast<size_t>(item / tiles);
  const Piece& piece = pieces_[p];
  const long tile = part.inner.begin + item % tiles;
  const uint8_t* gate = layer_.gate_tile(part, piece.expert, tile);
  const uint8_t* up = gate + layer_.gate_bytes_;
  auto* gate_sums = reinterpret_cast<float*>(scratch + panel_scratch_bytes(path_));
  float* up_sums = gate_sums + sums_bytes(path_) / sizeof(float);
  float* product = up_sums + sums_bytes(path_) / sizeof(float);
  if (piece.panel) {
    multiply_panel(path_, gate, up, layer_.hidden_depth_, x_panels_[p], piece.rows, scratch, gate_sums,
                   up_sums);
  } else {
    path_.gemv(gate, layer_.hidden_depth_, x_rows_.data() + piece.first, piece.rows, gate_sums);
    path_.gemv(up, layer_.hidden_depth_, x_rows_.data() + piece.first, piece.rows, up_sums);
  }
  const Kernels& kernels = team_.kernels();
  kernels.silu_product(gate_sums, up_sums, piece.rows * kTileRows, product);
  const size_t offset = activation_value_bytes(path_.activation) * static_cast<size_t>(tile) * kTileRows;
  for (int i = 0; i < piece.rows; ++i)
    kernels.prepare[path_.activation](product + i * kTileRows, kTileRows, kTileRows,
                                      h_ + (piece.first + static_cast<size_t>(i)) * h_stride_ + offset);
}

void Experts::Pass::add_rows(const Piece& piece, long tile, const float* sums, float* y) const {
  const int width = static_cast<int>(std::min<long>(kTileRows, layer_.hidden_ - tile * kTileRows));
  for (int i = 0; i < piece.rows; ++i) {
    const Route& route = routes_[piece.first + static_cast<size_t>(i)];
    float* to = y + route.token * layer_.hidden_ + tile * kTileRows;
    for (int r = 0; r < width; ++r) to[r] += route.weight * sums[i * kTileRows + r];
  }
}

// Two tiles of hidden rows, all pieces in order.
void Experts::Pass::outer_item(long item, const Part& part, uint8_t* scratch, float* y) const {
  const long tile = part.outer.begin + item * 2;
  const bool two = tile + 1 < part.outer.end;
  auto* sums0 = reinterpret_cast<float*>(scratch + panel_scratch_bytes(path_));
  float* sums1 = sums0 + sums_bytes(path_) / sizeof(float);
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    const uint8_t* down = layer_.down_tile(part, piece.expert, tile);
    const uint8_t* next = two ? down + layer_.down_bytes_ : nullptr;
    if (piece.panel) {
      multiply_panel(path_, down, next, layer_.intermediate_depth_, h_panels_[p], piece.rows, scratch, sums0,
                     sums1);
    } else {
      path_.gemv(down, layer_.intermediate_depth_, h_rows_.data() + piece.first, piece.rows, sums0);
      if (two) path_.gemv(next, layer_.intermediate_depth_, h_rows_.data() + piece.first, piece.rows, sums1);
    }
    add_rows(piece, tile, sums0, y);
    if (two) add_rows(piece, tile + 1, sums1, y);
  }
}

void Experts::Pass::run(const float* x, float* y) {
  lay_out(x);
  if (prepared_) {
    if (tokens_ <= kSerialPreparation)
      for (long token = 0; token < tokens_; ++token) prepare_token(x, token);
    else
      team_.for_all(tokens_, [&](long token, int) { prepare_token(x, token); });
  }
  std::vector<long> inner, outer;
  for (const Part& part : layer_.parts_) {
    inner.push_back((part.inner.end - part.inner.begin) * static_cast<long>(pieces_.size()));
    outer.push_back((part.outer.end - part.outer.begin + 1) / 2);
  }
  const auto blocks = static_cast<long>(panel_blocks_.size());
  if (blocks) team_.for_all(blocks, [&](long i, int) { interleave(static_cast<size_t>(i), true); });
  team_.for_each(inner, [&](int group, long item, int worker) {
    inner_item(item, layer_.parts_[static_cast<size_t>(group)], team_.scratch(worker));
  });
  if (blocks) team_.for_all(blocks, [&](long i, int) { interleave(static_cast<size_t>(i), false); });
  team_.for_each(outer, [&](int group, long item, int worker) {
    outer_item(item, layer_.parts_[static_cast<size_t>(group)], team_.scratch(worker), y);
  });
}

}  // namespace kt
