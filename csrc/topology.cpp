#include "topology.h"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

namespace kt {
namespace {

std::string cpu_directory(int cpu) { return "/sys/devices/system/cpu/cpu" + std::to_string(cpu); }

// The lines of a small file; none if it cannot be read. C's own input, because the host process may hold a
// second C++ library (some tensor libraries carry theirs), and stream objects of one break in the hands of
// the other.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  if (!file) return lines;
  char* buffer = nullptr;
  size_t capacity = 0;
  for (ssize_t size; (size = getline(&buffer, &capacity, file.get())) >= 0;) {
    lines.emplace_back(buffer, static_cast<size_t>(size));
    if (!lines.back().empty() && lines.back().back() == '\n') lines.back().pop_back();
  }
  free(buffer);
  return lines;
}

std::string first_line(const std::string& path) {
  const std::vector<std::string> lines = lines_of(path);
  return lines.empty() ? std::string() : lines.front();
}

// CPUs of the affinity mask; the mask grows until the kernel accepts it (machines with more than 1024 CPUs).
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int count = 1024; count <= (1 << 20); count *= 2) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(count), [](cpu_set_t* s) { CPU_FREE(s); });
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(size, set.get());
    if (sched_getaffinity(0, size, set.get()) != 0) continue;
    for (int cpu = 0; cpu < count; ++cpu)
      if (CPU_ISSET_S(cpu, size, set.get())) cpus.push_back(cpu);
    break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

// The lowest quota from `path` up to the root of its hierarchy.
template <typename Read>
double lowest_quota(const std::string& root, std::string path, Read read) {
  double lowest = 0;
  while (true) {
    const double quota = read(root + path);
    if (quota > 0 && (lowest == 0 || quota < lowest)) lowest = quota;
    if (path.empty() || path == "/") return lowest;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

double quota_v2(const std::string& directory) {
  const std::string line = first_line(directory + "/cpu.max");  // "max 100000" or "200000 100000"
  char* rest = nullptr;
  const long long limit = std::strtoll(line.c_str(), &rest, 10);
  const long long period = std::strtoll(rest, nullptr, 10);
  return limit > 0 && period > 0 ? static_cast<double>(limit) / static_cast<double>(period) : 0;
}

double quota_v1(const std::string& directory) {
  const long long limit = std::atoll(first_line(directory + "/cpu.cfs_quota_us").c_str());
  const long long period = std::atoll(first_line(directory + "/cpu.cfs_period_us").c_str());
  return limit > 0 && period > 0 ? static_cast<double>(limit) / static_cast<double>(period) : 0;
}

}  // namespace

int node_of_cpu(int cpu) {
  std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(cpu_directory(cpu).c_str()), closedir);
  if (!directory) return 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name.size() > 4 && name.compare(0, 4, "node") == 0 &&
        name.find_first_not_of("0123456789", 4) == std::string::npos)
      return std::atoi(name.c_str() + 4);
  }
  return 0;
}

std::vector<Core> usable_cores() {
  std::set<std::string> seen;
  std::vector<Core> cores;
  for (int cpu : allowed_cpus()) {
    const std::string siblings = first_line(cpu_directory(cpu) + "/topology/thread_siblings_list");
    if (!siblings.empty() && !seen.insert(siblings).second) continue;
    cores.push_back({cpu, node_of_cpu(cpu)});
  }
  std::stable_sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) { return a.node < b.node; });
  return cores;
}

double cpu_quota() {
  double lowest = 0;
  const auto consider = [&lowest](double quota) {
    if (quota > 0 && (lowest == 0 || quota < lowest)) lowest = quota;
  };
  for (const std::string& line : lines_of("/proc/self/cgroup")) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) {
      consider(lowest_quota("/sys/fs/cgroup", path, quota_v2));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      consider(lowest_quota("/sys/fs/cgroup/cpu", path, quota_v1));
    }
  }
  return lowest;
}

}  // namespace kt
