#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "millrace/kernel/kernel.h"

namespace millrace {

// The integers of a small host tensor (axes, sizes, offsets: at most two per dimension), read
// without a heap allocation. Large: lives on the stack, passed by reference.
class HostInts {
 public:
  static constexpr int kMax = 2 * Shape::kMaxRank;

  HostInts() {}  // NOLINT(modernize-use-equals-default): the elements stay uninitialised
  HostInts(const HostInts&) = delete;
  HostInts& operator=(const HostInts&) = delete;

  // Reads input i, which is declared host(...): an int32 or int64 tensor of at most kMax elements;
  // INVALID_ARGUMENT otherwise.
  Status read(const KernelContext& ctx, int i, std::string_view what);
  // The same for a tensor of rank 1.
  Status read_vector(const KernelContext& ctx, int i, std::string_view what);
  // The same for a vector of `size` elements.
  Status read_vector(const KernelContext& ctx, int i, std::string_view what, int size);

  // There must be room.
  void add(int64_t value) { values_[size_++] = value; }
  void clear() { size_ = 0; }
  int size() const { return size_; }
  int64_t operator[](int i) const { return values_[i]; }
  int64_t& operator[](int i) { return values_[i]; }
  std::span<int64_t> mutable_span() { return {values_, static_cast<size_t>(size_)}; }
  std::span<const int64_t> span() const { return {values_, static_cast<size_t>(size_)}; }

 private:
  int size_ = 0;
  int64_t values_[kMax];
};

// Element i of an int32 or int64 tensor.
inline int64_t int_at(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kInt32
             ? static_cast<int64_t>(tensor.data<int32_t>()[static_cast<size_t>(i)])
             : tensor.data<int64_t>()[static_cast<size_t>(i)];
}

// The position of element `flat` in a tensor of this shape, for messages: "[1,0]"; "" for a scalar.
std::string position_text(const Shape& shape, int64_t flat);

}  // namespace millrace
