// The routed experts of one mixture-of-experts layer: y = sum_e w_e * down_e(silu(gate_e x) * up_e x).
#pragma once

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

class Experts {
 public:
  // Memory is reserved for all experts and taken by those that are
  // loaded.
  Experts(std::shared_ptr<Team> team, Format source, Format stored, Mode mode, int count, long hidden,
          long intermediate);

  // gate and up are [intermediate][hidden], down is [hidden][intermediate]. Packs with the whole team; the
  // source bytes are not needed afterwards. Loading an expert again replaces it.
  void load(int expert, const Source& gate, const Source& up, const Source& down);

  // x and y are [tokens][hidden], contiguous. Equal inputs give equal bits, whatever the number of threads.
  void forward(const float* x, const Routing& routing, float* y) const;

  int count() const { return static_cast<int>(loaded_.size()); }
  bool loaded(int expert) const { return loaded_[static_cast<size_t>(expert)]; }
  long hidden() const { return hidden_; }
  long intermediate() const { return intermediate_; }
  Format source_format() const { return source_; }
  Format format() const { return format_; }
  // Bytes of the experts loaded so far.
  size_t bytes() const;

 private:
  struct Route;
  struct Piece;
  class Pass;

  // The tiles of gate, up and down that one NUMA group owns, for all experts: per expert first gate and up
  // tiles in turn, then down tiles.
  struct Part {
    Range inner;  // tiles of intermediate rows
    Range outer;  // tiles of hidden rows
    size_t expert_bytes;
    Memory memory;
  };

  const uint8_t* gate_tile(const Part& part, int expert, long tile) const;
  const uint8_t* down_tile(const Part& part, int expert, long tile) const;
  std::vector<Route> sort_by_expert(const Routing& routing) const;

  std::shared_ptr<Team> team_;
  const FormatKernels& path_;
  Format source_, format_;
  long hidden_, intermediate_, inner_tiles_, outer_tiles_;
  int hidden_depth_, intermediate_depth_;
  size_t gate_bytes_, down_bytes_;
  std::vector<Part> parts_;
  std::vector<bool> loaded_;
};

}  // namespace kt
