#include "millrace/ops/image/register.h"

namespace millrace {

void register_image_ops(Registry& registry) {
  register_bounding_boxes(registry);
  register_color(registry);
  register_crop_and_resize(registry);
  register_distorted_box(registry);
  register_extract_patches(registry);
  register_glimpse(registry);
  register_non_max_suppression(registry);
  register_resize(registry);
}

}  // namespace millrace
