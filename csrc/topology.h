// What of this machine's processors the process may use.
#pragma once

#include <string>
#include <vector>

namespace kt {

struct Core {
  int cpu;   // the logical CPU to pin to: the first usable one of its physical core
  int node;  // NUMA node, 0 when the system tells none
};

// One entry per usable physical core, ordered by node and CPU number: the CPUs of the affinity mask, with SMT
// siblings merged (/sys/devices/system/cpu/cpuN/topology).
std::vector<Core> usable_cores();

// NUMA node of a CPU, 0 when the system tells none.
int node_of_cpu(int cpu);

// CPUs' worth of time that the control groups (v1 or v2) above this process grant, or 0 for no limit.
double cpu_quota();

}  // namespace kt
