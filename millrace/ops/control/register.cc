#include "millrace/ops/control/register.h"

namespace millrace {

void register_control_ops(Registry& registry) {
  register_arguments(registry);
  register_assert(registry);
  register_control_flow(registry);
  register_functional(registry);
  register_no_op(registry);
  register_optional(registry);
  register_print(registry);
  register_send_recv(registry);
}

}  // namespace millrace
