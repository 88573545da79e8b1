#include "millrace/ops/nn/batch_norm_loops.inc.h"

namespace millrace {

const BatchNormLoopsTable kBatchNormLoopsAvx512 = isa_avx512::kBatchNormLoops;

}  // namespace millrace
