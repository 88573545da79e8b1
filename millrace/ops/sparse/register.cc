#include "millrace/ops/sparse/register.h"

namespace millrace {

void register_sparse_ops(Registry& registry) {
  register_edit_distance(registry);
  register_serialize_sparse(registry);
  register_sets(registry);
}

}  // namespace millrace
