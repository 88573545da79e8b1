#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/depthwise_loops.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/tensor/dispatch.h"

// DepthwiseConv2dNative and its two gradients. Filters are [height, width, channels, multiplier]:
// channel c of the input gives channels c * multiplier + q of the output. The loops work on images
// whose channels were repeated `multiplier` times, so that all have one.

namespace millrace {
namespace {

struct Family {
  static constexpr int kAxes = 2;
  static constexpr bool kDepthwise = true, kShortSizes = false;
  static constexpr const char* kForward = "DepthwiseConv2dNative";
  static constexpr const char* kBackwardInput = "DepthwiseConv2dNativeBackpropInput";
  static constexpr const char* kBackwardFilter = "DepthwiseConv2dNativeBackpropFilter";
  static std::vector<OpSpec::Attr> attrs() {
    return {{"strides", "list(int)"},
            {"padding", "string in {'SAME','VALID','EXPLICIT'}"},
            {"explicit_paddings", "list(int) = []"},
            {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"},
            {"dilations", "list(int) = [1,1,1,1]"}};
  }
};
using Depthwise = Convolution<Family>;

// Images as NHWC of C with each channel `times` times; `tensor` itself where it already is that.
template <class T, class C>
Result<Tensor> staged(KernelContext& ctx, const Tensor& tensor, bool channels_last, int64_t times) {
  Tensor nhwc = tensor;
  if (!channels_last) {
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
Status unstage(KernelContext& ctx, Tensor result, bool channels_last, int64_t times, Tensor& out) {
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
  if (!channels_last) {
    transpose_images(ctx, out.dim(0), out.dim(2) * out.dim(3), out.dim(1), from, to);
  } else {
    ctx.parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  }
  return ok_status();
}

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
        isa_table<DepthwiseLoops<C>>().backward_filter(
            g, image + row / g.height.output * g.image_size(), dy + row * row_size,
            row % g.height.output, part);
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
        isa_table<DepthwiseLoops<C>>().forward(g, image + n * g.image_size(), filter, row % height,
                                               to);
      } else {
        isa_table<DepthwiseLoops<C>>().backward_input(g, filter, dy + n * g.output_size(),
                                                      row % height, to);
      }
    }
  });
  return ok_status();
}

template <class T>
class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel(const Depthwise::Spec& spec, Product product) : spec_(spec), product_(product) {}

  template <Product kProduct>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Depthwise::Spec spec, read_conv_spec<2>(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<DepthwiseKernel>(spec, kProduct));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const bool to_input = product_ == Product::kBackwardInput;
    const bool to_filter = product_ == Product::kBackwardFilter;
    MR_TRY_ASSIGN(const Depthwise::Shapes shapes, Depthwise::shapes(ctx, spec_, product_));
    const Shape& shape = shapes.of_result(product_);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    if (shapes.empty()) {
      std::fill_n(out->mutable_data<T>().data(), shape.num_elements(), T{});
      return ok_status();
    }

    const int64_t times = shapes.filter[3];
    const bool last = spec_.channels_last;
    Tensor image_tensor, filter_tensor, dy_tensor, result = *out;
    if (!to_input) {
      MR_TRY_ASSIGN(image_tensor, (staged<T, C>(ctx, ctx.input(0), last, times)));
    }
    if (!to_filter) {
      MR_TRY_ASSIGN(filter_tensor, (staged<T, C>(ctx, ctx.input(1), true, 1)));
    }
    if (product_ != Product::kForward) {
      MR_TRY_ASSIGN(dy_tensor, (staged<T, C>(ctx, ctx.input(2), last, 1)));
    }
    const bool plain = to_filter || last;
    const int64_t summed = to_input ? times : 1;
    const bool in_place = std::is_same_v<T, C> && plain && summed == 1;
    if (!in_place) {
      const int64_t dims[] = {shape.num_elements(), summed};
      MR_TRY_ASSIGN(const Shape repeated, Shape::make(dims));
      MR_TRY_ASSIGN(result, ctx.allocate_temp(dtype_of<C>, repeated));
    }
    const DepthwiseGeometry g = {.batch = shapes.input[0],
                                 .height = shapes.axes[0],
                                 .width = shapes.axes[1],
                                 .channels = shapes.filter[2] * times};
    const auto data = [](const Tensor& t) { return t.valid() ? t.data<C>().data() : nullptr; };
    MR_TRY(multiply(ctx, product_, g, data(image_tensor), data(filter_tensor), data(dy_tensor),
                    result.mutable_data<C>().data()));
    return in_place ? ok_status() : unstage<T, C>(ctx, result, plain, summed, *out);
  }

 private:
  Depthwise::Spec spec_;
  Product product_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &DepthwiseKernel<Ts>::template make<kProduct>}),
   ...);
}

}  // namespace

void register_depthwise_conv(Registry& registry) {
  Depthwise::add_ops(
      registry, {.forward = "Convolves every channel of the images with filters of its own, "
                            "[height, width, channels, multiplier].",
                 .backward_input = "The gradient of DepthwiseConv2dNative with respect to its "
                                   "input, an image of input_sizes.",
                 .backward_filter = "The gradient of DepthwiseConv2dNative with respect to its "
                                    "filter, of shape filter_sizes.",
                 .cost = 10});
  Depthwise::for_each_product([&]<Product kProduct>(const char* op) {
    register_kernels<kProduct>(registry, op, FloatingTypes());
  });
}

}  // namespace millrace
