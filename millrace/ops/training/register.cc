#include "millrace/ops/training/register.h"

namespace millrace {

void register_training_ops(Registry& registry) {
  register_apply(registry);
  register_sparse_apply(registry);
}

}  // namespace millrace
