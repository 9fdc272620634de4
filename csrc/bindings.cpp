// The one place where C++ meets Python: numpy arrays are checked here, and nothing else in csrc knows of
// them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>

#include "bindings_ops.h"
#include "experts.h"
#include "linear.h"
#include "probe.h"

namespace py = pybind11;

namespace {

std::string shape_text(const py::array& array) {
  std::string text = "[";
  for (py::ssize_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
  return text + "]";
}

// Throws unless the array has this element type, this shape (-1: any extent) and C order.
template <typename T>
const T* checked(const py::array& array, const char* name, const std::vector<py::ssize_t>& shape) {
  if (!py::dtype::of<T>().is(array.dtype()) && !py::dtype::of<T>().equal(array.dtype()))
    throw py::value_error(std::string(name) + " must have dtype " + std::string(py::str(py::dtype::of<T>())) +
                          ", not " + std::string(py::str(array.dtype())));
  bool fits = array.ndim() == static_cast<py::ssize_t>(shape.size());
  std::string wanted = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    fits = fits && (shape[i] < 0 || array.shape(static_cast<py::ssize_t>(i)) == shape[i]);
    wanted += (i ? ", " : "") + (shape[i] < 0 ? std::string("any") : std::to_string(shape[i]));
  }
  if (!fits)
    throw py::value_error(std::string(name) + " must have shape " + wanted + "], not " + shape_text(array));
  if (!(array.flags() & py::array::c_style)) throw py::value_error(std::string(name) + " must be contiguous");
  return static_cast<const T*>(array.data());
}

// Scales as a format wants them: float32, or the bits of another element type as uint8 or uint16.
const void* checked_scale(const kt::ScaleLayout& layout, const std::string& name,
                          const std::optional<py::array>& scale, long rows, long columns) {
  if ((layout.type != kt::kNoScale) != scale.has_value())
    throw py::value_error(name + (scale ? " has no scales of its own in this format" : " needs scales"));
  if (!scale) return nullptr;
  std::vector<py::ssize_t> shape{(rows + layout.row_block - 1) / layout.row_block};
  if (layout.column_block)
    shape.insert(layout.transposed ? shape.begin() : shape.end(),
                 (columns + layout.column_block - 1) / layout.column_block);
  const std::string what = name + " scale";
  if (layout.type == kt::kScaleU8) return checked<uint8_t>(*scale, what.c_str(), shape);
  if (layout.type == kt::kScaleU16) return checked<uint16_t>(*scale, what.c_str(), shape);
  return checked<float>(*scale, what.c_str(), shape);
}

// Raw weight bytes: any shape, so long as the number of bytes is right.
kt::Source checked_source(kt::Format format, kt::Format stored, const char* name, const py::array& weight,
                          const std::optional<py::array>& scale, long rows, long columns) {
  if (rows < 1 || columns < 1 || rows > (1l << 30) || columns > (1l << 30))
    throw py::value_error(std::string(name) + " needs between 1 and 2^30 rows and columns, not " +
                          std::to_string(rows) + " x " + std::to_string(columns));
  const py::ssize_t bytes = static_cast<py::ssize_t>(kt::source_row_bytes(format, columns)) * rows;
  if (weight.itemsize() != 1 || !py::dtype::of<uint8_t>().equal(weight.dtype()))
    throw py::value_error(std::string(name) + " must be raw bytes (dtype uint8), not " +
                          std::string(py::str(weight.dtype())));
  if (!(weight.flags() & py::array::c_style))
    throw py::value_error(std::string(name) + " must be contiguous");
  if (weight.nbytes() != bytes)
    throw py::value_error(std::string(name) + " must be " + std::to_string(bytes) + " bytes (" +
                          std::to_string(rows) + " x " + std::to_string(columns) + " in " +
                          kt::format_name(format) + "), not " + std::to_string(weight.nbytes()));
  return {format,
          static_cast<const uint8_t*>(weight.data()),
          checked_scale(kt::storage(format).scale, name, scale, rows, columns),
          rows,
          columns,
          stored};
}

kt::Mode mode_from_name(const std::string& name) {
  if (name != "exact" && name != "fast")
    throw py::value_error("mode must be 'exact' or 'fast', not '" + name + "'");
  return name == "fast" ? kt::kFast : kt::kExact;
}

// The format to store in: the source's own, or one that can be made from it.
kt::Format stored_format(kt::Format source, const std::optional<std::string>& name) {
  if (!name) return source;
  const kt::Format stored = kt::format_from_name(*name);
  if (stored != source && !kt::can_quantise(source, stored))
    throw py::value_error("weights in " + std::string(kt::format_name(source)) + " cannot be stored as " +
                          *name +
                          "; f32, bf16, fp8_block128 and fp8_channel can, as int8, int4, q8_0 or int4_g32");
  return stored;
}

std::shared_ptr<kt::Linear> make_linear(std::shared_ptr<kt::Team> team, const std::string& format_name,
                                        const py::array& weight, const std::optional<py::array>& scale,
                                        long rows, long columns, const std::string& mode_name,
                                        const std::optional<std::string>& store) {
  const kt::Format format = kt::format_from_name(format_name);
  const kt::Mode mode = mode_from_name(mode_name);
  const kt::Source source =
      checked_source(format, stored_format(format, store), "weight", weight, scale, rows, columns);
  py::gil_scoped_release unlocked;
  return std::make_shared<kt::Linear>(std::move(team), source, mode);
}

py::array_t<float> linear_forward(const kt::Linear& linear, const py::array& x) {
  const float* input = checked<float>(x, "x", {-1, linear.columns()});
  py::array_t<float> y({x.shape(0), static_cast<py::ssize_t>(linear.rows())});
  float* output = y.mutable_data();
  const long tokens = x.shape(0);
  {
    py::gil_scoped_release unlocked;
    linear.forward(input, tokens, output);
  }
  return y;
}

std::shared_ptr<kt::Experts> make_experts(std::shared_ptr<kt::Team> team, const std::string& format,
                                          int experts, long hidden, long intermediate,
                                          const std::string& mode, const std::optional<std::string>& store,
                                          const std::optional<std::string>& down_format, float limit,
                                          float alpha, float shift) {
  for (long value : {static_cast<long>(experts), hidden, intermediate})
    if (value < 1 || value > (1l << 30))
      throw py::value_error("experts, hidden and intermediate must be between 1 and 2^30, not " +
                            std::to_string(value));
  if (!(limit > 0) || !std::isfinite(alpha) || !std::isfinite(shift))
    throw py::value_error("an activation's limit must be above zero, its alpha and shift finite, not " +
                          std::to_string(limit) + ", " + std::to_string(alpha) + " and " +
                          std::to_string(shift));
  const kt::Format inner = kt::format_from_name(format);
  const kt::Format outer = down_format ? kt::format_from_name(*down_format) : inner;
  return std::make_shared<kt::Experts>(std::move(team), kt::ExpertsShape{experts,
                                                                         hidden,
                                                                         intermediate,
                                                                         {inner, stored_format(inner, store)},
                                                                         {outer, stored_format(outer, store)},
                                                                         mode_from_name(mode),
                                                                         {limit, alpha, shift}});
}

const float* checked_bias(const std::optional<py::array>& bias, const char* name, long rows) {
  return bias ? checked<float>(*bias, name, {rows}) : nullptr;
}

void experts_load(kt::Experts& layer, int expert, const py::array& gate, const py::array& up,
                  const py::array& down, const std::optional<py::array>& gate_scale,
                  const std::optional<py::array>& up_scale, const std::optional<py::array>& down_scale,
                  const std::optional<py::array>& gate_bias, const std::optional<py::array>& up_bias,
                  const std::optional<py::array>& down_bias) {
  const kt::ExpertsShape& shape = layer.shape();
  const long hidden = shape.hidden, intermediate = shape.intermediate;
  const kt::Source g =
      checked_source(shape.inner.source, shape.inner.stored, "gate", gate, gate_scale, intermediate, hidden);
  const kt::Source u =
      checked_source(shape.inner.source, shape.inner.stored, "up", up, up_scale, intermediate, hidden);
  const kt::Source d =
      checked_source(shape.outer.source, shape.outer.stored, "down", down, down_scale, hidden, intermediate);
  const kt::Biases biases{checked_bias(gate_bias, "gate bias", intermediate),
                          checked_bias(up_bias, "up bias", intermediate),
                          checked_bias(down_bias, "down bias", hidden)};
  py::gil_scoped_release unlocked;
  layer.load(expert, g, u, d, biases);
}

py::array_t<float> experts_forward(const kt::Experts& layer, const py::array& x, const py::array& ids,
                                   const py::array& weights) {
  const float* input = checked<float>(x, "x", {-1, layer.shape().hidden});
  const int32_t* chosen = checked<int32_t>(ids, "ids", {x.shape(0), -1});
  const float* factors = checked<float>(weights, "weights", {x.shape(0), ids.shape(1)});
  const kt::Routing routing{chosen, factors, x.shape(0), ids.shape(1)};
  py::array_t<float> y({x.shape(0), static_cast<py::ssize_t>(layer.shape().hidden)});
  float* output = y.mutable_data();
  {
    py::gil_scoped_release unlocked;
    layer.forward(input, routing, output);
  }
  return y;
}

std::shared_ptr<kt::Team> make_team(const std::vector<std::pair<int, int>>& cores, const std::string& isa) {
  std::vector<kt::Core> list;
  for (const auto& [cpu, node] : cores) {
    if (cpu < 0 || node < 0) throw py::value_error("CPU and node numbers cannot be negative");
    list.push_back({cpu, node});
  }
  return std::make_shared<kt::Team>(list, isa);
}

std::vector<std::pair<int, int>> list_cores() {
  std::vector<std::pair<int, int>> result;
  for (const kt::Core& core : kt::usable_cores()) result.emplace_back(core.cpu, core.node);
  return result;
}

std::vector<std::pair<int, int>> team_cores(const kt::Team& team) {
  std::vector<std::pair<int, int>> result;
  for (int i = 0; i < team.size(); ++i)
    result.emplace_back(team.worker(i).cpu, team.node(team.worker(i).group));
  return result;
}

}  // namespace

PYBIND11_MODULE(_csrc, module) {
  module.doc() = "CPU kernels of the embedded engine.";
  module.def("available_isas", &kt::available_isas);
  module.def("usable_cores", &list_cores);
  module.def("node_of_cpu", &kt::node_of_cpu, py::arg("cpu"));
  module.def("cpu_quota", &kt::cpu_quota);

  py::class_<kt::Team, std::shared_ptr<kt::Team>>(module, "Team")
      .def(py::init(&make_team), py::arg("cores"), py::arg("isa"))
      .def_property_readonly("cores", &team_cores)
      .def_property_readonly("notes", &kt::Team::notes)
      .def_property_readonly("isa", [](const kt::Team& team) { return team.kernels().name; })
      .def_property_readonly("isa_detail",
                             [](const kt::Team& team) { return kt::isa_detail(team.kernels().name); });

  py::class_<kt::Linear, std::shared_ptr<kt::Linear>>(module, "Linear")
      .def(py::init(&make_linear), py::arg("team"), py::arg("format"), py::arg("weight"),
           py::arg("scale").none(true), py::arg("rows"), py::arg("columns"), py::arg("mode"),
           py::arg("store") = py::none())
      .def("forward", &linear_forward, py::arg("x"))
      .def_property_readonly("nbytes", &kt::Linear::bytes);

  const auto released = py::call_guard<py::gil_scoped_release>();
  py::class_<kt::Experts, std::shared_ptr<kt::Experts>>(module, "Experts")
      .def(py::init(&make_experts), py::arg("team"), py::arg("format"), py::arg("experts"), py::arg("hidden"),
           py::arg("intermediate"), py::arg("mode"), py::arg("store") = py::none(),
           py::arg("down_format") = py::none(), py::arg("limit") = kt::kSilu.limit,
           py::arg("alpha") = kt::kSilu.alpha, py::arg("shift") = kt::kSilu.shift)
      .def("load", &experts_load, py::arg("expert"), py::arg("gate"), py::arg("up"), py::arg("down"),
           py::arg("gate_scale").none(true), py::arg("up_scale").none(true), py::arg("down_scale").none(true),
           py::arg("gate_bias") = py::none(), py::arg("up_bias") = py::none(),
           py::arg("down_bias") = py::none())
      .def("unload", &kt::Experts::unload, py::arg("expert"), released)
      .def("loaded", &kt::Experts::loaded, py::arg("expert"), released)
      .def("forward", &experts_forward, py::arg("x"), py::arg("ids"), py::arg("weights"))
      .def_property_readonly("nbytes", py::cpp_function(&kt::Experts::bytes, released));

  bind_operations(module);

  module.def("read_bandwidth", &kt::read_bandwidth, py::arg("team"), py::arg("bytes"), py::arg("passes"),
             py::call_guard<py::gil_scoped_release>());
  module.def("job_seconds", &kt::job_seconds, py::arg("team"), py::arg("pause"), py::arg("rounds"),
             py::call_guard<py::gil_scoped_release>());
  module.def("tile_loop", &kt::tile_loop, py::arg("team"), py::arg("seconds"),
             py::call_guard<py::gil_scoped_release>());
  module.def("int8_peak", &kt::int8_peak, py::arg("team"), py::arg("seconds"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "multiply_alone",
      [](kt::Team& team, const std::string& format, const std::string& mode, int depth, int rows,
         double seconds) {
        return kt::multiply_alone(team, kt::format_from_name(format), mode_from_name(mode), depth, rows,
                                  seconds);
      },
      py::arg("team"), py::arg("format"), py::arg("mode"), py::arg("depth"), py::arg("rows"),
      py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
  module.def("fma_peak", &kt::fma_peak, py::arg("team"), py::arg("bf16"), py::arg("seconds"),
             py::call_guard<py::gil_scoped_release>());
}
