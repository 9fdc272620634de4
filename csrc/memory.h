// Large, zeroed, huge-page-advised memory that prefers one NUMA node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kt {

class Memory {
 public:
  Memory() = default;
  // Reserves `bytes`; pages are taken when first written. `node` < 0 means no preference. What the system
  // refused (huge pages, node binding) is told in note(); only a failed reservation throws std::bad_alloc.
  Memory(size_t bytes, int node);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& note() const { return note_; }
  // Gives whole pages within [from, from + bytes) back to the system; they read as zero afterwards.
  void discard(uint8_t* from, size_t bytes) const;

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::string note_;
};

}  // namespace kt
