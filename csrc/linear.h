// y = x W^T for one quantised weight matrix, or for several that share x.
#pragma once

#include <memory>
#include <vector>

#include "pack.h"
#include "team.h"

namespace kt {

class Linear {
 public:
  // Packs `source` with the whole team; its bytes are not needed afterwards.
  Linear(std::shared_ptr<Team> team, const Source& source, Mode mode);

  // x [tokens][columns], y [tokens][rows]; both contiguous. The product is added to y if `add`.
  void forward(const float* x, long tokens, float* y, bool add = false) const;

  long rows() const { return rows_; }
  long columns() const { return columns_; }
  size_t bytes() const;

 private:
  friend class Product;
  const uint8_t* tile(long index) const;

  std::shared_ptr<Team> team_;
  const FormatKernels& path_;
  Format format_;
  long rows_, columns_, tiles_;
  int depth_;
  size_t tile_bytes_;
  std::vector<Range> shares_;  // tiles of each NUMA group
  std::vector<long> tiles_by_group_;
  std::vector<Memory> parts_;
};

// Products of one x with several maps of one team, side by side: y [tokens][stride] begins with the rows of
// the first map, then come those of the next. Activations are prepared once for maps that want them alike,
// and such maps share the work of the team.
void multiply(const std::vector<const Linear*>& maps, const float* x, long tokens, float* y, long stride,
              bool add);

}  // namespace kt
