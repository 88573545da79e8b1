#include "millrace/ops/nn/depthwise_loops.h"

#include "millrace/base/isa.h"
#include "millrace/ops/nn/depthwise_loops.inc.h"

namespace millrace {
namespace {

const DepthwiseLoopsTable& table() {
#if defined(__x86_64__)
  switch (best_isa()) {
    case Isa::kAvx512:
      return kDepthwiseLoopsAvx512;
    case Isa::kAvx2:
      return kDepthwiseLoopsAvx2;
    case Isa::kBaseline:
      break;
  }
#endif
  return MR_ISA_NAMESPACE::kDepthwiseLoops;
}

}  // namespace

template <>
const DepthwiseLoops<float>& depthwise_loops<float>() {
  return table().f32;
}
template <>
const DepthwiseLoops<double>& depthwise_loops<double>() {
  return table().f64;
}

}  // namespace millrace
