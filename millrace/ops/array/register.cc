#include "millrace/ops/array/register.h"

namespace millrace {

void register_array_ops(Registry& registry) {
  register_constant(registry);
  register_identity(registry);
  register_placeholder(registry);
}

}  // namespace millrace
