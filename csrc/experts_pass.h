// One pass of an expert layer over a bounded number of routed rows.
#pragma once

#include "experts.h"

namespace kt {

// One routed row: token `token` goes to `expert` with `weight`.
struct Experts::Route {
  int expert;
  long token;
  float weight;
};

// Consecutive routes of one expert that are computed together, by rows (gemv) or as a panel.
struct Experts::Piece {
  int expert;
  size_t first;
  int rows;
  bool panel;
};

// Two phases. First the workers compute tiles of the intermediate activations
// (gate, up, silu and product together); then each worker owns hidden rows and adds up the experts in
// ascending order. No two workers write the same element and every sum has one order, so results don't depend
// on the number of threads. Pieces with many rows add a transposition of their activations before each phase.
class Experts::Pass {
 public:
  Pass(const Experts& layer, long tokens, std::vector<Route> routes, const std::vector<Piece>& pieces);
  void run(const float* x, float* y);

 private:
  void lay_out(const float* x);
  void prepare_token(const float* x, long token, bool panel) const;
  void arrange(size_t index, bool inner) const;
  void inner_item(long item, const Part& part, uint8_t* scratch) const;
  void outer_item(long item, const Part& part, uint8_t* scratch, float* y) const;
  void add_rows(const Piece& piece, long tile, const float* sums, float* y) const;

  const Experts& layer_;
  Team& team_;
  const FormatKernels& path_;
  const std::vector<Piece>& pieces_;
  std::vector<Route> routes_;
  long tokens_;
  long outer_pairs_ = 1;       // pairs of tiles of hidden rows in an item
  Activation activations_[2];  // of pieces that are computed by rows, as a panel
  uint8_t* prepared_[2] = {nullptr,
                           nullptr};  // tokens so prepared; null when x is read as it is, or not needed
  uint8_t* h_ = nullptr;              // intermediate rows as the kernels read them
  size_t h_stride_ = 0;
  std::vector<const uint8_t*> x_rows_, h_rows_;        // per route
  std::vector<uint8_t*> x_panels_, h_panels_;          // per piece, null for gemv
  std::vector<std::pair<size_t, long>> panel_blocks_;  // (piece, block) of all panels
};

}  // namespace kt
