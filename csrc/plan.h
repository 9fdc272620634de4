// A model's step, told once and run many times: operations on rows of numbers, one after the other.
//
// A token passes through hundreds of small operations. Told one by one from Python they would cost more than
// the small ones take, and the interpreter lock would change hands between all of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "attention.h"
#include "experts.h"
#include "linear.h"
#include "router.h"
#include "team.h"

namespace kt {

// Columns [offset, offset + width) of a buffer's rows.
struct View {
  int buffer;
  long offset, width;
};

class Plan {
 public:
  explicit Plan(std::shared_ptr<Team> team) : team_(std::move(team)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // A buffer of `width` floats a row: one row for each row of the step, or for each row that `pick` picks.
  View buffer(long width, bool picked);

  // Operations, in the order in which they are told. All throw std::invalid_argument when sizes don't fit.
  // Norm of each of the groups that the view is cut into; `to` may be `from`.
  void norm(View from, View to, std::vector<float> weight, float eps);
  // The outputs of all maps side by side. They share the input, so it is prepared once where that fits.
  void multiply(std::vector<std::shared_ptr<Linear>> maps, View from, View to, bool add);
  void silu_product(View both, View to);
  // A rotation of the first 2 * frequencies.size() numbers of heads; the number that attend names it by.
  int rotation(std::vector<float> frequencies, bool interleaved);
  // `cache` is [2][kv_heads][tokens][head_dim] floats, laid out as attention.h says; rotation -1: none.
  void attend(const AttentionShape& shape, std::vector<float> sinks, int rotation, float* cache, long tokens,
              View qkv, View to);
  void attend_latent(const AttentionShape& shape, float* cache, long tokens, View queries, View keys,
                     View to);
  // Adds what the chosen experts make of `from` to `to`, and counts the choices in hits [experts].
  void mix(std::shared_ptr<Experts> experts, const RouterShape& shape, std::vector<float> bias, int64_t* hits,
           View logits, View from, View to);
  // The rows whose logits are wanted.
  void pick(View from, View to);

  // Makes a whole buffer lie in memory that the caller of run gives.
  void bind(View view);

  // Runs all operations. `given` has the address of each bound buffer, in the order of binding.
  void run(const Step& step, const std::vector<float*>& given);

 private:
  struct Buffer {
    long width;
    bool picked;
    int bound = -1;      // place among the addresses that run is given
    size_t first, last;  // operations that use it
    int slot = -1;
  };
  // Where the buffers of the current run lie.
  struct Place {
    float* data;
    long rows, width;
  };
  using Operation = std::function<void(const Step&)>;

  void tell(std::initializer_list<View> used, Operation operation);
  void check(View view) const;
  void check_whole(View view) const;
  void assign();
  long rows(View view) const { return places_[static_cast<size_t>(view.buffer)].rows; }
  float* at(View view) const { return places_[static_cast<size_t>(view.buffer)].data + view.offset; }
  long width(View view) const { return buffers_[static_cast<size_t>(view.buffer)].width; }

  std::shared_ptr<Team> team_;
  std::vector<Buffer> buffers_;
  std::vector<Operation> operations_;
  std::vector<std::pair<long, bool>> slots_;  // width, picked: memory that buffers use in turn
  bool assigned_ = false;
  int bound_ = 0;
  std::vector<std::pair<std::vector<float>, bool>> rotations_;
  std::vector<Rotation> angles_;
  std::vector<Place> places_;
  std::vector<int32_t> ids_;  // of the experts chosen last, with their weights
  std::vector<float> weights_;
  Memory memory_;
};

}  // namespace kt
