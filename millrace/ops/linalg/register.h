#pragma once

namespace millrace {

class Registry;

// Products and decompositions of matrices.
void register_linalg_ops(Registry& registry);

void register_matmul(Registry& registry);
void register_batch_matmul(Registry& registry);
void register_cholesky(Registry& registry);
void register_cross(Registry& registry);
void register_eigen(Registry& registry);
void register_qr(Registry& registry);
void register_solve(Registry& registry);
void register_solve_ls(Registry& registry);

}  // namespace millrace
