#include "millrace/ops/tensor_array/register.h"

namespace millrace {

void register_tensor_array_ops(Registry& registry) {
  register_arrays(registry);
  register_tensor_array_elements(registry);
  register_tensor_array_batches(registry);
}

}  // namespace millrace
