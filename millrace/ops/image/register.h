#pragma once

namespace millrace {

class Registry;

// Images in memory: sizes, colours, boxes. Batches are [batch, height, width, channels].
void register_image_ops(Registry& registry);

void register_bounding_boxes(Registry& registry);
void register_color(Registry& registry);
void register_crop_and_resize(Registry& registry);
void register_distorted_box(Registry& registry);
void register_extract_patches(Registry& registry);
void register_glimpse(Registry& registry);
void register_non_max_suppression(Registry& registry);
void register_resize(Registry& registry);

}  // namespace millrace
