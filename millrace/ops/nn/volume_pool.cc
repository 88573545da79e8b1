#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/volume_geometry.h"
#include "millrace/tensor/dispatch.h"

// MaxPool3D, AvgPool3D and their gradients. As in two dimensions padding does not count, a NaN is
// the largest element, and of equal ones the first is.

namespace millrace {
namespace {

Status pool_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const VolumeSpec spec, read_volume_pool_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 5));
  MR_TRY_ASSIGN(PartialShape out, partial_volume_shape(spec, input, input.dim(spec.channel_dim())));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status max_pool_grad_shape(ShapeContext& c) {
  MR_TRY(read_volume_pool_spec(c.attrs()).status());
  MR_TRY_ASSIGN(PartialShape input, c.with_rank(0, 5));
  MR_TRY(c.with_rank(1, 5).status());
  MR_TRY(c.with_rank(2, 5).status());
  c.set_output(0, std::move(input));
  return ok_status();
}

Status avg_pool_grad_shape(ShapeContext& c) {
  MR_TRY(read_volume_pool_spec(c.attrs()).status());
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(0));
  MR_TRY(c.with_rank(1, 5).status());
  MR_TRY_ASSIGN(PartialShape out, sizes.merge(PartialShape::of_rank(5)));
  c.set_output(0, std::move(out));
  return ok_status();
}

std::vector<OpSpec::Attr> pool_attrs() {
  return {{"ksize", "list(int) >= 5"},
          {"strides", "list(int) >= 5"},
          {"padding", "string in {'SAME','VALID'}"},
          {"data_format", "string = 'NDHWC' in {'NDHWC','NCDHW'}"}};
}

AttrMap pool_attrs(const GradientContext& c) {
  AttrMap attrs;
  for (const OpSpec::Attr& attr : pool_attrs()) attrs.set(attr.name, c.attr_value(attr.name));
  return attrs;
}

Status max_pool_grad(GradientContext& c) {
  c.set(0, call("MaxPool3DGrad", {c.input(0), c.output(0), c.gradient()}, pool_attrs(c)));
  return ok_status();
}
// Both are linear in the last input, and constant almost everywhere in the others.
Status max_pool_grad_of(GradientContext& c, const char* op) {
  c.set(0, zeros_like(c.input(0)));
  c.set(1, zeros_like(c.input(1)));
  c.set(2, call(op, {c.input(0), c.input(1), c.gradient()}, pool_attrs(c)));
  return ok_status();
}
Status max_pool_grad_grad(GradientContext& c) { return max_pool_grad_of(c, "MaxPool3DGradGrad"); }
Status max_pool_grad_grad_grad(GradientContext& c) { return max_pool_grad_of(c, "MaxPool3DGrad"); }
Status avg_pool_grad(GradientContext& c) {
  c.set(0, call("AvgPool3DGrad", {shape_of(c.input(0)), c.gradient()}, pool_attrs(c)));
  return ok_status();
}
Status avg_pool_grad_grad(GradientContext& c) {
  c.set(1, call("AvgPool3D", {c.gradient()}, pool_attrs(c)));
  return ok_status();
}

// A pool with all sizes known, seen as over NDHWC: volumes in NCDHW are batch * channels volumes of
// one channel.
struct Pool {
  int64_t batch = 0, channels = 0;
  VolumeGeometry axes;
  Shape output;  // in the op's layout

  static Result<Pool> make(const VolumeSpec& spec, const Shape& input,
                           const Shape* gradient = nullptr, const char* what = "grad") {
    Pool pool;
    MR_TRY_ASSIGN(pool.axes, volume_geometry(spec, input));
    MR_TRY_ASSIGN(pool.output, volume_shape(spec, input[0], pool.axes, input[spec.channel_dim()]));
    if (gradient != nullptr && !(*gradient == pool.output)) {
      return invalid_argument(what, " must have shape ", pool.output, " for an input of ", input,
                              ", got ", *gradient);
    }
    const bool empty = input.num_elements() == 0;
    pool.batch = empty ? 0 : (spec.channels_last ? input[0] : input[0] * input[1]);
    pool.channels = spec.channels_last ? input[4] : 1;
    return pool;
  }
  int64_t input_size() const { return axes[0].input * axes[1].input * axes[2].input * channels; }
  int64_t output_size() const {
    return axes[0].output * axes[1].output * axes[2].output * channels;
  }
  double cost() const {
    double cost = static_cast<double>(output_size());
    for (const AxisGeometry& axis : axes) {
      cost *= static_cast<double>(std::min(axis.window, axis.input));
    }
    return cost;
  }

  // Calls body(offset in the output, z, y, x) for every pixel of the output of one volume.
  template <class Body>
  void for_each_output(Body body) const {
    int64_t at = 0;
    for (int64_t z = 0; z < axes[0].output; ++z) {
      for (int64_t y = 0; y < axes[1].output; ++y) {
        for (int64_t x = 0; x < axes[2].output; ++x, at += channels) body(at, z, y, x);
      }
    }
  }
  // Calls body(offset in the input) for every pixel of a window, in order.
  template <class Body>
  void for_each_in_window(int64_t oz, int64_t oy, int64_t ox, Body body) const {
    const AxisGeometry &d = axes[0], &h = axes[1], &w = axes[2];
    for (int64_t z = d.first(oz); z < d.last(oz); ++z) {
      for (int64_t y = h.first(oy); y < h.last(oy); ++y) {
        for (int64_t x = w.first(ox); x < w.last(ox); ++x) {
          body((((d.origin(oz) + z) * h.input + h.origin(oy) + y) * w.input + w.origin(ox) + x) *
               channels);
        }
      }
    }
  }
};

template <class T>
bool larger(T a, T b) {
  const auto x = static_cast<ComputeType<T>>(a), y = static_cast<ComputeType<T>>(b);
  return x > y || (x != x && y == y);
}

enum class Kind : uint8_t { kMax, kMaxGrad, kMaxGradGrad, kAvg, kAvgGrad };

template <class T, Kind kKind>
class VolumePoolKernel final : public Kernel {
 public:
  explicit VolumePoolKernel(const VolumeSpec& spec) : spec_(spec) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const VolumeSpec spec, read_volume_pool_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<VolumePoolKernel>(spec));
  }

  Status compute(KernelContext& ctx) const override {
    // What the pool was or is over, and the gradient that comes back.
    constexpr bool kForward = kKind == Kind::kMax || kKind == Kind::kAvg;
    constexpr bool kOfMax = kKind == Kind::kMaxGrad || kKind == Kind::kMaxGradGrad;
    constexpr bool kToInput = kKind == Kind::kMaxGrad || kKind == Kind::kAvgGrad;
    Shape input = ctx.input(0).shape();
    if constexpr (kKind == Kind::kAvgGrad) {
      MR_TRY_ASSIGN(input, ctx.shape_input(0));
    }
    const int last = ctx.num_inputs() - 1;
    const Shape* const gradient = kToInput ? &ctx.input(last).shape() : nullptr;
    if constexpr (kOfMax) {
      MR_TRY(Pool::make(spec_, input, &ctx.input(1).shape(), "orig_output").status());
    }
    MR_TRY_ASSIGN(const Pool pool, Pool::make(spec_, input, gradient));
    if constexpr (kKind == Kind::kMaxGradGrad) MR_TRY(expect_same_shape(ctx, 2, 0));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, kToInput ? input : pool.output));
    if (out->num_elements() == 0) return ok_status();
    if (input.num_elements() == 0 || pool.output.num_elements() == 0) {
      std::fill_n(out->mutable_data<T>().data(), out->num_elements(), T{});
      return ok_status();
    }
    const T* const x = kKind == Kind::kAvgGrad ? nullptr : ctx.input(0).data<T>().data();
    const T* const dy = kForward ? nullptr : ctx.input(last).data<T>().data();
    T* const to = out->mutable_data<T>().data();
    Tensor sums;
    if constexpr (kToInput) {
      MR_TRY_ASSIGN(sums, ctx.allocate_temp(dtype_of<SumType<T>>, out->shape()));
    }
    ctx.parallel_for(pool.batch, pool.cost(), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t in = n * pool.input_size(), result = n * pool.output_size();
        if constexpr (kForward) {
          forward(pool, x + in, to + result);
        } else if constexpr (kKind == Kind::kMaxGradGrad) {
          for_each_largest(pool, x + in, [&](int64_t at_out, int64_t at_in) {
            to[result + at_out] = dy[in + at_in];
          });
        } else {
          SumType<T>* const sum = sums.mutable_data<SumType<T>>().data() + in;
          std::fill_n(sum, pool.input_size(), SumType<T>{});
          backward(pool, kKind == Kind::kAvgGrad ? nullptr : x + in, dy + result, sum);
          for (int64_t i = 0; i < pool.input_size(); ++i) to[in + i] = static_cast<T>(sum[i]);
        }
      }
    });
    return ok_status();
  }

 private:
  static void forward(const Pool& pool, const T* x, T* out) {
    if constexpr (kKind == Kind::kMax) {
      for_each_largest(pool, x, [&](int64_t at_out, int64_t at_in) { out[at_out] = x[at_in]; });
    } else {
      pool.for_each_output([&](int64_t at, int64_t oz, int64_t oy, int64_t ox) {
        for (int64_t c = 0; c < pool.channels; ++c) {
          SumType<T> sum = 0;
          int64_t count = 0;
          pool.for_each_in_window(oz, oy, ox, [&](int64_t offset) {
            sum += static_cast<SumType<T>>(x[offset + c]);
            ++count;
          });
          out[at + c] = static_cast<T>(sum / static_cast<SumType<T>>(count));
        }
      });
    }
  }

  static void backward(const Pool& pool, const T* x, const T* dy, SumType<T>* sum) {
    if constexpr (kKind == Kind::kMaxGrad) {
      for_each_largest(pool, x, [&](int64_t at_out, int64_t at_in) {
        sum[at_in] += static_cast<SumType<T>>(dy[at_out]);
      });
    } else {
      pool.for_each_output([&](int64_t at, int64_t oz, int64_t oy, int64_t ox) {
        int64_t count = 0;
        pool.for_each_in_window(oz, oy, ox, [&](int64_t) { ++count; });
        pool.for_each_in_window(oz, oy, ox, [&](int64_t offset) {
          for (int64_t c = 0; c < pool.channels; ++c) {
            sum[offset + c] += static_cast<SumType<T>>(dy[at + c]) / static_cast<SumType<T>>(count);
          }
        });
      });
    }
  }

  // Calls found(output element, input element) for the largest element of every window.
  template <class Found>
  static void for_each_largest(const Pool& pool, const T* x, Found found) {
    pool.for_each_output([&](int64_t at, int64_t oz, int64_t oy, int64_t ox) {
      for (int64_t c = 0; c < pool.channels; ++c) {
        int64_t best = -1;
        pool.for_each_in_window(oz, oy, ox, [&](int64_t offset) {
          if (best < 0 || larger(x[offset + c], x[best])) best = offset + c;
        });
        if (best >= 0) found(at + c, best);
      }
    });
  }

  VolumeSpec spec_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, VolumePoolKernel<Ts, Kind::kMax>>("MaxPool3D", DeviceKind::kCpu), ...);
  (registry.kernel({.op = "MaxPool3DGrad",
                    .constraints = {{"T", {dtype_of<Ts>}}, {"TInput", {dtype_of<Ts>}}},
                    .factory = &VolumePoolKernel<Ts, Kind::kMaxGrad>::make}),
   ...);
  (registry.kernel<Ts, VolumePoolKernel<Ts, Kind::kMaxGradGrad>>("MaxPool3DGradGrad",
                                                                 DeviceKind::kCpu),
   ...);
  (registry.kernel<Ts, VolumePoolKernel<Ts, Kind::kAvg>>("AvgPool3D", DeviceKind::kCpu), ...);
  (registry.kernel({.op = "AvgPool3DGrad",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &VolumePoolKernel<Ts, Kind::kAvgGrad>::make,
                    .host_inputs = {0}}),
   ...);
}

}  // namespace

void register_volume_pool(Registry& registry) {
  registry.add({.name = "MaxPool3D",
                .doc = "The largest element of every window of a volume.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 8},
                .shape = pool_shape,
                .gradient = max_pool_grad});
  registry.add({.name = "MaxPool3DGrad",
                .doc = "The gradient of MaxPool3D: grad where the largest elements were.",
                .inputs = {{"orig_input", "TInput"}, {"orig_output", "TInput"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating, DType::kFloat}, {"TInput", kFloating, DType::kFloat}},
                .attrs = pool_attrs(),
                .traits = {.cost = 16},
                .shape = max_pool_grad_shape,
                .gradient = max_pool_grad_grad});
  registry.add({.name = "MaxPool3DGradGrad",
                .doc = "The gradient of MaxPool3DGrad: of every window the element of grad where "
                       "the largest element of orig_input is.",
                .inputs = {{"orig_input", "T"}, {"orig_output", "T"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 16},
                .shape = pool_shape,
                .gradient = max_pool_grad_grad_grad});
  registry.add({.name = "AvgPool3D",
                .doc = "The mean of every window of a volume, padding left out.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 8},
                .shape = pool_shape,
                .gradient = avg_pool_grad});
  registry.add({.name = "AvgPool3DGrad",
                .doc = "The gradient of AvgPool3D for an input of shape orig_input_shape.",
                .inputs = {{"orig_input_shape", "int32"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 16},
                .shape = avg_pool_grad_shape,
                .gradient = avg_pool_grad_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
