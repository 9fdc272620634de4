// The routed experts of one mixture-of-experts layer: y = sum_e w_e * (down_e(gating(gate_e x, up_e x))),
// each of the three matrices with a bias where the model has one.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "pack.h"
#include "team.h"

namespace kt {

// What the router said: for each of `tokens` rows, `per_token` expert ids and weights. A negative id is
// skipped (that expert is computed elsewhere); an id that occurs twice counts twice.
struct Routing {
  const int32_t* ids;
  const float* weights;
  long tokens;
  long per_token;
};

// A matrix's format in the checkpoint and the one it is packed in.
struct StoredAs {
  Format source, stored;
};

// silu(gate) * up
constexpr Gating kSilu{std::numeric_limits<float>::infinity(), 1.0f, 0.0f};

struct ExpertsShape {
  int count;
  long hidden, intermediate;
  StoredAs inner, outer;  // gate and up; down
  Mode mode;
  Gating gating;
};

// Added to the rows of the three products; null where there is none.
struct Biases {
  const float *gate = nullptr, *up = nullptr, *down = nullptr;
};

class Experts {
 public:
  // Memory is reserved for all experts and taken by those that are loaded.
  Experts(std::shared_ptr<Team> team, const ExpertsShape& shape);

  // gate and up are [intermediate][hidden], down is [hidden][intermediate]. Packs with the whole team; the
  // source bytes are not needed afterwards. Loading an expert again replaces it: the new one is packed to the
  // side first, so when its bytes are refused the former one goes on working.
  void load(int expert, const Source& gate, const Source& up, const Source& down, const Biases& biases = {});

  // Gives the memory of an expert back to the system. Nothing happens if it is not loaded.
  void unload(int expert);

  // x and y are [tokens][hidden], contiguous. Equal inputs give equal bits, whatever the number of threads.
  void forward(const float* x, const Routing& routing, float* y) const;

  const ExpertsShape& shape() const { return shape_; }
  // These wait for a call of the team that is under way.
  bool loaded(int expert) const;
  size_t bytes() const;  // of the experts loaded so far

 private:
  class Forward;

  // One of an expert's two multiplications: with gate and up, or with down.
  struct Phase {
    const FormatKernels& path;
    int depth;          // columns, padded
    long tiles;         // of output rows
    size_t tile_bytes;  // of one matrix
    Phase(const Kernels& kernels, StoredAs as, Mode mode, long rows, long columns);
  };

  // The tiles of gate, up and down that one NUMA group owns, for all experts: per expert first gate and up
  // tiles in turn, then down tiles.
  struct Part {
    Range inner;  // tiles of intermediate rows
    Range outer;  // tiles of hidden rows
    size_t expert_bytes;
    int node;
    Memory memory;
    uint8_t* expert(int index) const { return memory.data() + static_cast<size_t>(index) * expert_bytes; }
  };

  // Where a tile lies in what a part holds of an expert. The tile of up follows that of gate.
  size_t gate_offset(const Part& part, long tile) const {
    return static_cast<size_t>(tile - part.inner.begin) * 2 * inner_.tile_bytes;
  }
  size_t down_offset(const Part& part, long tile) const {
    return gate_offset(part, part.inner.end) +
           static_cast<size_t>(tile - part.outer.begin) * outer_.tile_bytes;
  }
  // The biases of gate, up and down, each padded to whole tiles; null if the expert has none.
  const float* biases(int expert) const {
    const std::vector<float>& all = biases_[static_cast<size_t>(expert)];
    return all.empty() ? nullptr : all.data();
  }
  void check_expert(int expert) const;
  void check_routing(const Routing& routing) const;
  std::vector<float> padded_biases(int expert, const Biases& biases) const;
  void release(int expert);

  std::shared_ptr<Team> team_;
  ExpertsShape shape_;
  Phase inner_, outer_;
  std::vector<Part> parts_;
  std::vector<bool> loaded_;
  std::vector<std::vector<float>> biases_;
};

}  // namespace kt
