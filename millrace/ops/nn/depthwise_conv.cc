#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/ops/nn/depthwise_loops.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/tensor/dispatch.h"

// DepthwiseConv2dNative and its two gradients. Filters are [height, width, channels, multiplier]:
// channel c of the input gives channels c * multiplier + q of the output. The loops work on images
// whose channels were repeated `multiplier` times, so that all have one.

namespace millrace {
namespace {

Status check_channels(int64_t input, int64_t filter) {
  if (input < 0 || filter < 0 || input == filter) return ok_status();
  return invalid_argument("the input has ", input, " channels, the filter expects ", filter);
}

// -1 when one is unknown.
int64_t output_channels(const PartialShape& filter) {
  if (filter.dim(2) == 0 || filter.dim(3) == 0) return 0;
  return filter.dim(2) < 0 || filter.dim(3) < 0 ? -1 : filter.dim(2) * filter.dim(3);
}

Status depthwise_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(PartialShape filter, c.with_rank(1, 4));
  const int64_t channels = input.dim(spec.channel_dim());
  MR_TRY(check_channels(channels, filter.dim(2)));
  if (filter.dim(2) < 0) filter.set_dim(2, channels);
  spec.height.window = filter.dim(0);
  spec.width.window = filter.dim(1);
  MR_TRY_ASSIGN(const int64_t height,
                axis_output(spec.height, spec.padding, input.dim(spec.height_dim()), "height"));
  MR_TRY_ASSIGN(const int64_t width,
                axis_output(spec.width, spec.padding, input.dim(spec.width_dim()), "width"));
  c.set_output(
      0, partial_image_shape(spec.layout, input.dim(0), height, width, output_channels(filter)));
  return ok_status();
}

Status depthwise_backprop_input_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(0));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, 4));
  MR_TRY_ASSIGN(
      PartialShape out,
      partial_image_shape(spec.layout, gradient.dim(0), -1, -1, filter.dim(2)).merge(sizes));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status depthwise_backprop_filter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(1));
  MR_TRY(c.with_rank(2, 4).status());
  MR_TRY_ASSIGN(PartialShape out,
                PartialShape({-1, -1, input.dim(spec.channel_dim()), -1}).merge(sizes));
  c.set_output(0, std::move(out));
  return ok_status();
}

std::vector<OpSpec::Attr> conv_attr_specs() {
  return {{"strides", "list(int)"},
          {"padding", "string in {'SAME','VALID','EXPLICIT'}"},
          {"explicit_paddings", "list(int) = []"},
          {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"},
          {"dilations", "list(int) = [1,1,1,1]"}};
}

struct Family {
  static constexpr const char* kForward = "DepthwiseConv2dNative";
  static constexpr const char* kBackwardInput = "DepthwiseConv2dNativeBackpropInput";
  static constexpr const char* kBackwardFilter = "DepthwiseConv2dNativeBackpropFilter";
  static constexpr const char* kAttrs[] = {"strides", "padding", "explicit_paddings", "data_format",
                                           "dilations"};
};
using Gradients = ConvolutionGradients<Family>;

// The one check of the shapes; `gradient` (may be null) is that of the output, which is returned.
Result<Shape> depthwise_geometry(WindowSpec spec, const Shape& image, const Shape& filter,
                                 const Shape* gradient, DepthwiseGeometry& g) {
  if (image.rank() != 4 || filter.rank() != 4) {
    return invalid_argument("image and filter must have rank 4, got ", image, " and ", filter);
  }
  g.batch = image[0];
  MR_TRY(check_channels(image[spec.channel_dim()], filter[2]));
  const int64_t factors[] = {filter[2], filter[3]};
  MR_TRY_ASSIGN(const Shape channels, Shape::make(factors));
  g.channels = channels.num_elements();
  spec.height.window = filter[0];
  spec.width.window = filter[1];
  MR_TRY_ASSIGN(g.height,
                axis_geometry(spec.height, spec.padding, image[spec.height_dim()], "height"));
  MR_TRY_ASSIGN(g.width, axis_geometry(spec.width, spec.padding, image[spec.width_dim()], "width"));
  MR_TRY_ASSIGN(const Shape expected,
                image_shape(spec.layout, g.batch, g.height.output, g.width.output, g.channels));
  if (gradient != nullptr && !(*gradient == expected)) {
    return invalid_argument("out_backprop must have shape ", expected, " for an image of ", image,
                            " and a filter of ", filter, ", got ", *gradient);
  }
  return expected;
}

// Images as NHWC of C with each channel `times` times; `tensor` itself where it already is that.
template <class T, class C>
Result<Tensor> staged(KernelContext& ctx, const Tensor& tensor, ImageLayout layout, int64_t times) {
  Tensor nhwc = tensor;
  if (layout == ImageLayout::kNchw) {
    MR_TRY_ASSIGN(nhwc, ctx.allocate_temp(dtype_of<C>, tensor.shape()));
    transpose_images(ctx, tensor.dim(0), tensor.dim(1), tensor.dim(2) * tensor.dim(3),
                     tensor.data<T>().data(), nhwc.mutable_data<C>().data());
  } else {
    MR_TRY_ASSIGN(nhwc, as_compute_type<T>(ctx, tensor));
  }
  if (times == 1) return nhwc;
  const int64_t dims[] = {tensor.num_elements(), times};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor repeated, ctx.allocate_temp(dtype_of<C>, shape));
  const C* const from = nhwc.data<C>().data();
  C* const to = repeated.mutable_data<C>().data();
  ctx.parallel_for(dims[0], static_cast<double>(times), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::fill_n(to + i * times, times, from[i]);
  });
  return repeated;
}

// The other way: channels summed in groups of `times`, in the layout and type of `out`.
template <class T, class C>
Status unstage(KernelContext& ctx, Tensor result, ImageLayout layout, int64_t times, Tensor& out) {
  const int64_t n = out.num_elements();
  if (times > 1) {
    MR_TRY_ASSIGN(Tensor summed, ctx.allocate_temp(dtype_of<C>, out.shape()));
    const C* const from = result.data<C>().data();
    C* const to = summed.mutable_data<C>().data();
    ctx.parallel_for(n, static_cast<double>(times), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        C sum = {};
        for (int64_t q = 0; q < times; ++q) sum += from[i * times + q];
        to[i] = sum;
      }
    });
    result = summed;
  }
  const C* const from = result.data<C>().data();
  T* const to = out.mutable_data<T>().data();
  if (layout == ImageLayout::kNchw) {
    transpose_images(ctx, out.dim(0), out.dim(2) * out.dim(3), out.dim(1), from, to);
  } else {
    ctx.parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  }
  return ok_status();
}

enum class Product : uint8_t { kForward, kBackwardInput, kBackwardFilter };

// The filter's gradient is summed over parts of the rows, as many as the shapes alone say, and then
// over the parts.
template <class C>
Status multiply_filter(KernelContext& ctx, const DepthwiseGeometry& g, const C* image, const C* dy,
                       C* result) {
  constexpr int64_t kMostParts = 16;
  const int64_t rows = g.batch * g.height.output, parts = std::min(rows, kMostParts);
  const int64_t size = g.filter_size();
  const int64_t dims[] = {parts, size};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor sums, ctx.allocate_temp(dtype_of<C>, shape));
  C* const all = sums.mutable_data<C>().data();
  const int64_t row_size = g.width.output * g.channels;
  const double cost = 0.1 * static_cast<double>(rows / parts * g.height.window * g.width.window) *
                      static_cast<double>(row_size);
  ctx.parallel_for(parts, cost, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      C* const part = all + p * size;
      std::fill_n(part, size, C{});
      for (int64_t row = rows * p / parts; row < rows * (p + 1) / parts; ++row) {
        depthwise_loops<C>().backward_filter(g, image + row / g.height.output * g.image_size(),
                                             dy + row * row_size, row % g.height.output, part);
      }
    }
  });
  std::copy_n(all, size, result);
  for (int64_t p = 1; p < parts; ++p) {
    for (int64_t i = 0; i < size; ++i) result[i] += all[p * size + i];
  }
  return ok_status();
}

template <class C>
Status multiply(KernelContext& ctx, Product product, const DepthwiseGeometry& g, const C* image,
                const C* filter, const C* dy, C* result) {
  if (product == Product::kBackwardFilter) return multiply_filter(ctx, g, image, dy, result);
  const bool forward = product == Product::kForward;
  const int64_t height = forward ? g.height.output : g.height.input;
  const int64_t width = forward ? g.width.output : g.width.input;
  const double cost = 0.1 * static_cast<double>(g.height.window * g.width.window) *
                      static_cast<double>(width * g.channels);
  ctx.parallel_for(g.batch * height, cost, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      C* const to = result + row * width * g.channels;
      const int64_t n = row / height;
      if (forward) {
        depthwise_loops<C>().forward(g, image + n * g.image_size(), filter, row % height, to);
      } else {
        depthwise_loops<C>().backward_input(g, filter, dy + n * g.output_size(), row % height, to);
      }
    }
  });
  return ok_status();
}

template <class T>
class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(const WindowSpec& spec, Product product) : spec_(spec), product_(product) {}

  template <Product kProduct>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<DepthwiseKernel>(spec, kProduct));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const bool forward = product_ == Product::kForward;
    const bool to_input = product_ == Product::kBackwardInput;
    const bool to_filter = product_ == Product::kBackwardFilter;
    Shape image = ctx.input(0).shape(), filter = ctx.input(1).shape();
    if (to_input) {
      MR_TRY_ASSIGN(image, ctx.shape_input(0));
    }
    if (to_filter) {
      MR_TRY_ASSIGN(filter, ctx.shape_input(1));
    }
    DepthwiseGeometry g;
    const Shape* const gradient = forward ? nullptr : &ctx.input(2).shape();
    MR_TRY_ASSIGN(const Shape output, depthwise_geometry(spec_, image, filter, gradient, g));
    const Shape& shape = forward ? output : to_input ? image : filter;
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    // Sums over nothing. Windows of any size may come with an empty filter, so nothing else looks
    // at it.
    if (image.num_elements() == 0 || filter.num_elements() == 0 || output.num_elements() == 0) {
      std::fill_n(out->mutable_data<T>().data(), shape.num_elements(), T{});
      return ok_status();
    }

    const ImageLayout plain = ImageLayout::kNhwc;
    const int64_t times = filter[3];
    Tensor image_tensor, filter_tensor, dy_tensor, result = *out;
    if (!to_input) {
      MR_TRY_ASSIGN(image_tensor, (staged<T, C>(ctx, ctx.input(0), spec_.layout, times)));
    }
    if (!to_filter) {
      MR_TRY_ASSIGN(filter_tensor, (staged<T, C>(ctx, ctx.input(1), plain, 1)));
    }
    if (!forward) {
      MR_TRY_ASSIGN(dy_tensor, (staged<T, C>(ctx, ctx.input(2), spec_.layout, 1)));
    }
    const ImageLayout layout = to_filter ? plain : spec_.layout;
    const int64_t summed = to_input ? times : 1;
    const bool in_place = std::is_same_v<T, C> && layout == plain && summed == 1;
    if (!in_place) {
      const int64_t dims[] = {shape.num_elements(), summed};
      MR_TRY_ASSIGN(const Shape repeated, Shape::make(dims));
      MR_TRY_ASSIGN(result, ctx.allocate_temp(dtype_of<C>, repeated));
    }
    const auto data = [](const Tensor& t) { return t.valid() ? t.data<C>().data() : nullptr; };
    MR_TRY(multiply(ctx, product_, g, data(image_tensor), data(filter_tensor), data(dy_tensor),
                    result.mutable_data<C>().data()));
    return in_place ? ok_status() : unstage<T, C>(ctx, result, layout, summed, *out);
  }

 private:
  WindowSpec spec_;
  Product product_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, const std::vector<int>& host_inputs,
                      TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &DepthwiseKernel<Ts>::template make<kProduct>,
                    .host_inputs = host_inputs}),
   ...);
}

}  // namespace

void register_depthwise_conv(Registry& registry) {
  registry.add({.name = "DepthwiseConv2dNative",
                .doc = "Convolves every channel of the images with filters of its own, [height, "
                       "width, channels, multiplier].",
                .inputs = {{"input", "T"}, {"filter", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 10},
                .shape = depthwise_shape,
                .gradient = Gradients::of_forward});
  registry.add({.name = "DepthwiseConv2dNativeBackpropInput",
                .doc = "The gradient of DepthwiseConv2dNative with respect to its input, an image "
                       "of input_sizes.",
                .inputs = {{"input_sizes", "int32"}, {"filter", "T"}, {"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 10},
                .shape = depthwise_backprop_input_shape,
                .gradient = Gradients::of_backward_input});
  registry.add({.name = "DepthwiseConv2dNativeBackpropFilter",
                .doc = "The gradient of DepthwiseConv2dNative with respect to its filter, of shape "
                       "filter_sizes.",
                .inputs = {{"input", "T"}, {"filter_sizes", "int32"}, {"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 1000},
                .shape = depthwise_backprop_filter_shape,
                .gradient = Gradients::of_backward_filter});
  register_kernels<Product::kForward>(registry, "DepthwiseConv2dNative", {}, FloatingTypes());
  register_kernels<Product::kBackwardInput>(registry, "DepthwiseConv2dNativeBackpropInput", {0},
                                            FloatingTypes());
  register_kernels<Product::kBackwardFilter>(registry, "DepthwiseConv2dNativeBackpropFilter", {1},
                                             FloatingTypes());
}

}  // namespace millrace
