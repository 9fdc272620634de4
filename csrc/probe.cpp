#include "probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>

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

double int8_peak(Team& team, double seconds) { return peak(team, team.kernels().int8_peak, seconds); }

}  // namespace kt
