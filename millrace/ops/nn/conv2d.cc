#include "millrace/ops/accumulate.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/nn/conv_gemm.h"
#include "millrace/ops/nn/conv_winograd.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/tensor/dispatch.h"

// Conv2D and its two gradients. Filters are [height, width, in channels, out channels].

namespace millrace {
namespace {

struct Family {
  static constexpr int kAxes = 2;
  static constexpr bool kDepthwise = false, kShortSizes = true;
  static constexpr const char* kForward = "Conv2D";
  static constexpr const char* kBackwardInput = "Conv2DBackpropInput";
  static constexpr const char* kBackwardFilter = "Conv2DBackpropFilter";
  static std::vector<OpSpec::Attr> attrs() {
    return {{"strides", "list(int)"},
            {"use_cudnn_on_gpu", "bool = true"},
            {"padding", "string in {'SAME','VALID','EXPLICIT'}"},
            {"explicit_paddings", "list(int) = []"},
            {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"},
            {"dilations", "list(int) = [1,1,1,1]"}};
  }
};
using Conv2D = Convolution<Family>;

// The GEMM works on NHWC images of float or double. `tensor` in that form, itself where it already
// is.
template <class T, class C>
Result<Tensor> staged(KernelContext& ctx, const Tensor& tensor, bool channels_last) {
  if (std::is_same_v<T, C> && channels_last) return tensor;
  MR_TRY_ASSIGN(Tensor copy, ctx.allocate_temp(dtype_of<C>, tensor.shape()));
  const T* from = tensor.data<T>().data();
  C* to = copy.mutable_data<C>().data();
  if (!channels_last) {
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
void unstage(KernelContext& ctx, const Tensor& result, bool channels_last, Tensor& out) {
  const C* from = result.data<C>().data();
  T* to = out.mutable_data<T>().data();
  if (!channels_last) {
    transpose_images(ctx, out.dim(0), out.dim(2) * out.dim(3), out.dim(1), from, to);
  } else {
    ctx.parallel_for(out.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  }
}

// How a product is computed: by the definition, as fast as the ops' rounding allows, or as fast as
// possible.
enum class Method : uint8_t { kReference, kPlain, kClose };

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

// As multiply(), by the fastest algorithm that is known for the sizes.
template <class C>
Status multiply_closely(const ConvGeometry& g, Product product, const C* image, const C* filter,
                        const C* dy, C* result, ParallelFor parallel_for) {
  if constexpr (std::is_same_v<C, float>) {
    if (product == Product::kForward && winograd_pays_forward(g)) {
      return conv_forward_winograd(g, image, filter, result, parallel_for);
    }
    if (product == Product::kBackwardInput && winograd_pays_backward_input(g)) {
      return conv_backward_input_winograd(g, filter, dy, result, parallel_for);
    }
    if (product == Product::kBackwardFilter && winograd_pays_backward_filter(g)) {
      return conv_backward_filter_winograd(g, image, dy, result, parallel_for);
    }
  }
  return multiply(g, product, image, filter, dy, result, parallel_for);
}

template <class T>
class ConvKernel final : public Kernel {
 public:
  ConvKernel(const Conv2D::Spec& spec, Product product, Method method)
      : spec_(spec), product_(product), method_(method) {}

  template <Product kProduct, Method kMethod>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Conv2D::Spec spec, read_conv_spec<2>(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<ConvKernel>(spec, kProduct, kMethod));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    MR_TRY_ASSIGN(const Conv2D::Shapes shapes, Conv2D::shapes(ctx, spec_, product_));
    const Shape& shape = shapes.of_result(product_);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    const ConvGeometry g = {.batch = shapes.input[0],
                            .height = shapes.axes[0],
                            .width = shapes.axes[1],
                            .in_channels = shapes.filter[2],
                            .out_channels = shapes.filter[3]};
    if (DeviceEngine* const device = device_engine(ctx)) {
      return convolve_on_device(ctx, *device, shapes.empty(), g, *out);
    }
    if (shapes.empty()) {
      std::fill_n(out->mutable_data<T>().data(), shape.num_elements(), T{});
      return ok_status();
    }

    Tensor image_tensor, filter_tensor, dy_tensor, result;
    if (product_ != Product::kBackwardInput) {
      MR_TRY_ASSIGN(image_tensor, (staged<T, C>(ctx, ctx.input(0), spec_.channels_last)));
    }
    if (product_ != Product::kBackwardFilter) {
      MR_TRY_ASSIGN(filter_tensor, (staged<T, C>(ctx, ctx.input(1), true)));
    }
    if (product_ != Product::kForward) {
      MR_TRY_ASSIGN(dy_tensor, (staged<T, C>(ctx, ctx.input(2), spec_.channels_last)));
    }
    const bool channels_last = product_ == Product::kBackwardFilter || spec_.channels_last;
    const bool in_place = std::is_same_v<T, C> && channels_last;
    if (in_place) {
      result = *out;
    } else {
      MR_TRY_ASSIGN(result, ctx.allocate_temp(dtype_of<C>, shape));
    }
    const auto data = [](const Tensor& t) { return t.valid() ? t.data<C>().data() : nullptr; };
    C* const to = result.mutable_data<C>().data();
    const C *const image = data(image_tensor), *const filter = data(filter_tensor);
    const C* const dy = data(dy_tensor);
    switch (method_) {
      case Method::kReference:
        multiply_reference(g, product_, image, filter, dy, to, shape.num_elements());
        break;
      case Method::kPlain:
        MR_TRY(multiply(g, product_, image, filter, dy, to, ContextParallel{ctx}));
        break;
      case Method::kClose:
        MR_TRY(multiply_closely(g, product_, image, filter, dy, to, ContextParallel{ctx}));
        break;
    }
    if (!in_place) unstage<T, C>(ctx, result, channels_last, *out);
    return ok_status();
  }

 private:
  Status convolve_on_device(KernelContext& ctx, DeviceEngine& device, bool empty,
                            const ConvGeometry& g, Tensor& out) const {
    if (empty) {
      const char zero = 0;
      return device.fill(ctx, 1, &zero, /*host=*/true, out.mutable_raw(),
                         static_cast<int64_t>(out.bytes()));
    }
    const auto axis = [](const AxisGeometry& a) {
      return DeviceEngine::Axis{a.input, a.window, a.stride, a.dilation, a.before, a.output};
    };
    const DeviceEngine::Convolution sizes = {.batch = g.batch,
                                             .in_channels = g.in_channels,
                                             .out_channels = g.out_channels,
                                             .axes = {axis(g.height), axis(g.width)},
                                             .channels_last = spec_.channels_last};
    const bool forward = product_ == Product::kForward;
    return device.convolve(ctx, out.dtype(), static_cast<DeviceEngine::Product>(product_), sizes,
                           product_ == Product::kBackwardInput ? nullptr : ctx.input(0).raw(),
                           product_ == Product::kBackwardFilter ? nullptr : ctx.input(1).raw(),
                           forward ? nullptr : ctx.input(2).raw(), out.mutable_raw());
  }

  Conv2D::Spec spec_;
  Product product_;
  Method method_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &ConvKernel<Ts>::template make<kProduct, Method::kPlain>,
                    .priority = 1}),
   ...);
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &ConvKernel<Ts>::template make<kProduct, Method::kReference>,
                    .label = "reference"}),
   ...);
}

// Those that are computed in float.
using CloseTypes = TypeList<float, Half, BFloat16>;
constexpr Conv2D::CloseOps kCloseOps = {.types = type_set_of<CloseTypes>,
                                        .forward = "_CloseConv2D",
                                        .backward_input = "_CloseConv2DBackpropInput",
                                        .backward_filter = "_CloseConv2DBackpropFilter"};

template <Product kProduct, class... Ts>
void register_close_kernels(Registry& registry, std::string_view op, TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &ConvKernel<Ts>::template make<kProduct, Method::kClose>}),
   ...);
}

}  // namespace

void register_conv2d(Registry& registry) {
  Conv2D::add_ops(
      registry,
      {.forward = "Two-dimensional convolution (cross-correlation) of images with a filter "
                  "[height, width, in channels, out channels].",
       .backward_input = "The gradient of Conv2D with respect to its input, an image of "
                         "input_sizes.",
       .backward_filter = "The gradient of Conv2D with respect to its filter, of shape "
                          "filter_sizes."},
      kCloseOps);
  Conv2D::for_each_product([&]<Product kProduct>(const char* op) {
    register_kernels<kProduct>(registry, op, FloatingTypes());
  });
  register_close_kernels<Product::kForward>(registry, kCloseOps.forward, CloseTypes());
  register_close_kernels<Product::kBackwardInput>(registry, kCloseOps.backward_input, CloseTypes());
  register_close_kernels<Product::kBackwardFilter>(registry, kCloseOps.backward_filter,
                                                   CloseTypes());
}

}  // namespace millrace
