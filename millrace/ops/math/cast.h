#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// Conversion of elements between two plain types. A few frequent pairs have a loop of their own;
// the others go through blocks of one of four wide types, which hold every value of the source
// exactly.
class CastFunction {
 public:
  // `truncate`: drops the bits of a mantissa that do not fit instead of rounding. UNIMPLEMENTED for
  // types that are not plain, unless they are one: then there is nothing to convert.
  static Result<CastFunction> make(DType from, DType to, bool truncate);

  // Both types are the same.
  bool is_copy() const { return widen_ == nullptr; }
  // Nanoseconds per element.
  double cost() const { return direct_ != nullptr || to_float_ || from_float_ ? 0.5 : 3; }
  // Not for a copy. `y` lies apart from `x`.
  void operator()(const void* x, void* y, int64_t n) const;

 private:
  using Loop = void (*)(const void* from, void* to, int64_t n);

  template <class Wide>
  Status set_narrow(DType to);
  void set_truncated(DType to);
  void drop_bits(double* values, int64_t n) const;

  Loop direct_ = nullptr;
  FloatBlocks blocks_;
  bool to_float_ = false;
  bool from_float_ = false;
  Loop widen_ = nullptr;
  Loop narrow_ = nullptr;
  size_t wide_size_ = 8;
  size_t in_size_ = 0;
  size_t out_size_ = 0;
  uint64_t dropped_bits_ = 0;
};

}  // namespace millrace
