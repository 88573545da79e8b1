#pragma once

#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/tensor/allocator.h"

namespace millrace {

// Uninitialised memory for `count` elements of a plain type T, for as long as this lives.
template <class T>
class Scratch {
 public:
  // `count` elements must be fewer than 2^63 bytes.
  explicit Scratch(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(cpu_allocator().allocate(bytes_))) {}
  ~Scratch() {
    if (data_ != nullptr) cpu_allocator().deallocate(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Null when there was no memory.
  T* data() const { return data_; }
  Status status() const {
    if (data_ != nullptr) return ok_status();
    return resource_exhausted("OOM when allocating ", bytes_, " bytes of scratch memory");
  }

 private:
  size_t bytes_;
  T* data_;
};

}  // namespace millrace
