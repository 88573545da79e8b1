#include "millrace/ops/tensor_list/register.h"

namespace millrace {

void register_tensor_list_ops(Registry& registry) {
  register_tensor_lists(registry);
  register_tensor_list_elements(registry);
  register_tensor_list_batches(registry);
  register_tensor_list_pieces(registry);
}

}  // namespace millrace
