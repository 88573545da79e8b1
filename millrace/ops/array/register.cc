#include "millrace/ops/array/register.h"

namespace millrace {

void register_array_ops(Registry& registry) {
  register_bitcast(registry);
  register_concat(registry);
  register_constant(registry);
  register_diag(registry);
  register_dynamic(registry);
  register_fill(registry);
  register_gather(registry);
  register_gather_nd(registry);
  register_identity(registry);
  register_lin_space(registry);
  register_matrix_diag(registry);
  register_mirror_pad(registry);
  register_one_hot(registry);
  register_pad(registry);
  register_parallel_concat(registry);
  register_placeholder(registry);
  register_reshape(registry);
  register_reverse_sequence(registry);
  register_roll(registry);
  register_shape_of(registry);
  register_slice(registry);
  register_space_batch(registry);
  register_space_depth(registry);
  register_sparse_to_dense(registry);
  register_split(registry);
  register_strided_slice(registry);
  register_tensor_scatter(registry);
  register_tile(registry);
  register_transpose(registry);
  register_unique(registry);
  register_where(registry);
}

}  // namespace millrace
