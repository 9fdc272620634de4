#include "team.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <stdexcept>

namespace kt {
namespace {

// Counts forks, so that a child can tell that a team's threads are not its own.
std::atomic<unsigned> fork_count{0};

void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });
  (void)registered;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
}

bool pin(pthread_t thread, int cpu) {
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpu + 1), [](cpu_set_t* s) { CPU_FREE(s); });
  if (!set) return false;
  const size_t size = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(size, set.get());
  CPU_SET_S(cpu, size, set.get());
  return pthread_setaffinity_np(thread, size, set.get()) == 0;
}

// Pause instructions that take about the wanted time: the instruction costs 10 to 140 cycles, by processor.
long pauses_for(std::chrono::microseconds wanted) {
  constexpr long kSample = 2000;
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < kSample; ++i) pause_briefly();
  const auto spent = std::chrono::steady_clock::now() - start;
  const double each = std::max(1e-3, std::chrono::duration<double, std::micro>(spent).count() / kSample);
  return std::max(1l, static_cast<long>(static_cast<double>(wanted.count()) / each));
}

constexpr std::chrono::microseconds kSpin{100};

// For an address sanitizer, memory that is reused would hide a step beyond what the present call asked for.
#if defined(KT_HEAP_MEMORY)
constexpr bool kExactMemory = true;
#else
constexpr bool kExactMemory = false;
#endif

bool fits(const Memory& memory, size_t bytes) {
  return kExactMemory ? memory.size() == bytes : memory.size() >= bytes;
}

}  // namespace

Team::Team(const std::vector<Core>& cores, const std::string& isa) : kernels_(kernels_for(isa)) {
  if (cores.empty()) throw std::invalid_argument("a thread team needs at least one CPU");
  watch_forks();
  fork_count_ = fork_count;
  for (const std::string& note : isa_notes()) add_note(note);
  std::set<int> distinct;
  for (const Core& core : cores) {
    if (nodes_.empty() || nodes_.back() != core.node) {
      if (std::find(nodes_.begin(), nodes_.end(), core.node) != nodes_.end())
        throw std::invalid_argument("the CPUs of one NUMA node must be listed together");
      nodes_.push_back(core.node);
    }
    const int group = static_cast<int>(nodes_.size()) - 1;
    int rank = 0;
    for (const Worker& other : workers_) rank += other.group == group;
    workers_.push_back({core.cpu, group, rank, 0});
    distinct.insert(core.cpu);
  }
  for (Worker& worker : workers_)
    for (const Worker& other : workers_) worker.group_size += other.group == worker.group;
  // Spinning while a teammate waits for this very CPU only delays it.
  const bool shared = distinct.size() < workers_.size();
  spin_ = shared ? 1 : pauses_for(kSpin);
  if (shared)
    notes_.push_back(std::to_string(workers_.size()) + " threads share " + std::to_string(distinct.size()) +
                     " CPUs; use at most one thread per CPU");
  scratch_.resize(workers_.size());
  starts_ = std::make_unique<Start[]>(workers_.size());
  parts_ = std::make_unique<Part[]>(workers_.size());

  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool unpinned = false;
  int failure = 0;
  for (int i = 1; i < size(); ++i) {
    starts_[static_cast<size_t>(i)] = {this, i};
    pthread_t thread;
    failure = pthread_create(&thread, nullptr, enter, &starts_[static_cast<size_t>(i)]);
    if (failure) break;
    threads_.push_back(thread);
    pthread_setname_np(thread, ("kt-team-" + std::to_string(i)).substr(0, 15).c_str());
    unpinned |= !pin(thread, workers_[static_cast<size_t>(i)].cpu);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure) {
    closing_ = true;
    epoch_ += 2;
    futex_wake_all(epoch_);
    for (pthread_t thread : threads_) pthread_join(thread, nullptr);
    throw std::runtime_error(
        "only " + std::to_string(threads_.size() + 1) + " of " + std::to_string(size()) +
        " threads could be started; use fewer CPU threads or raise the process limit (ulimit -u)");
  }
  if (unpinned) notes_.emplace_back("some threads could not be pinned to their CPU; speed may vary");
}

Team::~Team() {
  if (fork_count_ != fork_count) {
    // In a child process: the threads were never copied, so there is nothing to join.
    return;
  }
  closing_ = true;
  epoch_ += 2;
  futex_wake_all(epoch_);
  for (pthread_t thread : threads_) pthread_join(thread, nullptr);
}

std::vector<std::string> Team::notes() const {
  std::lock_guard<std::mutex> guard(notes_mutex_);
  return notes_;
}

void Team::add_note(const std::string& note) {
  std::lock_guard<std::mutex> guard(notes_mutex_);
  if (!note.empty() && std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
}

Range Team::group_share(long items, int group) const {
  long before = 0, members = 0;
  for (const Worker& worker : workers_) {
    before += worker.group < group;
    members += worker.group == group;
  }
  return {items * before / size(), items * (before + members) / size()};
}

std::unique_lock<std::mutex> Team::lock() {
  if (fork_count_ != fork_count)
    throw std::runtime_error(
        "this thread team belongs to the parent process; create a new one after fork (or start the process "
        "with spawn)");
  return std::unique_lock<std::mutex>(mutex_);
}

uint8_t* Team::workspace(size_t bytes) {
  if (!fits(workspace_, bytes)) {
    workspace_ = Memory();
    workspace_ = Memory(kExactMemory ? bytes : bytes + bytes / 4, -1);
  }
  return workspace_.data();
}

void Team::reserve_scratch(size_t bytes) {
  for (int i = 0; i < size(); ++i) {
    Memory& memory = scratch_[static_cast<size_t>(i)];
    if (fits(memory, bytes)) continue;
    memory = Memory();
    memory = Memory(bytes, groups() > 1 ? node(worker(i).group) : -1);
  }
}

// The other workers are pinned; the caller is only moved to the CPU that they left free, when it is
// elsewhere. Its affinity mask stays as it was, so threads that it starts later may run anywhere.
void Team::settle_caller() {
  const int cpu = workers_[0].cpu;
  if (size() == 1 || sched_getcpu() == cpu) return;
  cpu_set_t before;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof before, &before) != 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &before))
    return;
  if (pin(pthread_self(), cpu)) sched_setaffinity(0, sizeof before, &before);
}

void Team::run(const std::vector<long>& items, bool help, const void* context, Erased job) {
  for (int i = 0; i < size(); ++i) {
    const Worker& worker = workers_[static_cast<size_t>(i)];
    const long count = items[static_cast<size_t>(worker.group)];
    parts_[i].next.store(count * worker.rank / worker.group_size, std::memory_order_relaxed);
    parts_[i].end = count * (worker.rank + 1) / worker.group_size;
  }
  job_ = job;
  context_ = context;
  help_ = help;
  if (size() == 1) {
    work(0);
    return;
  }
  settle_caller();
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(epoch_);
  work(0);
  if (!help) {
    for (int i = 1; i < size(); ++i)
      while (parts_[i].next.load(std::memory_order_acquire) < parts_[i].end) sched_yield();
  }
  // Closed: a worker that has not come in by now stays out. Either it sees that, or we see it inside.
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  for (int i = 1; i < size(); ++i) {
    for (long spun = 0; parts_[i].inside.load(std::memory_order_seq_cst) != 0; ++spun) {
      pause_briefly();
      // It may have lost its CPU, perhaps to us.
      if (spun >= spin_) sched_yield();
    }
  }
}

// Takes items of the worker's own part, then of the others'.
void Team::work(int worker) {
  for (int i = 0; i < (help_ ? size() : 1); ++i) {
    const int owner = (worker + i) % size();
    Part& part = parts_[owner];
    const int group = workers_[static_cast<size_t>(owner)].group;
    while (part.next.load(std::memory_order_relaxed) < part.end) {
      const long item = part.next.fetch_add(1, std::memory_order_relaxed);
      if (item < part.end) job_(context_, group, item, worker);
    }
  }
}

void Team::loop(int worker) {
  uint32_t seen = 0;
  Part& self = parts_[worker];
  while (true) {
    uint32_t epoch = epoch_.load(std::memory_order_acquire);
    for (long i = 0; i < spin_ && (epoch == seen || epoch % 2 == 0); ++i) {
      pause_briefly();
      epoch = epoch_.load(std::memory_order_acquire);
    }
    if (closing_.load(std::memory_order_acquire)) return;
    if (epoch == seen || epoch % 2 == 0) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      if (epoch_.load(std::memory_order_seq_cst) == epoch) futex_wait(epoch_, epoch);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    self.inside.store(1, std::memory_order_seq_cst);
    if (epoch_.load(std::memory_order_seq_cst) == epoch) work(worker);
    self.inside.store(0, std::memory_order_release);
    seen = epoch;
  }
}

void* Team::enter(void* start) {
  const Start* self = static_cast<const Start*>(start);
  self->team->loop(self->worker);
  return nullptr;
}

}  // namespace kt
