#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/nn/conv_gemm.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/ops/nn/window_geometry.h"
#include "millrace/tensor/dispatch.h"

// Conv2D and its two gradients. Filters are [height, width, in channels, out channels].

namespace millrace {
namespace {

Status check_channels(int64_t input, int64_t filter) {
  if (input < 0 || filter < 0 || input == filter) return ok_status();
  return invalid_argument("the input has ", input, " channels, the filter expects ", filter);
}

Status conv2d_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  MR_TRY(check_channels(input.dim(spec.channel_dim()), filter.dim(2)));
  spec.height.window = filter.dim(0);
  spec.width.window = filter.dim(1);
  MR_TRY_ASSIGN(const int64_t height,
                axis_output(spec.height, spec.padding, input.dim(spec.height_dim()), "height"));
  MR_TRY_ASSIGN(const int64_t width,
                axis_output(spec.width, spec.padding, input.dim(spec.width_dim()), "width"));
  c.set_output(0, partial_image_shape(spec.layout, input.dim(0), height, width, filter.dim(3)));
  return ok_status();
}

Status conv2d_backprop_input_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(0));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, 4));
  MR_TRY(check_channels(gradient.dim(spec.channel_dim()), filter.dim(3)));
  PartialShape out = partial_image_shape(spec.layout, gradient.dim(0), -1, -1, filter.dim(2));
  if (sizes.rank() == 4) {
    MR_TRY_ASSIGN(out, out.merge(sizes));
  } else if (sizes.rank() == 2) {
    out.set_dim(spec.height_dim(), sizes.dim(0));
    out.set_dim(spec.width_dim(), sizes.dim(1));
  } else if (sizes.rank_known()) {
    return invalid_argument("input_sizes must have 4 (or 2) elements, got ", sizes);
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

Status conv2d_backprop_filter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(1));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, 4));
  const PartialShape out{-1, -1, input.dim(spec.channel_dim()), gradient.dim(spec.channel_dim())};
  MR_TRY_ASSIGN(PartialShape merged, out.merge(sizes));
  c.set_output(0, std::move(merged));
  return ok_status();
}

struct Family {
  static constexpr const char* kForward = "Conv2D";
  static constexpr const char* kBackwardInput = "Conv2DBackpropInput";
  static constexpr const char* kBackwardFilter = "Conv2DBackpropFilter";
  static constexpr const char* kAttrs[] = {"strides",          "padding",   "data_format",
                                           "use_cudnn_on_gpu", "dilations", "explicit_paddings"};
};
using Gradients = ConvolutionGradients<Family>;

// The one check of a convolution's shapes; `gradient` (may be null) is that of its output.
Result<ConvGeometry> conv_geometry(WindowSpec spec, const Shape& image, const Shape& filter,
                                   const Shape* gradient) {
  if (image.rank() != 4 || filter.rank() != 4 || (gradient != nullptr && gradient->rank() != 4)) {
    return invalid_argument("image, filter and output must have rank 4, got ", image, " and ",
                            filter, gradient != nullptr ? " and " + gradient->to_string() : "");
  }
  ConvGeometry g;
  g.batch = image[0];
  g.in_channels = filter[2];
  g.out_channels = filter[3];
  MR_TRY(check_channels(image[spec.channel_dim()], g.in_channels));
  spec.height.window = filter[0];
  spec.width.window = filter[1];
  MR_TRY_ASSIGN(g.height,
                axis_geometry(spec.height, spec.padding, image[spec.height_dim()], "height"));
  MR_TRY_ASSIGN(g.width, axis_geometry(spec.width, spec.padding, image[spec.width_dim()], "width"));
  if (gradient == nullptr) return g;
  MR_TRY_ASSIGN(const Shape expected,
                image_shape(spec.layout, g.batch, g.height.output, g.width.output, g.out_channels));
  if (!(*gradient == expected)) {
    return invalid_argument("out_backprop must have shape ", expected, " for an image of ", image,
                            " and a filter of ", filter, ", got ", *gradient);
  }
  return g;
}

// The GEMM works on NHWC images of float or double. `tensor` in that form, itself where it already
// is.
template <class T, class C>
Result<Tensor> staged(KernelContext& ctx, const Tensor& tensor, ImageLayout layout) {
  const bool transposes = layout == ImageLayout::kNchw;
  if (std::is_same_v<T, C> && !transposes) return tensor;
  MR_TRY_ASSIGN(Tensor copy, ctx.allocate_temp(dtype_of<C>, tensor.shape()));
  const T* from = tensor.data<T>().data();
  C* to = copy.mutable_data<C>().data();
  if (transposes) {
    transpose_images(ctx, tensor.dim(0), tensor.dim(1), tensor.dim(2) * tensor.dim(3), from, to);
  } else {
    ctx.parallel_for(tensor.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<C>(from[i]);
    });
  }
  return copy;
}

// Writes `result` (NHWC images of C, or a filter) to `out` in its layout and type.
template <class T, class C>
void unstage(KernelContext& ctx, const Tensor& result, ImageLayout layout, Tensor& out) {
  const C* from = result.data<C>().data();
  T* to = out.mutable_data<T>().data();
  if (layout == ImageLayout::kNchw) {
    transpose_images(ctx, out.dim(0), out.dim(2) * out.dim(3), out.dim(1), from, to);
  } else {
    ctx.parallel_for(out.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  }
}

enum class Product : uint8_t { kForward, kBackwardInput, kBackwardFilter };

template <class C>
Status multiply(const ConvGeometry& g, Product product, const C* image, const C* filter,
                const C* dy, C* result, ParallelFor parallel_for) {
  switch (product) {
    case Product::kForward:
      return conv_forward(g, image, filter, result, parallel_for);
    case Product::kBackwardInput:
      return conv_backward_input(g, filter, dy, result, parallel_for);
    case Product::kBackwardFilter:
      return conv_backward_filter(g, image, dy, result, parallel_for);
  }
  return ok_status();
}

// The definition: every product of an image element and a filter element that an output element
// sums.
template <class C>
void multiply_reference(const ConvGeometry& g, Product product, const C* image, const C* filter,
                        const C* dy, C* result, int64_t result_size) {
  std::fill_n(result, result_size, C{});
  const AxisGeometry &h = g.height, &w = g.width;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t oy = 0; oy < h.output; ++oy) {
      for (int64_t ox = 0; ox < w.output; ++ox) {
        for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
          for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
            const int64_t y = h.origin(oy) + fy * h.dilation, x = w.origin(ox) + fx * w.dilation;
            for (int64_t ci = 0; ci < g.in_channels; ++ci) {
              for (int64_t co = 0; co < g.out_channels; ++co) {
                const int64_t at_image = ((n * h.input + y) * w.input + x) * g.in_channels + ci;
                const int64_t at_filter =
                    ((fy * w.window + fx) * g.in_channels + ci) * g.out_channels + co;
                const int64_t at_out = ((n * h.output + oy) * w.output + ox) * g.out_channels + co;
                if (product == Product::kForward) {
                  result[at_out] += image[at_image] * filter[at_filter];
                } else if (product == Product::kBackwardInput) {
                  result[at_image] += dy[at_out] * filter[at_filter];
                } else {
                  result[at_filter] += dy[at_out] * image[at_image];
                }
              }
            }
          }
        }
      }
    }
  }
}

template <class T>
class ConvKernel final : public Kernel {
 public:
  ConvKernel(const WindowSpec& spec, Product product, bool reference)
      : spec_(spec), product_(product), reference_(reference) {}

  template <Product kProduct, bool kReference>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec spec, read_conv_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<ConvKernel>(spec, kProduct, kReference));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const bool forward = product_ == Product::kForward;
    MR_TRY_ASSIGN(const Shape image, image_shape_of(ctx));
    MR_TRY_ASSIGN(const Shape filter, filter_shape_of(ctx));
    MR_TRY_ASSIGN(const ConvGeometry g,
                  conv_geometry(spec_, image, filter, forward ? nullptr : &ctx.input(2).shape()));
    Shape shape = product_ == Product::kBackwardInput ? image : filter;
    if (forward) {
      MR_TRY_ASSIGN(shape, image_shape(spec_.layout, g.batch, g.height.output, g.width.output,
                                       g.out_channels));
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    // Sums over nothing. Windows of any size may come with an empty filter, so nothing else looks
    // at it.
    if (image.num_elements() == 0 || filter.num_elements() == 0 ||
        (!forward && ctx.input(2).num_elements() == 0)) {
      std::fill_n(out->mutable_data<T>().data(), shape.num_elements(), T{});
      return ok_status();
    }

    const ImageLayout plain = ImageLayout::kNhwc;
    Tensor image_tensor, filter_tensor, dy_tensor, result;
    if (product_ != Product::kBackwardInput) {
      MR_TRY_ASSIGN(image_tensor, (staged<T, C>(ctx, ctx.input(0), spec_.layout)));
    }
    if (product_ != Product::kBackwardFilter) {
      MR_TRY_ASSIGN(filter_tensor, (staged<T, C>(ctx, ctx.input(1), plain)));
    }
    if (!forward) {
      MR_TRY_ASSIGN(dy_tensor, (staged<T, C>(ctx, ctx.input(2), spec_.layout)));
    }
    const ImageLayout out_layout = product_ == Product::kBackwardFilter ? plain : spec_.layout;
    const bool in_place = std::is_same_v<T, C> && out_layout == plain;
    if (in_place) {
      result = *out;
    } else {
      MR_TRY_ASSIGN(result, ctx.allocate_temp(dtype_of<C>, shape));
    }
    const auto data = [](const Tensor& t) { return t.valid() ? t.data<C>().data() : nullptr; };
    C* const to = result.mutable_data<C>().data();
    if (reference_) {
      multiply_reference(g, product_, data(image_tensor), data(filter_tensor), data(dy_tensor), to,
                         shape.num_elements());
    } else {
      MR_TRY(multiply(g, product_, data(image_tensor), data(filter_tensor), data(dy_tensor), to,
                      ContextParallel{ctx}));
    }
    if (!in_place) unstage<T, C>(ctx, result, out_layout, *out);
    return ok_status();
  }

 private:
  Result<Shape> image_shape_of(KernelContext& ctx) const {
    if (product_ != Product::kBackwardInput) return ctx.input(0).shape();
    MR_TRY_ASSIGN(const Shape sizes, ctx.shape_input(0));
    if (sizes.rank() != 2) return sizes;
    // Only height and width are given.
    MR_TRY(expect_rank(ctx, 1, 4));
    MR_TRY(expect_rank(ctx, 2, 4));
    return image_shape(spec_.layout, ctx.input(2).dim(0), sizes[0], sizes[1], ctx.input(1).dim(2));
  }
  Result<Shape> filter_shape_of(KernelContext& ctx) const {
    if (product_ != Product::kBackwardFilter) return ctx.input(1).shape();
    return ctx.shape_input(1);
  }

  WindowSpec spec_;
  Product product_;
  bool reference_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, std::vector<int> host_inputs,
                      TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &ConvKernel<Ts>::template make<kProduct, false>,
                    .host_inputs = host_inputs,
                    .priority = 1}),
   ...);
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &ConvKernel<Ts>::template make<kProduct, true>,
                    .host_inputs = host_inputs,
                    .label = "reference"}),
   ...);
}

std::vector<OpSpec::Attr> conv_attr_specs() {
  return {{"strides", "list(int)"},
          {"use_cudnn_on_gpu", "bool = true"},
          {"padding", "string in {'SAME','VALID','EXPLICIT'}"},
          {"explicit_paddings", "list(int) = []"},
          {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"},
          {"dilations", "list(int) = [1,1,1,1]"}};
}

}  // namespace

void register_conv2d(Registry& registry) {
  registry.add({.name = "Conv2D",
                .doc = "Two-dimensional convolution (cross-correlation) of images with a filter "
                       "[height, width, in channels, out channels].",
                .inputs = {{"input", "T"}, {"filter", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 100},
                .shape = conv2d_shape,
                .gradient = Gradients::of_forward});
  registry.add({.name = "Conv2DBackpropInput",
                .doc = "The gradient of Conv2D with respect to its input, an image of input_sizes.",
                .inputs = {{"input_sizes", "int32"}, {"filter", "T"}, {"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 100},
                .shape = conv2d_backprop_input_shape,
                .gradient = Gradients::of_backward_input});
  registry.add({.name = "Conv2DBackpropFilter",
                .doc = "The gradient of Conv2D with respect to its filter, of shape filter_sizes.",
                .inputs = {{"input", "T"}, {"filter_sizes", "int32"}, {"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 1000},
                .shape = conv2d_backprop_filter_shape,
                .gradient = Gradients::of_backward_filter});
  register_kernels<Product::kForward>(registry, "Conv2D", {}, FloatingTypes());
  register_kernels<Product::kBackwardInput>(registry, "Conv2DBackpropInput", {0}, FloatingTypes());
  register_kernels<Product::kBackwardFilter>(registry, "Conv2DBackpropFilter", {1},
                                             FloatingTypes());
}

}  // namespace millrace
