#include "millrace/ops/nn/pooling.h"

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"

namespace millrace {

Result<PoolGeometry> pool_geometry(const WindowSpec& spec, const Shape& input,
                                   const Shape* gradient, const char* what) {
  if (input.rank() != 4) return invalid_argument("the input must have rank 4, got ", input);
  PoolGeometry g;
  MR_TRY_ASSIGN(g.height,
                axis_geometry(spec.height, spec.padding, input[spec.height_dim()], "height"));
  MR_TRY_ASSIGN(g.width, axis_geometry(spec.width, spec.padding, input[spec.width_dim()], "width"));
  const bool nhwc = spec.layout == ImageLayout::kNhwc;
  MR_TRY_ASSIGN(g.output, image_shape(spec.layout, input[0], g.height.output, g.width.output,
                                      input[spec.channel_dim()]));
  if (gradient != nullptr && !(*gradient == g.output)) {
    return invalid_argument(what, " must have shape ", g.output, " for an input of ", input,
                            ", got ", *gradient);
  }
  // The product fits where it matters: an input without elements may have any sizes.
  const bool empty = input.num_elements() == 0;
  g.batch = empty ? 0 : (nhwc ? input[0] : input[0] * input[1]);
  g.channels = nhwc ? input[3] : 1;
  return g;
}

std::vector<OpSpec::Attr> pool_attrs() {
  return {{"ksize", "list(int) >= 4"},
          {"strides", "list(int) >= 4"},
          {"padding", "string in {'SAME','VALID'}"},
          {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"}};
}

AttrMap pool_attrs(const GradientContext& c) {
  AttrMap attrs;
  for (const OpSpec::Attr& attr : pool_attrs()) attrs.set(attr.name, c.attr_value(attr.name));
  return attrs;
}

Status pool_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec spec, read_pool_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const int64_t height,
                axis_output(spec.height, spec.padding, input.dim(spec.height_dim()), "height"));
  MR_TRY_ASSIGN(const int64_t width,
                axis_output(spec.width, spec.padding, input.dim(spec.width_dim()), "width"));
  c.set_output(0, partial_image_shape(spec.layout, input.dim(0), height, width,
                                      input.dim(spec.channel_dim())));
  return ok_status();
}

}  // namespace millrace
