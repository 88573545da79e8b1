#include "millrace/ops/reduce/register.h"

namespace millrace {

void register_reduce_ops(Registry& registry) {
  register_arg_reductions(registry);
  register_bincount(registry);
  register_linear_recurrence(registry);
  register_reductions(registry);
  register_scans(registry);
  register_segment_folds(registry);
  register_segment_sums(registry);
  register_sparse_segments(registry);
}

}  // namespace millrace
