#include "millrace/ops/reduce/fold_loops.h"

namespace millrace {

const FoldTable kFoldAvx512 = isa_avx512::kFoldTable;

}  // namespace millrace
