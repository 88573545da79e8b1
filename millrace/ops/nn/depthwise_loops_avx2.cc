#include "millrace/ops/nn/depthwise_loops.inc.h"

namespace millrace {

const DepthwiseLoopsTable kDepthwiseLoopsAvx2 = isa_avx2::kDepthwiseLoops;

}  // namespace millrace
