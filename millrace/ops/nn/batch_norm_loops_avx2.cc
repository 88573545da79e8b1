#include "millrace/ops/nn/batch_norm_loops.inc.h"

namespace millrace {

const BatchNormLoopsTable kBatchNormLoopsAvx2 = isa_avx2::kBatchNormLoops;

}  // namespace millrace
