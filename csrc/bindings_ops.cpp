// The plan of a model's step for Python. Addresses stand for tensors whose types and sizes engine/plan.py has
// checked, and which it keeps alive.
#include "bindings_ops.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>

#include "plan.h"

namespace py = pybind11;

namespace {

using Address = uintptr_t;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Columns = std::tuple<int, long, long>;  // buffer, offset, width

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

kt::View view(const Columns& columns) {
  return {std::get<0>(columns), std::get<1>(columns), std::get<2>(columns)};
}

Columns columns(kt::View view) { return {view.buffer, view.offset, view.width}; }

std::vector<float> floats(const std::optional<Floats>& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

using Runs = std::vector<std::pair<long, long>>;

std::shared_ptr<kt::Step> make_step(const std::vector<std::tuple<long, long, long, Runs>>& segments,
                                    const std::vector<long>& picked) {
  auto step = std::make_shared<kt::Step>();
  for (const auto& [begin, end, past, runs] : segments) {
    kt::Segment segment{begin, end, past, {}};
    for (const auto& [first, stop] : runs) segment.runs.push_back({first, stop - first});
    step->segments.push_back(std::move(segment));
  }
  step->picked = picked;
  step->check_and_place();
  return step;
}

kt::AttentionShape attention_shape(int heads, int kv_heads, int key_dim, int value_dim, float scale,
                                   long window) {
  if (heads < 1 || kv_heads < 1 || heads % kv_heads || key_dim < 1 || value_dim < 1 || window < 0)
    throw py::value_error(
        "attention needs query heads in equal groups for each key head, and sizes above zero");
  return {heads, kv_heads, key_dim, value_dim, scale, window, nullptr};
}

kt::Score score_from_name(const std::string& name) {
  if (name == "sigmoid") return kt::Score::kSigmoid;
  if (name == "softmax") return kt::Score::kSoftmax;
  if (name == "topk_softmax") return kt::Score::kTopkSoftmax;
  throw py::value_error("a router's score is sigmoid, softmax or topk_softmax, not '" + name + "'");
}

kt::RouterShape router_shape(int experts, int k, const std::string& score, int groups, int keep,
                             bool renormalise, float scale) {
  if (k < 1 || k > experts || groups < 0 || (groups && (experts % groups || keep < 1 || keep > groups)))
    throw py::value_error("the router cannot choose " + std::to_string(k) + " of " + std::to_string(experts) +
                          " experts in " + std::to_string(groups) + " groups");
  return {experts, k, score_from_name(score), groups, keep, renormalise, scale};
}

// The choice alone, as a plan makes it on the way to the experts.
py::tuple route(kt::Team& team, const Floats& logits, const std::optional<Floats>& bias, int k,
                const std::string& score, int groups, int keep, bool renormalise, float scale,
                py::array_t<int64_t, py::array::c_style>& hits) {
  if (logits.ndim() != 2 || hits.size() != logits.shape(1) || (bias && bias->size() != logits.shape(1)))
    throw py::value_error("hits and bias must have one number for each expert of the logits");
  const auto shape =
      router_shape(static_cast<int>(logits.shape(1)), k, score, groups, keep, renormalise, scale);
  py::array_t<int32_t> ids({logits.shape(0), static_cast<py::ssize_t>(k)});
  py::array_t<float> weights({logits.shape(0), static_cast<py::ssize_t>(k)});
  kt::route(team, shape, logits.data(), bias ? bias->data() : nullptr, logits.shape(0), ids.mutable_data(),
            weights.mutable_data(), hits.mutable_data());
  return py::make_tuple(ids, weights);
}

}  // namespace

void bind_operations(py::module_& module) {
  module.def(
      "linear_into",
      [](const kt::Linear& linear, Address x, long tokens, Address y) {
        linear.forward(at<const float>(x), tokens, at<float>(y));
      },
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "experts_into",
      [](const kt::Experts& experts, Address x, long tokens, Address ids, Address weights, long k,
         Address y) {
        experts.forward(at<const float>(x), {at<const int32_t>(ids), at<const float>(weights), tokens, k},
                        at<float>(y));
      },
      py::call_guard<py::gil_scoped_release>());

  module.def("route", &route);
  py::class_<kt::Step, std::shared_ptr<kt::Step>>(module, "Step")
      .def(py::init(&make_step), py::arg("segments"), py::arg("picked"))
      .def_property_readonly("rows", [](const kt::Step& step) { return step.slots.size(); })
      .def_property_readonly("picked", [](const kt::Step& step) { return step.picked.size(); });

  py::class_<kt::Plan>(module, "Plan")
      .def(py::init<std::shared_ptr<kt::Team>>(), py::arg("team"))
      .def("buffer",
           [](kt::Plan& plan, long width, bool picked) { return columns(plan.buffer(width, picked)); })
      .def("bind", [](kt::Plan& plan, const Columns& what) { plan.bind(view(what)); })
      .def("norm", [](kt::Plan& plan, const Columns& from, const Columns& to, const Floats& weight,
                      float eps) { plan.norm(view(from), view(to), floats(weight), eps); })
      .def("multiply",
           [](kt::Plan& plan, const std::vector<std::shared_ptr<kt::Linear>>& maps, const Columns& from,
              const Columns& to, bool add) { plan.multiply(maps, view(from), view(to), add); })
      .def("silu_product", [](kt::Plan& plan, const Columns& both,
                              const Columns& to) { plan.silu_product(view(both), view(to)); })
      .def("rotation", [](kt::Plan& plan, const Floats& frequencies,
                          bool interleaved) { return plan.rotation(floats(frequencies), interleaved); })
      .def("attend",
           [](kt::Plan& plan, int heads, int kv_heads, int head_dim, float scale, long window,
              const std::optional<Floats>& sinks, int rotation, Address cache, long tokens,
              const Columns& qkv, const Columns& to) {
             plan.attend(attention_shape(heads, kv_heads, head_dim, head_dim, scale, window), floats(sinks),
                         rotation, at<float>(cache), tokens, view(qkv), view(to));
           })
      .def("attend_latent",
           [](kt::Plan& plan, int heads, int key_dim, int value_dim, float scale, Address cache, long tokens,
              const Columns& queries, const Columns& keys, const Columns& to) {
             plan.attend_latent(attention_shape(heads, 1, key_dim, value_dim, scale, 0), at<float>(cache),
                                tokens, view(queries), view(keys), view(to));
           })
      .def("mix",
           [](kt::Plan& plan, const std::shared_ptr<kt::Experts>& experts, int k, const std::string& score,
              int groups, int keep, bool renormalise, float scale, const std::optional<Floats>& bias,
              Address hits, const Columns& logits, const Columns& from, const Columns& to) {
             plan.mix(experts,
                      router_shape(experts->shape().count, k, score, groups, keep, renormalise, scale),
                      floats(bias), at<int64_t>(hits), view(logits), view(from), view(to));
           })
      .def("pick",
           [](kt::Plan& plan, const Columns& from, const Columns& to) { plan.pick(view(from), view(to)); })
      .def(
          "run",
          [](kt::Plan& plan, const kt::Step& step, const std::vector<Address>& given) {
            std::vector<float*> places;
            for (const Address address : given) places.push_back(at<float>(address));
            plan.run(step, places);
          },
          py::call_guard<py::gil_scoped_release>());
}
