#include "probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "pack.h"

namespace kt {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double read_bandwidth(Team& team, size_t bytes, int passes) {
  const auto guard = team.lock();
  const size_t share = std::max<size_t>(bytes / static_cast<size_t>(team.size()) / 4096, 1) * 4096;
  std::vector<Memory> memory;
  for (int i = 0; i < team.size(); ++i)
    memory.emplace_back(share, team.groups() > 1 ? team.node(team.worker(i).group) : -1);
  std::vector<double> begin(static_cast<size_t>(team.size())), end(begin);
  std::atomic<uint64_t> sink{0};
  team.on_each_worker([&](int worker) { std::memset(memory[static_cast<size_t>(worker)].data(), 1, share); });
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    team.on_each_worker([&](int worker) {
      const auto i = static_cast<size_t>(worker);
      begin[i] = now();
      sink |= team.kernels().read(memory[i].data(), share);
      end[i] = now();
    });
    const double seconds =
        *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
    best = std::max(best, static_cast<double>(share) * team.size() / seconds);
  }
  return best;
}

namespace {

double peak(Team& team, double (*function)(long), double seconds) {
  if (!function) return 0;
  const auto guard = team.lock();
  std::vector<double> rate(static_cast<size_t>(team.size()));
  team.on_each_worker([&](int worker) {
    const double start = now();
    double operations = 0, stop = start;
    do {
      operations += function(20000);
      stop = now();
    } while (stop - start < seconds);
    rate[static_cast<size_t>(worker)] = operations / (stop - start);
  });
  double total = 0;
  for (double r : rate) total += r;
  return total;
}

}  // namespace

double fma_peak(Team& team, bool bf16, double seconds) {
  return peak(team, bf16 ? team.kernels().fma_bf16 : team.kernels().fma_f32, seconds);
}

double tile_loop(Team& team, double seconds) { return peak(team, team.kernels().tile_loop, seconds); }

double int8_peak(Team& team, double seconds) { return peak(team, team.kernels().int8_peak, seconds); }

double job_seconds(Team& team, double pause, int rounds) {
  if (rounds < 1 || !(pause >= 0))
    throw std::invalid_argument("a pause from 0 on and at least one round are needed");
  const auto guard = team.lock();
  std::vector<double> spent;
  for (int round = 0; round < rounds; ++round) {
    if (pause > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    const double start = now();
    team.on_each_worker([](int) {});
    spent.push_back(now() - start);
  }
  std::nth_element(spent.begin(), spent.begin() + rounds / 2, spent.end());
  return spent[static_cast<size_t>(rounds / 2)];
}

double multiply_alone(Team& team, Format format, Mode mode, int depth, int rows, double seconds) {
  const FormatKernels& path = team.kernels().formats[format][mode];
  if (!path.gemv || depth < 1 || depth % kQuantBlock || depth != padded_depth(format, depth) || rows < 1)
    throw std::invalid_argument("no kernel for this format, mode, depth and number of rows");
  const auto guard = team.lock();
  const PanelKernels& panel = path.panel;
  const bool panels = panel.rows && rows > path.gemv_rows;
  if (panels) rows = std::min(rows, sweep_rows(panel, depth));
  const Activation activation = panels ? panel.activation : path.activation;
  const size_t tile = tile_bytes(format, depth), row = activation_bytes(activation, depth);
  const size_t sums = static_cast<size_t>(rows + kMaxPanelRows) * kTileRows;
  const auto blocks = static_cast<size_t>(panels ? panel_blocks(panel, rows) : 0);
  std::vector<double> rate(static_cast<size_t>(team.size()));
  team.on_each_worker([&](int worker) {
    // Some number of a usual size in every format, for the time of a multiplication hardly depends on it.
    Memory weights(2 * tile, -1);
    std::memset(weights.data(), 0x3c, weights.size());
    const std::vector<float> x(static_cast<size_t>(depth), 0.5f);
    Memory prepared(row, -1), output(2 * sums * sizeof(float), -1);
    team.kernels().prepare[activation](x.data(), 0, depth, depth, prepared.data());
    const std::vector<const uint8_t*> each(static_cast<size_t>(rows), prepared.data());
    Memory arranged(panels ? blocks * panel.block_bytes(depth) : 64, -1);
    Memory scratch(panels ? panel.scratch_bytes(depth) : 64, -1);
    for (size_t b = 0; b < blocks; ++b)
      panel.arrange(each.data(), std::min(panel.rows, rows - static_cast<int>(b) * panel.rows), depth,
                    arranged.data() + b * panel.block_bytes(depth));
    auto* c0 = reinterpret_cast<float*>(output.data());
    float* c1 = c0 + sums;
    double operations = 0, stop;
    const double start = now();
    do {
      if (panels) {
        panel.multiply(weights.data(), weights.data() + tile, depth, arranged.data(), rows, scratch.data(),
                       c0, c1);
      } else {
        path.gemv(weights.data(), depth, each.data(), rows, c0);
        path.gemv(weights.data() + tile, depth, each.data(), rows, c1);
      }
      operations += 4.0 * kTileRows * depth * rows;
      stop = now();
    } while (stop - start < seconds);
    rate[static_cast<size_t>(worker)] = operations / (stop - start);
  });
  double total = 0;
  for (double r : rate) total += r;
  return total;
}

}  // namespace kt
