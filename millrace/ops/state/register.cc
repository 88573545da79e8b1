#include "millrace/ops/state/register.h"

namespace millrace {

void register_state_ops(Registry& registry) {
  register_assign(registry);
  register_count_up_to(registry);
  register_reference_variables(registry);
  register_resource_gather(registry);
  register_resource_variables(registry);
  register_scatter(registry);
  register_scatter_nd(registry);
  register_strided_slice_assign(registry);
}

}  // namespace millrace
