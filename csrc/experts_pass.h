// One forward of an expert layer.
#pragma once

#include "experts.h"

namespace kt {

// Rows are sorted by expert and computed in passes over a bounded number of them, each of two phases. First
// the workers compute tiles of the intermediate activations (gate, up and their gated product together); then
// each worker owns hidden rows and adds up the experts in ascending order. No two workers write the same
// element and every sum has one order, so results don't depend on the number of threads.
class Experts::Forward {
 public:
  Forward(const Experts& layer, const float* x, const Routing& routing, float* y);
  void run();

 private:
  enum { kInner, kOuter };  // the phases

  // Consecutive routes of one expert that are computed together, in each phase by rows (gemv) or as a panel.
  struct Piece {
    int expert;
    size_t first;  // route
    int rows;
    bool panel[2];
    uint8_t* blocks[2];  // its activations, arranged; null for gemv
  };
  // Of the activations of a piece that is computed as a panel.
  struct Block {
    uint32_t piece, index;
  };
  // Consecutive pieces, and the blocks of either phase.
  struct Pass {
    size_t first_piece, last_piece, first_block[2], last_block[2];
  };

  void sort(const Routing& routing);
  void cut();
  void lay_out();
  void place_blocks(const Pass& pass, uint8_t* memory, int phase);
  void prepare_token(long token) const;
  void prepare();
  const uint8_t* x_row(const Piece& piece, int row) const;
  uint8_t* h_row(const Piece& piece, int row) const;
  void collect_rows(const Piece& piece, int phase, int begin, int count, const uint8_t** rows) const;
  void arrange(const Block& block, int phase) const;
  void inner_item(const Pass& pass, long item, const Part& part, uint8_t* scratch) const;
  void outer_item(const Pass& pass, long first, long last, const Part& part, uint8_t* scratch) const;
  void multiply(const Piece& piece, int phase, const uint8_t* tile0, const uint8_t* tile1, uint8_t* scratch,
                float* sums0, float* sums1) const;
  void run_inner(const Pass& pass);
  void run_outer(const Pass& pass);

  const Experts& layer_;
  Team& team_;
  const Phase* phases_[2];
  const float* x_;
  float* y_;
  long tokens_;
  std::vector<Destination> routes_;  // sorted by expert
  std::vector<size_t> ends_;         // of each expert's routes
  std::vector<uint8_t> routed_;      // whether a token has a route
  std::vector<Piece> pieces_;
  std::vector<Block> blocks_[2];
  std::vector<Pass> passes_;
  int sum_rows_ = 0;                           // rows that sums in scratch have room for
  size_t multiply_bytes_ = 0;                  // of scratch that the kernels use
  Activation activations_[2][2];               // by phase; of pieces that are computed by rows, as a panel
  const uint8_t* x_rows_[2];                   // tokens so prepared, or x as it is
  uint8_t* prepared_[2] = {nullptr, nullptr};  // the same where they have to be made
  size_t x_stride_[2];
  uint8_t* h_ = nullptr;  // intermediate rows of a pass as the kernels read them
  size_t h_stride_ = 0;
  size_t h_first_ = 0;  // the route whose row is the first
};

}  // namespace kt
