#include "memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

// KT_HEAP_MEMORY: on the heap at its exact size, where an address sanitizer sees a step beyond it
// (tests/csrc).

namespace kt {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kMpolPreferred = 1;  // linux/mempolicy.h: prefer a node, fall back to others when it is full

}  // namespace

Memory::Memory(size_t bytes, int node) : size_(bytes) {
  if (bytes == 0) return;
#if defined(KT_HEAP_MEMORY)
  (void)node;
  (void)kHugePage;
  (void)kMpolPreferred;
  if (posix_memalign(&mapping_, 4096, bytes) != 0) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapping_);
  std::memset(data_, 0, bytes);
#else
  const size_t alignment = bytes >= kHugePage ? kHugePage : 4096;
  mapped_ = (bytes + alignment - 1) / alignment * alignment + (alignment == kHugePage ? kHugePage : 0);
  mapping_ =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = reinterpret_cast<uint8_t*>((address + alignment - 1) / alignment * alignment);
  if (alignment == kHugePage && madvise(data_, bytes, MADV_HUGEPAGE) != 0)
    note_ = std::string("huge pages were refused (") + std::strerror(errno) + "); decoding may be slower";
  if (node >= 0) {
    constexpr size_t kBits = 8 * sizeof(unsigned long);
    std::vector<unsigned long> mask(static_cast<size_t>(node) / kBits + 1);
    mask[static_cast<size_t>(node) / kBits] = 1ul << (static_cast<size_t>(node) % kBits);
    const size_t length = (bytes + 4095) / 4096 * 4096;
    // The kernel reads one bit less than it is told.
    if (syscall(SYS_mbind, data_, length, kMpolPreferred, mask.data(), mask.size() * kBits + 1, 0ul) != 0) {
      if (!note_.empty()) note_ += "; ";
      note_ += "memory could not be bound to NUMA node " + std::to_string(node) + " (" +
               std::strerror(errno) + "); it goes where it is first written";
    }
  }
#endif
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(note_, other.note_);
  return *this;
}

void Memory::discard(uint8_t* from, size_t bytes) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(from) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(from) + bytes) / page * page;
  // A huge page that is given back in part is split by the system.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Memory::~Memory() {
#if defined(KT_HEAP_MEMORY)
  std::free(mapping_);
#else
  if (mapping_) munmap(mapping_, mapped_);
#endif
}

}  // namespace kt
