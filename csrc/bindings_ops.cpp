// Operations on rows for Python. They take addresses: a call happens hundreds of times a token, and
// engine/ops.py, the one caller, has checked types and shapes. Sizes are checked here once more where they
// cost nothing.
#include "bindings_ops.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>

#include "attention.h"
#include "experts.h"
#include "linear.h"
#include "router.h"

namespace py = pybind11;

namespace {

using Address = uintptr_t;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

constexpr long kSerialRows = 4;  // so few rows are done by the caller alone

// A row is `groups` runs of `width` values, each with a norm of its own.
void rms_norm(kt::Team& team, Address x, long rows, int groups, int width, long stride, Address weight,
              float eps, Address out, long out_stride) {
  const auto one = [&](long row, int) {
    const float* from = at<const float>(x) + row * stride;
    float* to = at<float>(out) + row * out_stride;
    for (int group = 0; group < groups; ++group, from += width, to += width)
      team.kernels().rms_norm(from, at<const float>(weight), eps, width, to);
  };
  if (rows <= kSerialRows) {
    for (long row = 0; row < rows; ++row) one(row, 0);
    return;
  }
  const auto guard = team.lock();
  team.for_all(rows, one);
}

// gate and up lie side by side in each row of `both`.
void silu_product(kt::Team& team, Address both, long rows, int inner, Address out) {
  const auto one = [&](long row, int) {
    const float* gate = at<const float>(both) + row * 2 * inner;
    team.kernels().silu_product(gate, gate + inner, inner, at<float>(out) + row * inner);
  };
  if (rows <= kSerialRows) {
    for (long row = 0; row < rows; ++row) one(row, 0);
    return;
  }
  const auto guard = team.lock();
  team.for_all(rows, one);
}

using Runs = std::vector<std::pair<long, long>>;

std::shared_ptr<kt::Step> make_step(const std::vector<std::tuple<long, long, long, Runs>>& segments,
                                    const py::array_t<float, py::array::c_style>& cosine,
                                    const py::array_t<float, py::array::c_style>& sine, bool interleaved) {
  auto step = std::make_shared<kt::Step>();
  for (const auto& [begin, end, past, runs] : segments) {
    kt::Segment segment{begin, end, past, {}};
    for (const auto& [first, stop] : runs) segment.runs.push_back({first, stop - first});
    step->segments.push_back(std::move(segment));
  }
  step->cosine.assign(cosine.data(), cosine.data() + cosine.size());
  step->sine.assign(sine.data(), sine.data() + sine.size());
  step->half = cosine.ndim() == 2 ? static_cast<int>(cosine.shape(1)) : 0;
  step->interleaved = interleaved;
  step->check_and_place();
  return step;
}

kt::AttentionShape attention_shape(int heads, int kv_heads, int key_dim, int value_dim, float scale,
                                   long window, Address sinks) {
  if (heads < 1 || kv_heads < 1 || heads % kv_heads || key_dim < 1 || value_dim < 1 || window < 0)
    throw py::value_error(
        "attention needs query heads in equal groups for each key head, and sizes above zero");
  return {heads, kv_heads, key_dim, value_dim, scale, window, at<const float>(sinks)};
}

void route(kt::Team& team, Address logits, Address bias, long tokens, int experts, int k,
           const std::string& score, int groups, int keep, bool renormalise, float scale, Address ids,
           Address weights, Address hits) {
  if (k < 1 || k > experts || (groups && experts % groups))
    throw py::value_error("the router cannot choose " + std::to_string(k) + " of " + std::to_string(experts) +
                          " experts in " + std::to_string(groups) + " groups");
  if (score != "sigmoid" && score != "softmax" && score != "topk_softmax")
    throw py::value_error("a router's score is sigmoid, softmax or topk_softmax, not '" + score + "'");
  const kt::Score kind = score == "sigmoid"   ? kt::Score::kSigmoid
                         : score == "softmax" ? kt::Score::kSoftmax
                                              : kt::Score::kTopkSoftmax;
  kt::route(team, {experts, k, kind, groups, keep, renormalise, scale}, at<const float>(logits),
            at<const float>(bias), tokens, at<int32_t>(ids), at<float>(weights), at<int64_t>(hits));
}

}  // namespace

void bind_operations(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "linear_into",
      [](const kt::Linear& linear, Address x, long tokens, Address y, bool add) {
        linear.forward(at<const float>(x), tokens, at<float>(y), add);
      },
      unlocked);
  module.def(
      "experts_into",
      [](const kt::Experts& experts, Address x, long tokens, Address ids, Address weights, long k,
         Address y) {
        experts.forward(at<const float>(x), {at<const int32_t>(ids), at<const float>(weights), tokens, k},
                        at<float>(y));
      },
      unlocked);
  module.def("rms_norm", &rms_norm, unlocked);
  module.def("silu_product", &silu_product, unlocked);
  module.def("route", &route, unlocked);
  py::class_<kt::Step, std::shared_ptr<kt::Step>>(module, "Step")
      .def(py::init(&make_step), py::arg("segments"), py::arg("cosine"), py::arg("sine"),
           py::arg("interleaved"))
      .def_property_readonly("rows", [](const kt::Step& step) { return step.slots.size(); });
  module.def(
      "attend_grouped",
      [](kt::Team& team, const kt::Step& step, int heads, int kv_heads, int key_dim, int value_dim,
         float scale, long window, Address sinks, Address qkv, Address keys, Address values, long tokens,
         Address out) {
        kt::attend_grouped(team, step,
                           attention_shape(heads, kv_heads, key_dim, value_dim, scale, window, sinks),
                           at<float>(qkv), at<float>(keys), at<float>(values), tokens, at<float>(out));
      },
      unlocked);
  module.def(
      "attend_latent",
      [](kt::Team& team, const kt::Step& step, int heads, int key_dim, int value_dim, float scale,
         Address queries, Address new_keys, Address cache, long tokens, Address out) {
        kt::attend_latent(team, step, attention_shape(heads, 1, key_dim, value_dim, scale, 0, 0),
                          at<const float>(queries), at<const float>(new_keys), at<float>(cache), tokens,
                          at<float>(out));
      },
      unlocked);
}
