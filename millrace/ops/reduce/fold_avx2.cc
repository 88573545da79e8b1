#include "millrace/ops/reduce/fold_loops.h"

namespace millrace {

const FoldTable kFoldAvx2 = isa_avx2::kFoldTable;

}  // namespace millrace
