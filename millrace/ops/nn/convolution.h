#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/window_geometry.h"

// What all convolutions share: an op and the two that are its gradients, of images [height, width]
// or volumes [depth, height, width], with filters [axes, in channels, out channels]; of a depthwise
// one [axes, channels, multiplier].

namespace millrace {

// Which of the three ops: of the trilinear form in input, filter and output gradient the one that
// is not given. Inputs are (input, filter), (shape of input, filter, dy), (input, shape of filter,
// dy).
enum class Product : uint8_t { kForward, kBackwardInput, kBackwardFilter };

// The shapes of a convolution, checked against each other.
template <int N>
struct ConvolutionShapes {
  Shape input, filter, output;
  WindowGeometry<N> axes;

  const Shape& of_result(Product product) const {
    return product == Product::kForward ? output
                                        : (product == Product::kBackwardInput ? input : filter);
  }
  // Sums over nothing. Windows of any size may come with an empty filter, so nothing else looks at
  // it.
  bool empty() const {
    return input.num_elements() == 0 || filter.num_elements() == 0 || output.num_elements() == 0;
  }
};

// `Family` says what is special about a convolution:
//
//   kAxes            2 or 3
//   kDepthwise       every channel has filters of its own
//   kShortSizes      the backward op takes a shape of the axes alone
//   kForward, kBackwardInput, kBackwardFilter   names of the ops
//   attrs()          the attributes that all three share
template <class Family>
struct Convolution {
  static constexpr int kAxes = Family::kAxes;
  using Spec = WindowSpec<kAxes>;
  using Shapes = ConvolutionShapes<kAxes>;

  // The shape rules.
  static Status forward_shape(ShapeContext& c);
  static Status backward_input_shape(ShapeContext& c);
  static Status backward_filter_shape(ShapeContext& c);

  // The gradients: that of each product is the other two.
  static Status forward_grad(GradientContext& c) {
    const Expr x = c.input(0), filter = c.input(1), dy = c.gradient();
    c.set(0, backward_input(c, x, filter, dy));
    c.set(1, backward_filter(c, x, filter, dy));
    return ok_status();
  }
  static Status backward_input_grad(GradientContext& c) {
    const Expr filter = c.input(1), dy = c.input(2), g = c.gradient();
    c.set(1, backward_filter(c, g, filter, dy));
    c.set(2, forward(c, g, filter));
    return ok_status();
  }
  static Status backward_filter_grad(GradientContext& c) {
    const Expr x = c.input(0), dy = c.input(2), g = c.gradient();
    c.set(0, backward_input(c, x, g, dy));
    c.set(2, forward(c, x, g));
    return ok_status();
  }

  // What a kernel begins with: the shapes of its inputs, those that are given as tensors of sizes
  // read.
  static Result<Shapes> shapes(KernelContext& ctx, Spec spec, Product product);

  // The definitions of the three ops, with costs per output element.
  struct Docs {
    std::string forward, backward_input, backward_filter;
    float cost = 100;
  };
  //
  // Where `close` names an op, that is defined too: the one that computes nearly the same, see
  // OpTraits::approximated_by. The names live for ever.
  struct CloseOps {
    TypeSet types;
    std::string_view forward, backward_input, backward_filter;
  };
  static void add_ops(Registry& registry, const Docs& docs, const CloseOps& close = {});

  // Calls add(op) for each of the three with Product as a template argument: registers a family's
  // kernels.
  template <class Add>
  static void for_each_product(Add add) {
    add.template operator()<Product::kForward>(Family::kForward);
    add.template operator()<Product::kBackwardInput>(Family::kBackwardInput);
    add.template operator()<Product::kBackwardFilter>(Family::kBackwardFilter);
  }

 private:
  static Status check_channels(int64_t input, int64_t filter) {
    if (input < 0 || filter < 0 || input == filter) return ok_status();
    return invalid_argument("the input has ", input, " channels, the filter expects ", filter);
  }
  // What is known of the convolution of `input` with `filter`.
  static Result<PartialShape> convolved_shape(Spec spec, const PartialShape& input,
                                              const PartialShape& filter) {
    const int64_t channels = input.dim(spec.channel_dim());
    MR_TRY(check_channels(channels, filter.dim(kAxes)));
    int64_t out_channels = filter.dim(kAxes + 1);
    if (Family::kDepthwise) {
      const int64_t in_channels = filter.dim_known(kAxes) ? filter.dim(kAxes) : channels;
      MR_TRY_ASSIGN(out_channels, multiply_sizes(in_channels, out_channels));
    }
    spec.set_windows(filter);
    return partial_output_shape(spec, input, out_channels);
  }

  static AttrMap attrs(const GradientContext& c) {
    AttrMap out;
    for (const OpSpec::Attr& attr : Family::attrs()) out.set(attr.name, c.attr_value(attr.name));
    return out;
  }
  static Expr forward(const GradientContext& c, Expr x, Expr filter) {
    return call(Family::kForward, {x, filter}, attrs(c));
  }
  static Expr backward_input(const GradientContext& c, Expr x, Expr filter, Expr dy) {
    return call(Family::kBackwardInput, {shape_of(x), filter, dy}, attrs(c));
  }
  static Expr backward_filter(const GradientContext& c, Expr x, Expr filter, Expr dy) {
    return call(Family::kBackwardFilter, {x, shape_of(filter), dy}, attrs(c));
  }
};

template <class Family>
Status Convolution<Family>::forward_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Spec spec, read_conv_spec<kAxes>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, spec.kRank));
  MR_TRY_ASSIGN(PartialShape out, convolved_shape(spec, input, filter));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <class Family>
Status Convolution<Family>::backward_input_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Spec spec, read_conv_spec<kAxes>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape sizes, sizes_input(c, 0));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, spec.kRank));
  PartialShape out = partial_batch_shape(spec, gradient.dim(0), filter.dim(kAxes));
  if (Family::kShortSizes && sizes.rank() == kAxes) {
    for (int a = 0; a < kAxes; ++a) out.set_dim(spec.axis_dim(a), sizes.dim(a));
  } else {
    MR_TRY_ASSIGN(out, out.merge(sizes));
  }
  MR_TRY_ASSIGN(const PartialShape convolved, convolved_shape(spec, out, filter));
  MR_TRY(with_shape(c, 2, convolved).status());
  c.set_output(0, std::move(out));
  return ok_status();
}

template <class Family>
Status Convolution<Family>::backward_filter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Spec spec, read_conv_spec<kAxes>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape sizes, sizes_input(c, 1));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, spec.kRank));
  PartialShape out = PartialShape::of_rank(spec.kRank);
  out.set_dim(kAxes, input.dim(spec.channel_dim()));
  if (!Family::kDepthwise) out.set_dim(kAxes + 1, gradient.dim(spec.channel_dim()));
  MR_TRY_ASSIGN(out, out.merge(sizes));
  MR_TRY_ASSIGN(const PartialShape convolved, convolved_shape(spec, input, out));
  MR_TRY(with_shape(c, 2, convolved).status());
  c.set_output(0, std::move(out));
  return ok_status();
}

template <class Family>
auto Convolution<Family>::shapes(KernelContext& ctx, Spec spec, Product product) -> Result<Shapes> {
  Shapes shapes;
  const bool forward = product == Product::kForward;
  const Shape* const gradient = forward ? nullptr : &ctx.input(2).shape();
  if (product == Product::kBackwardFilter) {
    MR_TRY_ASSIGN(shapes.filter, ctx.shape_input(1));
  } else {
    shapes.filter = ctx.input(1).shape();
  }
  if (product == Product::kBackwardInput) {
    MR_TRY_ASSIGN(shapes.input, ctx.shape_input(0));
  } else {
    shapes.input = ctx.input(0).shape();
  }
  const Shape& filter = shapes.filter;
  const bool short_sizes =
      Family::kShortSizes && product == Product::kBackwardInput && shapes.input.rank() == kAxes;
  if ((shapes.input.rank() != spec.kRank && !short_sizes) || filter.rank() != spec.kRank ||
      (gradient != nullptr && gradient->rank() != spec.kRank)) {
    return invalid_argument("input, filter and output must have rank ", spec.kRank, ", got ",
                            shapes.input, " and ", filter,
                            gradient != nullptr ? " and " + gradient->to_string() : "");
  }
  if (short_sizes) {
    const Shape sizes = shapes.input;
    MR_TRY_ASSIGN(shapes.input, batch_shape(spec, (*gradient)[0], sizes.dims(), filter[kAxes]));
  }
  MR_TRY(check_channels(shapes.input[spec.channel_dim()], filter[kAxes]));
  spec.set_windows(filter);
  MR_TRY_ASSIGN(shapes.axes, window_geometry(spec, shapes.input));
  int64_t channels = filter[kAxes + 1];
  if (Family::kDepthwise) {
    const int64_t factors[] = {filter[kAxes], filter[kAxes + 1]};
    MR_TRY_ASSIGN(const Shape product_of, Shape::make(factors));
    channels = product_of.num_elements();
  }
  MR_TRY_ASSIGN(shapes.output, output_shape(spec, shapes.input[0], shapes.axes, channels));
  if (gradient != nullptr && !(*gradient == shapes.output)) {
    return invalid_argument("out_backprop must have shape ", shapes.output, " for an input of ",
                            shapes.input, " and a filter of ", filter, ", got ", *gradient);
  }
  return shapes;
}

template <class Family>
void Convolution<Family>::add_ops(Registry& registry, const Docs& docs, const CloseOps& close) {
  const auto add = [&](OpSpec spec, std::string_view close_op) {
    if (!close_op.empty()) {
      OpSpec nearly = spec;
      nearly.name = close_op;
      nearly.doc = str_cat(spec.name, ", rounded differently: the optimiser puts it in its place.");
      nearly.types[0].allowed = close.types;
      nearly.gradient = nullptr;
      nearly.no_gradient = "stands in graphs whose gradients are there already";
      registry.add(nearly);
      spec.traits.approximated_by = close_op;
    }
    registry.add(spec);
  };
  const OpSpec::Type floating{"T", kFloating};
  add({.name = Family::kForward,
       .doc = docs.forward,
       .inputs = {{"input", "T"}, {"filter", "T"}},
       .outputs = {{"output", "T"}},
       .types = {floating},
       .attrs = Family::attrs(),
       .traits = {.cost = docs.cost,
                  .filter_channels = Family::kDepthwise ? 3U : 1U,
                  .image_inputs = 1,
                  .image_outputs = 1},
       .shape = forward_shape,
       .gradient = forward_grad},
      close.forward);
  OpSpec backward_input = {
      .name = Family::kBackwardInput,
      .doc = docs.backward_input,
      .inputs = {{"input_sizes", "host(int32)"}, {"filter", "T"}, {"out_backprop", "T"}},
      .outputs = {{"output", "T"}},
      .types = {floating},
      .attrs = Family::attrs(),
      .traits = {.cost = docs.cost,
                 .filter_channels = 2,
                 .image_inputs = 1 << 2,
                 .image_outputs = 1,
                 .each_dimension_in = "input_sizes"},
      .shape = backward_input_shape,
      .gradient = backward_input_grad};
  if (kAxes == 3) {
    backward_input.inputs[0].type = "host(Tshape)";
    backward_input.types.push_back({"Tshape", {DType::kInt32, DType::kInt64}, DType::kInt32});
  }
  add(std::move(backward_input), close.backward_input);
  add({.name = Family::kBackwardFilter,
       .doc = docs.backward_filter,
       .inputs = {{"input", "T"}, {"filter_sizes", "host(int32)"}, {"out_backprop", "T"}},
       .outputs = {{"output", "T"}},
       .types = {floating},
       .attrs = Family::attrs(),
       .traits = {.cost = 1000, .image_inputs = 1 | 1 << 2},
       .shape = backward_filter_shape,
       .gradient = backward_filter_grad},
      close.backward_filter);
}

}  // namespace millrace
