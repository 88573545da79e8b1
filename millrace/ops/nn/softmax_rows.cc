#include "millrace/ops/nn/softmax_rows.h"

#include "millrace/base/isa.h"
#include "millrace/ops/nn/softmax_rows_loops.h"

namespace millrace {
namespace {

const SoftmaxRowsTable& table() {
#if defined(__x86_64__)
  switch (best_isa()) {
    case Isa::kAvx512:
      return kSoftmaxRowsAvx512;
    case Isa::kAvx2:
      return kSoftmaxRowsAvx2;
    case Isa::kBaseline:
      break;
  }
#endif
  return MR_ISA_NAMESPACE::kSoftmaxRows;
}

}  // namespace

template <>
const SoftmaxRows<float>& softmax_rows<float>() {
  return table().f32;
}
template <>
const SoftmaxRows<double>& softmax_rows<double>() {
  return table().f64;
}

}  // namespace millrace
