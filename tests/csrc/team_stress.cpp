// Stress of the thread team without Python, for the sanitizers (tools/sanitize.sh).
#include <cstdio>
#include <thread>

#include "team.h"

int main() {
  long wrong = 0;
  for (int threads = 1; threads <= 8; ++threads) {
    std::vector<kt::Core> cores;
    const std::vector<kt::Core> usable = kt::usable_cores();
    for (int i = 0; i < threads; ++i)
      cores.push_back({usable[static_cast<size_t>(i) % usable.size()].cpu, i < 2 ? 0 : 1});
    kt::Team team(cores, "scalar");
    std::atomic<long> failures{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
      callers.emplace_back([&, caller] {
        for (int round = 0; round < 300; ++round) {
          const auto guard = team.lock();
          const long total = (round * 7 + caller) % 50;
          std::vector<long> seen(static_cast<size_t>(total), 0);
          team.for_all(total, [&](long item, int) { ++seen[static_cast<size_t>(item)]; });
          // The next job reads what other workers wrote in this one.
          team.for_all(total, [&](long item, int) {
            if (seen[static_cast<size_t>(total - 1 - item)] != 1) ++failures;
          });
          std::vector<long> visits(static_cast<size_t>(team.size()), 0);
          team.on_each_worker([&](int worker) { ++visits[static_cast<size_t>(worker)]; });
          for (long count : visits) failures += count != 1;
          if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    for (std::thread& caller : callers) caller.join();
    wrong += failures;
  }
  std::printf("team_stress: %ld failures\n", wrong);
  return wrong ? 1 : 0;
}
