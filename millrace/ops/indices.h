#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "millrace/kernel/kernel.h"

namespace millrace {

// Numbers from the user that a kernel goes by (rows, classes, places), copied before anybody looks
// at them: the user may write to a fed array or a reference variable meanwhile, so what was checked
// must be what is used. (HostInts, of array/host_ints.h, does the same for a few numbers per
// dimension.)
class Indices {
 public:
  // INVALID_ARGUMENT unless `tensor` holds int32 or int64.
  static Result<Indices> read(KernelContext& ctx, const Tensor& tensor);
  // The same; INVALID_ARGUMENT too, naming the first one, where an element is not in [0, limit).
  static Result<Indices> read_below(KernelContext& ctx, const Tensor& tensor, int64_t limit,
                                    std::string_view what = "indices");

  Indices() = default;  // none

  const Shape& shape() const { return copy_.shape(); }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  const int64_t* data() const { return values_.data(); }
  std::span<const int64_t> span() const { return values_; }
  int64_t operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }

 private:
  Tensor copy_;
  std::span<const int64_t> values_;  // of copy_
};

}  // namespace millrace
