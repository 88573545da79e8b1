#include "millrace/ops/nn/depthwise_loops.inc.h"

namespace millrace {

const DepthwiseLoopsTable kDepthwiseLoopsAvx512 = isa_avx512::kDepthwiseLoops;

}  // namespace millrace
