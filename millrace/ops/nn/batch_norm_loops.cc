#include "millrace/ops/nn/batch_norm_loops.h"

#include "millrace/base/isa.h"
#include "millrace/ops/nn/batch_norm_loops.inc.h"

namespace millrace {
namespace {

const BatchNormLoopsTable& table() {
#if defined(__x86_64__)
  switch (best_isa()) {
    case Isa::kAvx512:
      return kBatchNormLoopsAvx512;
    case Isa::kAvx2:
      return kBatchNormLoopsAvx2;
    case Isa::kBaseline:
      break;
  }
#endif
  return MR_ISA_NAMESPACE::kBatchNormLoops;
}

}  // namespace

template <>
const BatchNormLoops<float>& batch_norm_loops<float>() {
  return table().f32;
}
template <>
const BatchNormLoops<double>& batch_norm_loops<double>() {
  return table().f64;
}

}  // namespace millrace
