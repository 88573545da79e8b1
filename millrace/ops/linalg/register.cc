#include "millrace/ops/linalg/register.h"

namespace millrace {

void register_linalg_ops(Registry& registry) {
  register_matmul(registry);
  register_batch_matmul(registry);
  register_cross(registry);
}

}  // namespace millrace
