#pragma once

namespace millrace {

class Registry;

// Neural-network layers.
void register_nn_ops(Registry& registry);

void register_bias_add(Registry& registry);
void register_conv2d(Registry& registry);
void register_conv3d(Registry& registry);
void register_cross_entropy(Registry& registry);
void register_depthwise_conv(Registry& registry);
void register_dilation(Registry& registry);
void register_fractional_pool(Registry& registry);
void register_fused_batch_norm(Registry& registry);
void register_global_batch_norm(Registry& registry);
void register_l2_loss(Registry& registry);
void register_lrn(Registry& registry);
void register_max_pool(Registry& registry);
void register_max_pool_argmax(Registry& registry);
void register_avg_pool(Registry& registry);
void register_softmax(Registry& registry);
void register_top_k(Registry& registry);
void register_volume_pool(Registry& registry);

}  // namespace millrace
