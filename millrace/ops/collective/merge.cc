#include "millrace/ops/collective/merge.h"

#include "millrace/ops/accumulate.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using ReducedTypes = ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t>>;

}  // namespace

std::string_view merge_name(Collectives::Merge merge) {
  switch (merge) {
    case Collectives::Merge::kMul:
      return "Mul";
    case Collectives::Merge::kMin:
      return "Min";
    case Collectives::Merge::kMax:
      return "Max";
    case Collectives::Merge::kAdd:
      break;
  }
  return "Add";
}

BinaryFunction merge_function(Collectives::Merge merge, DType dtype) {
  switch (merge) {
    case Collectives::Merge::kMul:
      return BinaryFunction(Mul::info, dtype);
    case Collectives::Merge::kMin:
      return BinaryFunction(Minimum::info, dtype);
    case Collectives::Merge::kMax:
      return BinaryFunction(Maximum::info, dtype);
    case Collectives::Merge::kAdd:
      break;
  }
  return BinaryFunction(AddV2::info, dtype);
}

void divide_elements(DType dtype, void* data, int64_t n, int64_t divisor) {
  if (divisor == 1) return;
  MR_CHECK_OK(dispatch<ReducedTypes>(dtype, [&]<class T>() {
    T* x = static_cast<T*>(data);
    const auto by = static_cast<ComputeType<T>>(divisor);
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(ComputeType<T>(x[i]) / by);
  }));
}

}  // namespace millrace
