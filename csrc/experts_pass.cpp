#include "experts_pass.h"

#include <algorithm>
#include <cstring>

namespace kt {
namespace {

constexpr long kSerialPreparation = 2;  // with so few tokens the caller prepares them before the team starts

size_t sums_bytes(const FormatKernels& path, int depth) {
  const int rows = path.panel.rows ? std::max(sweep_rows(path.panel, depth), path.gemv_rows) : path.gemv_rows;
  return static_cast<size_t>(rows) * kTileRows * sizeof(float);
}

size_t panel_scratch(const FormatKernels& path, int depth) {
  return path.panel.rows ? (path.panel.scratch_bytes(depth) + 63) / 64 * 64 : 0;
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
      activations_{path_.activation, path_.panel.activation} {}

// Places everything that the workers share: prepared tokens, intermediate rows, arranged panels.
void Experts::Pass::lay_out(const float* x) {
  const PanelKernels& panel = path_.panel;
  bool needed[2] = {false, false};
  size_t blocks = 0;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    needed[pieces_[p].panel] = true;
    if (!pieces_[p].panel) continue;
    const long count = panel_blocks(panel, pieces_[p].rows);
    for (long block = 0; block < count; ++block) panel_blocks_.emplace_back(p, block);
    blocks += static_cast<size_t>(count);
  }
  const bool unpadded = layer_.hidden_ == layer_.hidden_depth_;
  size_t stride[2], prepared[2];
  for (int form = 0; form < 2; ++form) {
    stride[form] = activation_bytes(activations_[form], layer_.hidden_depth_);
    const bool as_is = activations_[form] == kActF32 && unpadded;
    const bool same = form == 1 && needed[0] && activations_[0] == activations_[1];
    prepared[form] = needed[form] && !as_is && !same ? static_cast<size_t>(tokens_) * stride[form] : 0;
    if (needed[form])
      h_stride_ = std::max(h_stride_, activation_bytes(activations_[form], layer_.intermediate_depth_));
  }
  const size_t x_block = blocks ? panel.block_bytes(layer_.hidden_depth_) : 0;
  const size_t h_block = blocks ? panel.block_bytes(layer_.intermediate_depth_) : 0;
  const size_t h_bytes = routes_.size() * h_stride_;
  uint8_t* memory = team_.workspace(prepared[0] + prepared[1] + h_bytes + blocks * (x_block + h_block));
  for (int form = 0; form < 2; ++form) {
    if (prepared[form]) prepared_[form] = memory;
    memory += prepared[form];
  }
  const uint8_t* shown[2] = {prepared_[0], prepared_[1]};
  if (needed[0] && activations_[0] == activations_[1]) shown[1] = shown[0];
  h_ = memory;
  uint8_t* x_panel = h_ + h_bytes;
  uint8_t* h_panel = x_panel + blocks * x_block;

  for (const Piece& piece : pieces_) {
    const uint8_t* from = shown[piece.panel];
    for (size_t i = piece.first; i < piece.first + static_cast<size_t>(piece.rows); ++i) {
      const long token = routes_[i].token;
      x_rows_.push_back(from ? from + static_cast<size_t>(token) * stride[piece.panel]
                             : reinterpret_cast<const uint8_t*>(x + token * layer_.hidden_));
      h_rows_.push_back(h_ + i * h_stride_);
    }
    x_panels_.push_back(piece.panel ? x_panel : nullptr);
    h_panels_.push_back(piece.panel ? h_panel : nullptr);
    if (!piece.panel) continue;
    const auto count = static_cast<size_t>(panel_blocks(panel, piece.rows));
    x_panel += count * x_block;
    h_panel += count * h_block;
  }
  const size_t scratch =
      std::max(panel_scratch(path_, layer_.hidden_depth_), panel_scratch(path_, layer_.intermediate_depth_));
  team_.reserve_scratch(scratch +
                        4 * sums_bytes(path_, std::max(layer_.hidden_depth_, layer_.intermediate_depth_)));
}

void Experts::Pass::prepare_token(const float* x, long token, bool panel) const {
  const size_t stride = activation_bytes(activations_[panel], layer_.hidden_depth_);
  team_.kernels().prepare[activations_[panel]](x + token * layer_.hidden_, 0,
                                               static_cast<int>(layer_.hidden_), layer_.hidden_depth_,
                                               prepared_[panel] + static_cast<size_t>(token) * stride);
}

void Experts::Pass::arrange(size_t index, bool inner) const {
  const PanelKernels& panel = path_.panel;
  const int depth = inner ? layer_.hidden_depth_ : layer_.intermediate_depth_;
  const auto [p, block] = panel_blocks_[index];
  const Piece& piece = pieces_[p];
  const long first = block * panel.rows;
  panel.arrange((inner ? x_rows_ : h_rows_).data() + piece.first + first,
                static_cast<int>(std::min<long>(panel.rows, piece.rows - first)), depth,
                (inner ? x_panels_ : h_panels_)[p] + static_cast<size_t>(block) * panel.block_bytes(depth));
}

// Two tiles of intermediate rows of one piece: h = silu(gate) * up.
void Experts::Pass::inner_item(long item, const Part& part, uint8_t* scratch) const {
  const long pairs = (part.inner.end - part.inner.begin + 1) / 2;
  const auto p = static_cast<size_t>(item / pairs);
  const Piece& piece = pieces_[p];
  const size_t sums =
      sums_bytes(path_, std::max(layer_.hidden_depth_, layer_.intermediate_depth_)) / sizeof(float);
  auto* gate_sums =
      reinterpret_cast<float*>(scratch + std::max(panel_scratch(path_, layer_.hidden_depth_),
                                                  panel_scratch(path_, layer_.intermediate_depth_)));
  float* up_sums = gate_sums + sums;
  float* product = up_sums + sums;  // [rows][32]
  const long first = part.inner.begin + item % pairs * 2, last = std::min(first + 2, part.inner.end);
  const Kernels& kernels = team_.kernels();
  for (long tile = first; tile < last; ++tile) {
    const uint8_t* gate = layer_.gate_tile(part, piece.expert, tile);
    const uint8_t* up = gate + layer_.gate_bytes_;
    if (piece.panel) {
      path_.panel.multiply(gate, up, layer_.hidden_depth_, x_panels_[p], piece.rows, scratch, gate_sums,
                           up_sums);
    } else {
      path_.gemv(gate, layer_.hidden_depth_, x_rows_.data() + piece.first, piece.rows, gate_sums);
      path_.gemv(up, layer_.hidden_depth_, x_rows_.data() + piece.first, piece.rows, up_sums);
    }
    for (int i = 0; i < piece.rows; ++i)
      kernels.silu_product(gate_sums + i * kTileRows, up_sums + i * kTileRows, kTileRows,
                           product + i * 2 * kTileRows + (tile - first) * kTileRows);
  }
  const long begin = first * kTileRows;
  const int count = static_cast<int>(std::min(last * kTileRows, layer_.intermediate_) - begin);
  for (int i = 0; i < piece.rows; ++i)
    kernels.prepare[activations_[piece.panel]](product + i * 2 * kTileRows, static_cast<int>(begin), count,
                                               layer_.intermediate_depth_,
                                               h_ + (piece.first + static_cast<size_t>(i)) * h_stride_);
}

void Experts::Pass::add_rows(const Piece& piece, long tile, const float* sums, float* y) const {
  const int width = static_cast<int>(std::min<long>(kTileRows, layer_.hidden_ - tile * kTileRows));
  for (int i = 0; i < piece.rows; ++i) {
    const Route& route = routes_[piece.first + static_cast<size_t>(i)];
    float* to = y + route.token * layer_.hidden_ + tile * kTileRows;
    for (int r = 0; r < width; ++r) to[r] += route.weight * sums[i * kTileRows + r];
  }
}

// outer_pairs_ times two tiles of hidden rows, all pieces in order. Several pairs share a piece's activations
// while they are in the cache.
void Experts::Pass::outer_item(long item, const Part& part, uint8_t* scratch, float* y) const {
  const long first = part.outer.begin + item * outer_pairs_ * 2;
  const long last = std::min(first + outer_pairs_ * 2, part.outer.end);
  auto* sums0 =
      reinterpret_cast<float*>(scratch + std::max(panel_scratch(path_, layer_.hidden_depth_),
                                                  panel_scratch(path_, layer_.intermediate_depth_)));
  float* sums1 =
      sums0 + sums_bytes(path_, std::max(layer_.hidden_depth_, layer_.intermediate_depth_)) / sizeof(float);
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Piece& piece = pieces_[p];
    for (long tile = first; tile < last; tile += 2) {
      const bool two = tile + 1 < last;
      const uint8_t* down = layer_.down_tile(part, piece.expert, tile);
      const uint8_t* next = two ? down + layer_.down_bytes_ : nullptr;
      if (piece.panel) {
        path_.panel.multiply(down, next, layer_.intermediate_depth_, h_panels_[p], piece.rows, scratch, sums0,
                             sums1);
      } else {
        path_.gemv(down, layer_.intermediate_depth_, h_rows_.data() + piece.first, piece.rows, sums0);
        if (two)
          path_.gemv(next, layer_.intermediate_depth_, h_rows_.data() + piece.first, piece.rows, sums1);
      }
      add_rows(piece, tile, sums0, y);
      if (two) add_rows(piece, tile + 1, sums1, y);
    }
  }
}

void Experts::Pass::run(const float* x, float* y) {
  lay_out(x);
  for (const bool panel : {false, true}) {
    if (!prepared_[panel]) continue;
    if (tokens_ <= kSerialPreparation)
      for (long token = 0; token < tokens_; ++token) prepare_token(x, token, panel);
    else
      team_.for_all(tokens_, [&](long token, int) { prepare_token(x, token, panel); });
  }
  // With panels, a worker's share of the hidden rows is cut into few items, yet enough for an even end.
  constexpr long kItemsPerWorker = 3, kMostPairs = 8;
  const auto blocks = static_cast<long>(panel_blocks_.size());
  if (blocks)
    outer_pairs_ = std::clamp(layer_.outer_tiles_ / 2 / (kItemsPerWorker * team_.size()), 1l, kMostPairs);
  std::vector<long> inner, outer;
  for (const Part& part : layer_.parts_) {
    inner.push_back((part.inner.end - part.inner.begin + 1) / 2 * static_cast<long>(pieces_.size()));
    const long pairs = (part.outer.end - part.outer.begin + 1) / 2;
    outer.push_back((pairs + outer_pairs_ - 1) / outer_pairs_);
  }
  if (blocks) team_.for_all(blocks, [&](long i, int) { arrange(static_cast<size_t>(i), true); });
  team_.for_each(inner, [&](int group, long item, int worker) {
    inner_item(item, layer_.parts_[static_cast<size_t>(group)], team_.scratch(worker));
  });
  if (blocks) team_.for_all(blocks, [&](long i, int) { arrange(static_cast<size_t>(i), false); });
  team_.for_each(outer, [&](int group, long item, int worker) {
    outer_item(item, layer_.parts_[static_cast<size_t>(group)], team_.scratch(worker), y);
  });
}

}  // namespace kt
