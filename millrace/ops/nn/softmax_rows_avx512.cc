#include "millrace/ops/nn/softmax_rows_loops.h"

namespace millrace {

const SoftmaxRowsTable kSoftmaxRowsAvx512 = isa_avx512::kSoftmaxRows;

}  // namespace millrace
