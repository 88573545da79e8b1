#include "millrace/ops/linalg/register.h"

namespace millrace {

void register_linalg_ops(Registry& registry) {
  register_matmul(registry);
  register_batch_matmul(registry);
  register_cholesky(registry);
  register_cross(registry);
  register_eigen(registry);
  register_qr(registry);
  register_solve(registry);
  register_solve_ls(registry);
}

}  // namespace millrace
