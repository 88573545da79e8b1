#include "millrace/ops/nn/register.h"

namespace millrace {

void register_nn_ops(Registry& registry) {
  register_avg_pool(registry);
  register_bias_add(registry);
  register_conv2d(registry);
  register_conv3d(registry);
  register_cross_entropy(registry);
  register_depthwise_conv(registry);
  register_dilation(registry);
  register_fractional_pool(registry);
  register_fused_batch_norm(registry);
  register_global_batch_norm(registry);
  register_l2_loss(registry);
  register_lrn(registry);
  register_max_pool(registry);
  register_max_pool_argmax(registry);
  register_softmax(registry);
  register_top_k(registry);
  register_volume_pool(registry);
}

}  // namespace millrace
