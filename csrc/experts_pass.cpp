#include "experts_pass.h"

#include <algorithm>
#include <cstring>

namespace kt {
namespace {

constexpr long kSerialPreparation = 2;  // with so few tokens the caller prepares them before the team starts
constexpr int kRowsByRow = 64;          // handed to gemv at once
// Enough rows at once to keep the team busy and to convert each expert's weights once, yet few enough that
// the workspace stays in the tens of megabytes.
constexpr size_t kRowsPerPass = 4096;

}  // namespace

Experts::Forward::Forward(const Experts& layer, const float* x, const Routing& routing, float* y)
    : layer_(layer),
      team_(*layer.team_),
      phases_{&layer.inner_, &layer.outer_},
      x_(x),
      y_(y),
      tokens_(routing.tokens),
      activations_{{layer.inner_.path.activation, layer.inner_.path.panel.activation},
                   {layer.outer_.path.activation, layer.outer_.path.panel.activation}} {
  sort(routing);
  cut();
  lay_out();
}

void Experts::Forward::sort(const Routing& routing) {
  ends_.assign(static_cast<size_t>(layer_.shape_.count) + 1, 0);
  const long total = routing.tokens * routing.per_token;
  for (long i = 0; i < total; ++i)
    if (routing.ids[i] >= 0) ++ends_[static_cast<size_t>(routing.ids[i]) + 1];
  for (size_t e = 1; e < ends_.size(); ++e) ends_[e] += ends_[e - 1];
  routes_.resize(ends_.back());
  // What was the beginning of an expert's routes becomes their end.
  for (long token = 0, i = 0; token < routing.tokens; ++token)
    for (long j = 0; j < routing.per_token; ++j, ++i)
      if (routing.ids[i] >= 0)
        routes_[ends_[static_cast<size_t>(routing.ids[i])]++] = {token, routing.weights[i], false};
  routed_.assign(static_cast<size_t>(tokens_), 0);
  for (Destination& route : routes_) {
    uint8_t& routed = routed_[static_cast<size_t>(route.token)];
    route.first = !routed;
    routed = 1;
  }
}

// Cuts the routes into pieces and those into passes.
void Experts::Forward::cut() {
  int most = kRowsPerPass, by_row[2], step = 1;
  for (int phase : {kInner, kOuter}) {
    const FormatKernels& path = phases_[phase]->path;
    by_row[phase] = std::min(path.gemv_rows, kRowsByRow);
    most = std::min(most, path.panel.rows ? sweep_rows(path.panel, phases_[phase]->depth) : by_row[phase]);
    step = std::max(step, path.panel.rows);
  }
  sum_rows_ = most + kMaxPanelRows;
  Pass pass{};
  const auto finish = [&] {
    pass.last_piece = pieces_.size();
    for (int phase : {kInner, kOuter}) pass.last_block[phase] = blocks_[phase].size();
    passes_.push_back(pass);
    pass.first_piece = pass.last_piece;
    for (int phase : {kInner, kOuter}) pass.first_block[phase] = pass.last_block[phase];
  };
  size_t begin = 0, pass_begin = 0;
  for (int expert = 0; expert < layer_.shape_.count; ++expert) {
    const size_t end = ends_[static_cast<size_t>(expert)];
    // Equal pieces, but for whole blocks.
    const auto rows = static_cast<int>(end - begin);
    const int count = (rows + most - 1) / most;
    const int share = count > 1 ? std::min(most, (rows + count * step - 1) / (count * step) * step) : rows;
    while (begin < end) {
      Piece piece{expert, begin, static_cast<int>(std::min(end - begin, static_cast<size_t>(share))), {}, {}};
      for (int phase : {kInner, kOuter}) {
        const PanelKernels& panel = phases_[phase]->path.panel;
        piece.panel[phase] = panel.rows && piece.rows > by_row[phase];
        if (!piece.panel[phase]) continue;
        const auto blocks = static_cast<uint32_t>(panel_blocks(panel, piece.rows));
        for (uint32_t b = 0; b < blocks; ++b)
          blocks_[phase].push_back({static_cast<uint32_t>(pieces_.size()), b});
      }
      pieces_.push_back(piece);
      begin += static_cast<size_t>(piece.rows);
      if (begin - pass_begin < kRowsPerPass) continue;
      finish();
      pass_begin = begin;
    }
  }
  if (pass.first_piece < pieces_.size()) finish();
}

void Experts::Forward::place_blocks(const Pass& pass, uint8_t* memory, int phase) {
  const PanelKernels& panel = phases_[phase]->path.panel;
  for (size_t p = pass.first_piece; p < pass.last_piece; ++p) {
    Piece& piece = pieces_[p];
    if (!piece.panel[phase]) continue;
    piece.blocks[phase] = memory;
    memory += static_cast<size_t>(panel_blocks(panel, piece.rows)) * panel.block_bytes(phases_[phase]->depth);
  }
}

// Places everything that the workers share: prepared tokens, and for one pass after the other intermediate
// rows and arranged panels.
void Experts::Forward::lay_out() {
  bool needed[2][2] = {};
  size_t rows = 0, blocks[2] = {0, 0}, block_bytes[2];
  for (const Pass& pass : passes_) {
    size_t total = 0;
    for (size_t p = pass.first_piece; p < pass.last_piece; ++p) {
      total += static_cast<size_t>(pieces_[p].rows);
      for (int phase : {kInner, kOuter}) needed[phase][pieces_[p].panel[phase]] = true;
    }
    rows = std::max(rows, total);
    for (int phase : {kInner, kOuter})
      blocks[phase] = std::max(blocks[phase], pass.last_block[phase] - pass.first_block[phase]);
  }
  const bool unpadded = layer_.shape_.hidden == layer_.inner_.depth;
  const bool same = needed[kInner][0] && activations_[kInner][0] == activations_[kInner][1];
  size_t prepared[2];
  for (int form = 0; form < 2; ++form) {
    const bool as_is = activations_[kInner][form] == kActF32 && unpadded;
    x_stride_[form] = as_is ? static_cast<size_t>(layer_.shape_.hidden) * sizeof(float)
                            : activation_bytes(activations_[kInner][form], layer_.inner_.depth);
    x_rows_[form] = reinterpret_cast<const uint8_t*>(x_);
    const bool made = needed[kInner][form] && !as_is && !(form == 1 && same);
    prepared[form] = made ? static_cast<size_t>(tokens_) * x_stride_[form] : 0;
    if (needed[kOuter][form])
      h_stride_ = std::max(h_stride_, activation_bytes(activations_[kOuter][form], layer_.outer_.depth));
  }
  size_t bytes = prepared[0] + prepared[1] + rows * h_stride_;
  for (int phase : {kInner, kOuter}) {
    block_bytes[phase] = blocks[phase] ? phases_[phase]->path.panel.block_bytes(phases_[phase]->depth) : 0;
    bytes += blocks[phase] * block_bytes[phase];
    const PanelKernels& panel = phases_[phase]->path.panel;
    if (blocks[phase])
      multiply_bytes_ = std::max(multiply_bytes_, round_up(panel.scratch_bytes(phases_[phase]->depth), 64));
  }
  uint8_t* memory = team_.workspace(bytes);
  for (int form = 0; form < 2; ++form) {
    if (prepared[form]) x_rows_[form] = prepared_[form] = memory;
    memory += prepared[form];
  }
  if (same) x_rows_[1] = x_rows_[0];
  h_ = memory;
  memory += rows * h_stride_;
  for (const Pass& pass : passes_) {
    place_blocks(pass, memory, kInner);
    place_blocks(pass, memory + blocks[kInner] * block_bytes[kInner], kOuter);
  }
  // Two sums and the product of two tiles.
  team_.reserve_scratch(multiply_bytes_ + static_cast<size_t>(4 * sum_rows_ * kTileRows) * sizeof(float));
}

void Experts::Forward::prepare_token(long token) const {
  const long hidden = layer_.shape_.hidden;
  for (int form = 0; form < 2; ++form)
    if (prepared_[form])
      team_.kernels().prepare[activations_[kInner][form]](
          x_ + token * hidden, 0, static_cast<int>(hidden), layer_.inner_.depth,
          prepared_[form] + static_cast<size_t>(token) * x_stride_[form]);
  // The others' rows are written by their first expert.
  if (!routed_[static_cast<size_t>(token)])
    std::memset(y_ + token * hidden, 0, static_cast<size_t>(hidden) * sizeof(float));
}

void Experts::Forward::prepare() {
  const bool idle = std::find(routed_.begin(), routed_.end(), 0) != routed_.end();
  if (!idle && !prepared_[0] && !prepared_[1]) return;
  if (tokens_ <= kSerialPreparation)
    for (long token = 0; token < tokens_; ++token) prepare_token(token);
  else
    team_.for_all(tokens_, [&](long token, int) { prepare_token(token); });
}

const uint8_t* Experts::Forward::x_row(const Piece& piece, int row) const {
  const bool form = piece.panel[kInner];
  return x_rows_[form] +
         static_cast<size_t>(routes_[piece.first + static_cast<size_t>(row)].token) * x_stride_[form];
}

uint8_t* Experts::Forward::h_row(const Piece& piece, int row) const {
  return h_ + (piece.first - h_first_ + static_cast<size_t>(row)) * h_stride_;
}

void Experts::Forward::collect_rows(const Piece& piece, int phase, int begin, int count,
                                    const uint8_t** rows) const {
  for (int i = 0; i < count; ++i)
    rows[i] = phase == kInner ? x_row(piece, begin + i) : h_row(piece, begin + i);
}

void Experts::Forward::arrange(const Block& block, int phase) const {
  const PanelKernels& panel = phases_[phase]->path.panel;
  const int depth = phases_[phase]->depth;
  const Piece& piece = pieces_[block.piece];
  const int begin = static_cast<int>(block.index) * panel.rows,
            count = std::min(panel.rows, piece.rows - begin);
  const uint8_t* rows[kMaxPanelRows];
  collect_rows(piece, phase, begin, count, rows);
  panel.arrange(rows, count, depth, piece.blocks[phase] + block.index * panel.block_bytes(depth));
}

// Rows of one piece times one or two tiles.
void Experts::Forward::multiply(const Piece& piece, int phase, const uint8_t* tile0, const uint8_t* tile1,
                                uint8_t* scratch, float* sums0, float* sums1) const {
  const FormatKernels& path = phases_[phase]->path;
  const int depth = phases_[phase]->depth;
  if (piece.panel[phase]) {
    path.panel.multiply(tile0, tile1, depth, piece.blocks[phase], piece.rows, scratch, sums0, sums1);
    return;
  }
  const uint8_t* rows[kRowsByRow];
  collect_rows(piece, phase, 0, piece.rows, rows);
  path.gemv(tile0, depth, rows, piece.rows, sums0);
  if (tile1) path.gemv(tile1, depth, rows, piece.rows, sums1);
}

// Two tiles of intermediate rows of one piece.
void Experts::Forward::inner_item(const Pass& pass, long item, const Part& part, uint8_t* scratch) const {
  const Kernels& kernels = team_.kernels();
  const long pairs = (part.inner.end - part.inner.begin + 1) / 2;
  const Piece& piece = pieces_[pass.first_piece + static_cast<size_t>(item / pairs)];
  const long sums = sum_rows_ * kTileRows;
  auto* gate_sums = reinterpret_cast<float*>(scratch + multiply_bytes_);
  float* up_sums = gate_sums + sums;
  float* product = up_sums + sums;  // [rows][32]
  const float* biases = layer_.biases(piece.expert);
  const long first = part.inner.begin + item % pairs * 2, last = std::min(first + 2, part.inner.end);
  for (long tile = first; tile < last; ++tile) {
    const uint8_t* gate = part.expert(piece.expert) + layer_.gate_offset(part, tile);
    multiply(piece, kInner, gate, gate + layer_.inner_.tile_bytes, scratch, gate_sums, up_sums);
    kernels.gated_product(layer_.shape_.gating, gate_sums, up_sums,
                          biases ? biases + tile * kTileRows : nullptr,
                          biases ? biases + (layer_.inner_.tiles + tile) * kTileRows : nullptr, piece.rows,
                          kTileRows, product + (tile - first) * kTileRows, 2 * kTileRows);
  }
  const long begin = first * kTileRows;
  const int count = static_cast<int>(std::min(last * kTileRows, layer_.shape_.intermediate) - begin);
  const PrepareFn prepare = kernels.prepare[activations_[kOuter][piece.panel[kOuter]]];
  for (int i = 0; i < piece.rows; ++i)
    prepare(product + i * 2 * kTileRows, static_cast<int>(begin), count, layer_.outer_.depth,
            h_row(piece, i));
}

// Tiles [first, last) of hidden rows, all pieces in order. Several pairs share a piece's activations while
// they are in the cache.
void Experts::Forward::outer_item(const Pass& pass, long first, long last, const Part& part,
                                  uint8_t* scratch) const {
  const long hidden = layer_.shape_.hidden;
  auto* sums0 = reinterpret_cast<float*>(scratch + multiply_bytes_);
  float* sums1 = sums0 + sum_rows_ * kTileRows;
  for (size_t p = pass.first_piece; p < pass.last_piece; ++p) {
    const Piece& piece = pieces_[p];
    const float* biases = layer_.biases(piece.expert);
    for (long tile = first; tile < last; tile += 2) {
      const uint8_t* down = part.expert(piece.expert) + layer_.down_offset(part, tile);
      const bool two = tile + 1 < last;
      const long column = tile * kTileRows;
      multiply(piece, kOuter, down, two ? down + layer_.outer_.tile_bytes : nullptr, scratch, sums0, sums1);
      team_.kernels().add_weighted(routes_.data() + piece.first, piece.rows, sums0, two ? sums1 : nullptr,
                                   biases ? biases + 2 * layer_.inner_.tiles * kTileRows + column : nullptr,
                                   static_cast<int>(std::min<long>(2 * kTileRows, hidden - column)),
                                   y_ + column, hidden);
    }
  }
}

void Experts::Forward::run_inner(const Pass& pass) {
  std::vector<long> items;
  for (const Part& part : layer_.parts_)
    items.push_back((part.inner.end - part.inner.begin + 1) / 2 *
                    static_cast<long>(pass.last_piece - pass.first_piece));
  team_.for_each(items, [&](int group, long item, int worker) {
    inner_item(pass, item, layer_.parts_[static_cast<size_t>(group)], team_.scratch(worker));
  });
}

void Experts::Forward::run_outer(const Pass& pass) {
  // With panels, a worker's share of the hidden rows is cut into few items, yet enough for an even end.
  constexpr long kItemsPerWorker = 3, kMostPairs = 8;
  const bool panels = pass.last_block[kOuter] > pass.first_block[kOuter];
  const long pairs =
      panels ? std::clamp(layer_.outer_.tiles / 2 / (kItemsPerWorker * team_.size()), 1l, kMostPairs) : 1;
  std::vector<long> items;
  for (const Part& part : layer_.parts_)
    items.push_back((part.outer.end - part.outer.begin + 2 * pairs - 1) / (2 * pairs));
  team_.for_each(items, [&](int group, long item, int worker) {
    const Part& part = layer_.parts_[static_cast<size_t>(group)];
    const long first = part.outer.begin + item * 2 * pairs;
    outer_item(pass, first, std::min(first + 2 * pairs, part.outer.end), part, team_.scratch(worker));
  });
}

void Experts::Forward::run() {
  prepare();
  const auto arrange_all = [&](const Pass* outer, const Pass* inner) {
    const size_t first = outer ? outer->last_block[kOuter] - outer->first_block[kOuter] : 0;
    const size_t second = inner ? inner->last_block[kInner] - inner->first_block[kInner] : 0;
    if (first + second == 0) return;
    team_.for_all(static_cast<long>(first + second), [&](long item, int) {
      const auto i = static_cast<size_t>(item);
      if (i < first)
        arrange(blocks_[kOuter][outer->first_block[kOuter] + i], kOuter);
      else
        arrange(blocks_[kInner][inner->first_block[kInner] + i - first], kInner);
    });
  };
  for (size_t i = 0; i < passes_.size(); ++i) {
    if (i == 0) arrange_all(nullptr, &passes_[i]);
    h_first_ = pieces_[passes_[i].first_piece].first;
    run_inner(passes_[i]);
    // The panels of x are free again.
    arrange_all(&passes_[i], i + 1 < passes_.size() ? &passes_[i + 1] : nullptr);
    run_outer(passes_[i]);
  }
}

}  // namespace kt
