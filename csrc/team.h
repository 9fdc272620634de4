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

  // The part of [0, items) that belongs to a group: in proportion to its workers.
  Range group_share(long items, int group) const;

  // Exclusive use of the team, its workspace and its scratch. Throws after a fork: the threads exist only in
  // the process that made them.
  std::unique_lock<std::mutex> lock();

  // Memory shared by all workers, valid until the lock is given up; grows, never shrinks.
  uint8_t* workspace(size_t bytes);
  // Makes each worker's own memory at least this large.
  void reserve_scratch(size_t bytes);
  uint8_t* scratch(int worker) const { return scratch_[static_cast<size_t>(worker)].data(); }

  // Calls job(group, item, worker) once for each item in [0, items[group]) of each group; the caller holds
  // the lock. Items must not depend on each other, and the job must not throw.
  template <typename Job>
  void for_each(const std::vector<long>& items, const Job& job) {
    run(items, true, &job, [](const void* context, int group, long item, int worker) {
      (*static_cast<const Job*>(context))(group, item, worker);
    });
  }

  // The same for items in [0, total) that belong to no group: job(item, worker).
  template <typename Job>
  void for_all(long total, const Job& job) {
    std::vector<long> items(nodes_.size());
    for (int group = 0; group < groups(); ++group) {
      const Range share = group_share(total, group);
      items[static_cast<size_t>(group)] = share.end - share.begin;
    }
    for_each(items,
             [&](int group, long item, int worker) { job(group_share(total, group).begin + item, worker); });
  }

  // Calls job(worker) once on each worker, all at the same time.
  template <typename Job>
  void on_each_worker(const Job& job) {
    std::vector<long> items(nodes_.size());
    for (const Worker& worker : workers_) ++items[static_cast<size_t>(worker.group)];
    run(items, false, &job,
        [](const void* context, int, long, int worker) { (*static_cast<const Job*>(context))(worker); });
  }

 private:
  using Erased = void (*)(const void* context, int group, long item, int worker);
  struct Start {
    Team* team;
    int worker;
  };
  // One worker's part of the current job. `inside` is set while the worker may touch the job.
  struct alignas(64) Part {
    std::atomic<long> next{0};
    long end = 0;
    alignas(64) std::atomic<uint32_t> inside{0};
  };

  void run(const std::vector<long>& items, bool help, const void* context, Erased job);
  void work(int worker);
  void loop(int worker);
  void settle_caller();
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

  // The current job. Written by the caller while no worker is inside.
  Erased job_ = nullptr;
  const void* context_ = nullptr;
  bool help_ = true;
  std::unique_ptr<Part[]> parts_;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // odd while a job is open
  std::atomic<int> sleepers_{0};
  std::atomic<bool> closing_{false};
};

}  // namespace kt
