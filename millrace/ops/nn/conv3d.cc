#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/nn/conv_gemm.h"
#include "millrace/ops/nn/convolution_gradients.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/ops/nn/transpose_images.h"
#include "millrace/ops/nn/volume_geometry.h"
#include "millrace/tensor/dispatch.h"

// Conv3D and its two gradients: sums of convolutions of slices, [height, width], over the depth of
// the filter. Filters are [depth, height, width, in channels, out channels].

namespace millrace {
namespace {

Status check_channels(int64_t input, int64_t filter) {
  if (input < 0 || filter < 0 || input == filter) return ok_status();
  return invalid_argument("the input has ", input, " channels, the filter expects ", filter);
}

Status conv3d_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(VolumeSpec spec, read_volume_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 5));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 5));
  MR_TRY(check_channels(input.dim(spec.channel_dim()), filter.dim(3)));
  for (int a = 0; a < 3; ++a) spec.axes[static_cast<size_t>(a)].window = filter.dim(a);
  MR_TRY_ASSIGN(PartialShape out, partial_volume_shape(spec, input, filter.dim(4)));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status conv3d_backprop_input_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const VolumeSpec spec, read_volume_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(0));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 5));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, 5));
  PartialShape out = PartialShape::of_rank(5);
  out.set_dim(0, gradient.dim(0));
  out.set_dim(spec.channel_dim(), filter.dim(3));
  MR_TRY_ASSIGN(out, out.merge(sizes));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status conv3d_backprop_filter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const VolumeSpec spec, read_volume_conv_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 5));
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(1));
  MR_TRY_ASSIGN(const PartialShape gradient, c.with_rank(2, 5));
  MR_TRY_ASSIGN(PartialShape out, PartialShape({-1, -1, -1, input.dim(spec.channel_dim()),
                                                gradient.dim(spec.channel_dim())})
                                      .merge(sizes));
  c.set_output(0, std::move(out));
  return ok_status();
}

std::vector<OpSpec::Attr> conv_attr_specs() {
  return {{"strides", "list(int) >= 5"},
          {"padding", "string in {'SAME','VALID'}"},
          {"data_format", "string = 'NDHWC' in {'NDHWC','NCDHW'}"},
          {"dilations", "list(int) = [1,1,1,1,1]"}};
}

struct Family {
  static constexpr const char* kForward = "Conv3D";
  static constexpr const char* kBackwardInput = "Conv3DBackpropInputV2";
  static constexpr const char* kBackwardFilter = "Conv3DBackpropFilterV2";
  static constexpr const char* kAttrs[] = {"strides", "padding", "data_format", "dilations"};
};
using Gradients = ConvolutionGradients<Family>;

// One slice, and how slices follow each other.
struct Slices {
  AxisGeometry depth;
  ConvGeometry slice;  // batch 1
  int64_t batch = 0;

  int64_t image() const { return slice.height.input * slice.width.input * slice.in_channels; }
  int64_t output() const { return slice.height.output * slice.width.output * slice.out_channels; }
  int64_t filter() const {
    return slice.height.window * slice.width.window * slice.in_channels * slice.out_channels;
  }
};

// The one check of the shapes; `gradient` (may be null) is that of the output, which is returned.
Result<Shape> conv_slices(VolumeSpec spec, const Shape& volume, const Shape& filter,
                          const Shape* gradient, Slices& slices) {
  if (volume.rank() != 5 || filter.rank() != 5) {
    return invalid_argument("input and filter must have rank 5, got ", volume, " and ", filter);
  }
  MR_TRY(check_channels(volume[spec.channel_dim()], filter[3]));
  for (int a = 0; a < 3; ++a) spec.axes[static_cast<size_t>(a)].window = filter[a];
  MR_TRY_ASSIGN(const VolumeGeometry axes, volume_geometry(spec, volume));
  slices.batch = volume[0];
  slices.depth = axes[0];
  slices.slice = {1, axes[1], axes[2], filter[3], filter[4]};
  MR_TRY_ASSIGN(const Shape expected, volume_shape(spec, volume[0], axes, filter[4]));
  if (gradient != nullptr && !(*gradient == expected)) {
    return invalid_argument("out_backprop must have shape ", expected, " for an input of ", volume,
                            " and a filter of ", filter, ", got ", *gradient);
  }
  return expected;
}

enum class Product : uint8_t { kForward, kBackwardInput, kBackwardFilter };

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
  Conv3DKernel(const VolumeSpec& spec, Product product) : spec_(spec), product_(product) {}

  template <Product kProduct>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const VolumeSpec spec, read_volume_conv_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<Conv3DKernel>(spec, kProduct));
  }

  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const bool forward = product_ == Product::kForward;
    const bool to_input = product_ == Product::kBackwardInput;
    const bool to_filter = product_ == Product::kBackwardFilter;
    Shape volume = ctx.input(0).shape(), filter = ctx.input(1).shape();
    if (to_input) {
      MR_TRY_ASSIGN(volume, ctx.shape_input(0));
    }
    if (to_filter) {
      MR_TRY_ASSIGN(filter, ctx.shape_input(1));
    }
    Slices slices;
    const Shape* const gradient = forward ? nullptr : &ctx.input(2).shape();
    MR_TRY_ASSIGN(const Shape output, conv_slices(spec_, volume, filter, gradient, slices));
    const Shape& shape = forward ? output : to_input ? volume : filter;
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    if (volume.num_elements() == 0 || filter.num_elements() == 0 || output.num_elements() == 0) {
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
  VolumeSpec spec_;
  Product product_;
};

template <Product kProduct, class... Ts>
void register_kernels(Registry& registry, const char* op, const std::vector<int>& host_inputs,
                      TypeList<Ts...>) {
  (registry.kernel({.op = op,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &Conv3DKernel<Ts>::template make<kProduct>,
                    .host_inputs = host_inputs}),
   ...);
}

}  // namespace

void register_conv3d(Registry& registry) {
  registry.add({.name = "Conv3D",
                .doc = "Three-dimensional convolution (cross-correlation) of volumes with a filter "
                       "[depth, height, width, in channels, out channels].",
                .inputs = {{"input", "T"}, {"filter", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 100},
                .shape = conv3d_shape,
                .gradient = Gradients::of_forward});
  registry.add(
      {.name = "Conv3DBackpropInputV2",
       .doc = "The gradient of Conv3D with respect to its input, of shape input_sizes.",
       .inputs = {{"input_sizes", "Tshape"}, {"filter", "T"}, {"out_backprop", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", kFloating}, {"Tshape", {DType::kInt32, DType::kInt64}, DType::kInt32}},
       .attrs = conv_attr_specs(),
       .traits = {.cost = 100},
       .shape = conv3d_backprop_input_shape,
       .gradient = Gradients::of_backward_input});
  registry.add({.name = "Conv3DBackpropFilterV2",
                .doc = "The gradient of Conv3D with respect to its filter, of shape filter_sizes.",
                .inputs = {{"input", "T"}, {"filter_sizes", "int32"}, {"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = conv_attr_specs(),
                .traits = {.cost = 1000},
                .shape = conv3d_backprop_filter_shape,
                .gradient = Gradients::of_backward_filter});
  register_kernels<Product::kForward>(registry, "Conv3D", {}, FloatingTypes());
  register_kernels<Product::kBackwardInput>(registry, "Conv3DBackpropInputV2", {0},
                                            FloatingTypes());
  register_kernels<Product::kBackwardFilter>(registry, "Conv3DBackpropFilterV2", {1},
                                             FloatingTypes());
}

}  // namespace millrace
