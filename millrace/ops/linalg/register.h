#pragma once

namespace millrace {

class Registry;

// Matrix products.
void register_linalg_ops(Registry& registry);

void register_matmul(Registry& registry);
void register_batch_matmul(Registry& registry);
void register_cross(Registry& registry);

}  // namespace millrace
