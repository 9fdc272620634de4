// A persistent team of pinned threads that run one job together.
//
// The calling thread is worker 0, so a team of n threads never has more than n busy threads. Workers spin for
// a short while after a job and then sleep, so an idle team costs nothing.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "isa.h"
#include "memory.h"
#include "topology.h"

namespace kt {

struct Worker {
  int cpu;
  int group;       // index of its NUMA node among the team's nodes
  int rank;        // position among the workers of its group
  int group_size;  // workers in its group
};

// A half-open range of items.
struct Range {
  long begin, end;
};

class Team {
 public:
  // One worker per entry of `cores`; entries may repeat a CPU. Workers of one node must be adjacent.
  Team(const std::vector<Core>& cores, const std::string& isa);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(workers_.size()); }
  int groups() const { return static_cast<int>(nodes_.size()); }
  int node(int group) const { return nodes_[static_cast<size_t>(group)]; }
  const Worker& worker(int index) const { return workers_[static_cast<size_t>(index)]; }
  const Kernels& kernels() const { return kernels_; }
  std::vector<std::string> notes() const;
  void add_note(const std::string& note);

  // The part of `items` that belongs to a group, and to a worker within its group's part.
  Range group_share(long items, int group) const;
  Range worker_share(Range group_items, int worker) const;

  // Exclusive use of the team, its workspace and its scratch. Throws after a fork: the threads exist only in
  // the process that made them.
  std::unique_lock<std::mutex> lock();

  // Memory shared by all workers, valid until the lock is given up; grows, never shrinks.
  uint8_t* workspace(size_t bytes);
  // Makes each worker's own memory at least this large.
  void reserve_scratch(size_t bytes);
  uint8_t* scratch(int worker) const { return scratch_[static_cast<size_t>(worker)].data(); }

  // Runs job(worker index) on every worker; the caller holds the lock. The job must not throw.
  template <typename Job>
  void run(const Job& job) {
    run_erased([](const void* context, int worker) { (*static_cast<const Job*>(context))(worker); }, &job);
  }

  // Waits, inside a job, until every worker has come here.
  void barrier();

 private:
  using Erased = void (*)(const void* context, int worker);
  struct Start {
    Team* team;
    int worker;
  };

  void run_erased(Erased job, const void* context);
  void loop(int worker);
  void settle_caller();
  void wait_until(std::atomic<uint32_t>& word, uint32_t old_value, std::atomic<int>& sleepers);
  static void* enter(void* start);

  const Kernels& kernels_;
  std::vector<Worker> workers_;
  std::vector<int> nodes_;
  std::vector<pthread_t> threads_;
  std::unique_ptr<Start[]> starts_;
  std::vector<Memory> scratch_;
  Memory workspace_;
  std::vector<std::string> notes_;
  mutable std::mutex notes_mutex_;
  std::mutex mutex_;
  long spin_;
  unsigned fork_count_;

  Erased job_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> epoch_sleepers_{0};
  std::atomic<bool> closing_{false};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<int> phase_sleepers_{0};
};

}  // namespace kt
