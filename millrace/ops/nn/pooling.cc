#include "millrace/ops/nn/pooling.h"

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"

namespace millrace {

template <int N>
Result<PoolGeometry<N>> pool_geometry(const WindowSpec<N>& spec, const Shape& input,
                                      const Shape* gradient, const char* what) {
  PoolGeometry<N> g;
  MR_TRY_ASSIGN(g.axes, window_geometry(spec, input));
  MR_TRY_ASSIGN(g.output, output_shape(spec, input[0], g.axes, input[spec.channel_dim()]));
  if (gradient != nullptr && !(*gradient == g.output)) {
    return invalid_argument(what, " must have shape ", g.output, " for an input of ", input,
                            ", got ", *gradient);
  }
  // The product fits where it matters: an input without elements may have any sizes.
  const bool empty = input.num_elements() == 0;
  g.batch = empty ? 0 : (spec.channels_last ? input[0] : input[0] * input[1]);
  g.channels = spec.channels_last ? input[spec.channel_dim()] : 1;
  return g;
}

template <int N>
std::vector<OpSpec::Attr> pool_attrs() {
  const bool images = N == 2;
  return {{"ksize", images ? "list(int) >= 4" : "list(int) >= 5"},
          {"strides", images ? "list(int) >= 4" : "list(int) >= 5"},
          {"padding", "string in {'SAME','VALID'}"},
          {"data_format", images ? "string = 'NHWC' in {'NHWC','NCHW'}"
                                 : "string = 'NDHWC' in {'NDHWC','NCDHW'}"}};
}

AttrMap pool_attrs(const GradientContext& c) {
  AttrMap attrs;
  for (const OpSpec::Attr& attr : pool_attrs<2>()) attrs.set(attr.name, c.attr_value(attr.name));
  return attrs;
}

template <int N>
Status pool_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<N> spec, read_pool_spec<N>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, spec.kRank));
  MR_TRY_ASSIGN(PartialShape out, partial_output_shape(spec, input, input.dim(spec.channel_dim())));
  c.set_output(0, std::move(out));
  return ok_status();
}

#define MR_FOR_AXES(N)                                                                             \
  template Result<PoolGeometry<N>> pool_geometry(const WindowSpec<N>&, const Shape&, const Shape*, \
                                                 const char*);                                     \
  template std::vector<OpSpec::Attr> pool_attrs<N>();                                              \
  template Status pool_shape<N>(ShapeContext&);
MR_FOR_AXES(2)
MR_FOR_AXES(3)
#undef MR_FOR_AXES

}  // namespace millrace
