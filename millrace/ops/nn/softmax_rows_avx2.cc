#include "millrace/ops/nn/softmax_rows_loops.h"

namespace millrace {

const SoftmaxRowsTable kSoftmaxRowsAvx2 = isa_avx2::kSoftmaxRows;

}  // namespace millrace
