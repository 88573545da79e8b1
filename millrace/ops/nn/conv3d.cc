#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/nn/conv_gemm.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/tensor/dispatch.h"

// Conv3D and its two gradients: sums of convolutions of slices, [height, width], over the depth of
// the filter. Filters are [depth, height, width, in channels, out channels].

namespace millrace {
namespace {

struct Family {
  static constexpr int kAxes = 3;
  static constexpr bool kDepthwise = false, kShortSizes = false;
  static constexpr const char* kForward = "Conv3D";
  static constexpr const char* kBackwardInput = "Conv3DBackpropInputV2";
  static constexpr const char* kBackwardFilter = "Conv3DBackpropFilterV2";
  static std::vector<OpSpec::Attr> attrs() {
    return {{"strides", "list(int) >= 5"},
            {"padding", "string in {'SAME','VALID'}"},
            {"data_format", "string = 'NDHWC' in {'NDHWC','NCDHW'}"},
            {"dilations", "list(int) = [1,1,1,1,1]"}};
  }
};
using Conv3D = Convolution<Family>;

// One slice, and how slices follow each other.
struct Slices {
  explicit Slices(const Conv3D::Shapes& shapes)
      : depth(shapes.axes[0]),
        slice{1, shapes.axes[1], shapes.axes[2], shapes.filter[3], shapes.filter[4]},
        batch(shapes.input[0]) {}

  AxisGeometry depth;
  ConvGeometry slice;  // batch 1
  int64_t batch;

  int64_t image() const { return slice.height.input * slice.width.input * slice.in_channels; }
  int64_t output() const { return slice.height.output * slice.width.output * slice.out_channels; }
  int64_t filter() const {
    return slice.height.window * slice.width.window * slice.in_channels * slice.out_channels;
  }
};

// Every product of a slice of the volume, one of the filter and one of the output that the result
// sums, in order, each made in `term`.
template <class C>
Status multiply(const KernelContext& ctx, Product product, const Slices& s, const C* volume,
                const C* filter, const C* dy, C* result, int64_t result_size, C* term) {
  std::fill_n(result, result_size, C{});
  const auto add = [&](C* to, int64_t n) {
    ctx.parallel_for(n, 0.5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] += term[i];
    });
  };
  const ContextParallel parallel{ctx};
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t oz = 0; oz < s.depth.output; ++oz) {
      for (int64_t fz = s.depth.first(oz); fz < s.depth.last(oz); ++fz) {
        const int64_t iz = s.depth.origin(oz) + fz * s.depth.dilation;
        const int64_t image = (n * s.depth.input + iz) * s.image(), part = fz * s.filter();
        const int64_t out = (n * s.depth.output + oz) * s.output();
        switch (product) {
          case Product::kForward:
            MR_TRY(conv_forward(s.slice, volume + image, filter + part, term, parallel));
            add(result + out, s.output());
            break;
          case Product::kBackwardInput:
            MR_TRY(conv_backward_input(s.slice, filter + part, dy + out, term, parallel));
            add(result + image, s.image());
            break;
          case Product::kBackwardFilter:
            MR_TRY(conv_backward_filter(s.slice, volume + image, dy + out, term, parallel));
            add(result + part, s.filter());
            break;
        }
      }
    }
  }
  return ok_status();
}

// Volumes as NDHWC of C; `tensor` itself where it already is that.
template <class T, class C>
Result<Tensor> staged(KernelContext& ctx, const Tensor& tensor, bool channels_last) {
  if (channels_last) return as_compute_type<T>(ctx, tensor);
  MR_TRY_ASSIGN(Tensor copy, ctx.allocate_temp(dtype_of<C>, tensor.shape()));
  transpose_images(ctx, tensor.dim(0), tensor.dim(1), tensor.dim(2) * tensor.dim(3) * tensor.dim(4),
                   tensor.data<T>().data(), copy.mutable_data<C>().data());
  return copy;
}

template <class T>
class Conv3DKernel final : public Kernel {
 public:
  Conv3DKernel(const Conv3D::Spec& spec, Product product) : spec_(spec), product_(product) {}

  template <Product kProduct>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Conv3D::Spec spec, read_conv_spec<3>(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<Conv3DKernel>(spec, kProduct));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const bool forward = product_ == Product::kForward;
    const bool to_input = product_ == Product::kBackwardInput;
    const bool to_filter = product_ == Product::kBackwardFilter;
    MR_TRY_ASSIGN(const Conv3D::Shapes shapes, Conv3D::shapes(ctx, spec_, product_));
    const Shape& shape = shapes.of_result(product_);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    if (shapes.empty()) {
      std::fill_n(out->mutable_data<T>().data(), shape.num_elements(), T{});
      return ok_status();
    }
    Tensor volume_tensor, filter_tensor, dy_tensor;
    if (!to_input) {
      MR_TRY_ASSIGN(volume_tensor, (staged<T, C>(ctx, ctx.input(0), spec_.channels_last)));
    }
    if (!to_filter) {
      MR_TRY_ASSIGN(filter_tensor, as_compute_type<T>(ctx, ctx.input(1)));
    }
    if (!forward) {
      MR_TRY_ASSIGN(dy_tensor, (staged<T, C>(ctx, ctx.input(2), spec_.channels_last)));
    }
    const bool transposes = !to_filter && !spec_.channels_last;
    Tensor result = *out;
    if (transposes) {
      MR_TRY_ASSIGN(result, ctx.allocate_temp(dtype_of<C>, shape));
    } else {
      MR_TRY_ASSIGN(result, compute_buffer<T>(ctx, *out));
    }
    const Slices slices(shapes);
    const int64_t term_size = forward    ? slices.output()
                              : to_input ? slices.image()
                                         : slices.filter();
    MR_TRY_ASSIGN(Tensor term, ctx.allocate_temp(dtype_of<C>, Shape{term_size}));
    const auto data = [](const Tensor& t) { return t.valid() ? t.data<C>().data() : nullptr; };
    MR_TRY(multiply(ctx, product_, slices, data(volume_tensor), data(filter_tensor),
                    data(dy_tensor), result.mutable_data<C>().data(), shape.num_elements(),
                    term.mutable_data<C>().data()));
    if (transposes) {
      transpose_images(ctx, shape[0], shape[2] * shape[3] * shape[4], shape[1],
                       result.data<C>().data(), out->mutable_data<T>().data());
    } else {
      finish_output<T>(ctx, result, *out);
    }
    return ok_status();
  }

 private:
  Conv3D::Spec spec_;
  Product product_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &Conv3DKernel<Ts>::template make<kProduct>}),
   ...);
}

}  // namespace

void register_conv3d(Registry& registry) {
  Conv3D::add_ops(
      registry,
      {.forward = "Three-dimensional convolution (cross-correlation) of volumes with a filter "
                  "[depth, height, width, in channels, out channels].",
       .backward_input = "The gradient of Conv3D with respect to its input, of shape input_sizes.",
       .backward_filter = "The gradient of Conv3D with respect to its filter, of shape "
                          "filter_sizes."});
  Conv3D::for_each_product([&]<Product kProduct>(const char* op) {
    register_kernels<kProduct>(registry, op, FloatingTypes());
  });
}

}  // namespace millrace
