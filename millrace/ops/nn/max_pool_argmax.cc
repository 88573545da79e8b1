#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/tensor/dispatch.h"

// MaxPoolWithArgmax, which also says where in its image (or in the whole batch) each largest
// element is, and the gradients that use it.

namespace millrace {
namespace {

std::vector<OpSpec::Attr> argmax_attrs() {
  return {{"ksize", "list(int) >= 4"},
          {"strides", "list(int) >= 4"},
          {"padding", "string in {'SAME','VALID'}"},
          {"include_batch_in_index", "bool = false"}};
}

AttrMap argmax_attrs(const GradientContext& c) {
  AttrMap attrs;
  for (const OpSpec::Attr& attr : argmax_attrs()) attrs.set(attr.name, c.attr_value(attr.name));
  return attrs;
}

Result<PartialShape> pooled(const ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<2> spec, read_pool_spec<2>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  return partial_output_shape(spec, input, input.dim(3));
}

Status argmax_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape out, pooled(c));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, out);
  return ok_status();
}

Status argmax_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape out, pooled(c));
  for (int i = 1; i < 3; ++i) MR_TRY(out.merge(c.input(i)).status());
  MR_TRY_ASSIGN(PartialShape input, c.with_rank(0, 4));
  c.set_output(0, std::move(input));
  return ok_status();
}

Status argmax_grad_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape out, pooled(c));
  MR_TRY(c.input(0).merge(c.input(1)).status());
  MR_TRY_ASSIGN(PartialShape known, out.merge(c.input(2)));
  c.set_output(0, std::move(known));
  return ok_status();
}

Status argmax_grad(GradientContext& c) {
  if (!c.has_gradient(0)) return ok_status();
  c.set(0,
        call("MaxPoolGradWithArgmax", {c.input(0), c.gradient(0), c.output(1)}, argmax_attrs(c)));
  return ok_status();
}
// Linear in grad; the input says the shape alone.
Status argmax_grad_of(GradientContext& c, const char* op) {
  c.set(1, call(op, {c.input(0), c.gradient(), c.input(2)}, argmax_attrs(c)));
  return ok_status();
}
Status argmax_grad_grad(GradientContext& c) {
  return argmax_grad_of(c, "MaxPoolGradGradWithArgmax");
}
Status argmax_grad_grad_grad(GradientContext& c) {
  return argmax_grad_of(c, "MaxPoolGradWithArgmax");
}

// NaN is the largest.
template <class T>
bool larger(T a, T b) {
  const auto x = static_cast<ComputeType<T>>(a), y = static_cast<ComputeType<T>>(b);
  return x > y || (x != x && y == y);
}

enum class Kind : uint8_t { kPool, kGrad, kGradGrad };

template <class T, class Index, Kind kKind>
class ArgmaxKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<ArgmaxKernel>();
    MR_TRY_ASSIGN(kernel->spec_, read_pool_spec<2>(node.attrs));
    MR_TRY_ASSIGN(kernel->whole_batch_, node.attr<bool>("include_batch_in_index"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const PoolGeometry<2> g, pool_geometry(spec_, input.shape()));
    if (input.num_elements() > std::numeric_limits<Index>::max()) {
      return invalid_argument("an input of ", input.num_elements(), " elements needs int64 argmax");
    }
    if constexpr (kKind == Kind::kPool) {
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
      MR_TRY_ASSIGN(Tensor * argmax, ctx.allocate_output(1, g.output));
      pool(ctx, g, input.data<T>().data(), out->mutable_data<T>().data(),
           argmax->mutable_data<Index>().data());
      return ok_status();
    } else {
      const bool to_input = kKind == Kind::kGrad;
      const Tensor &grad = ctx.input(1), &argmax = ctx.input(2);
      const Shape& expected = to_input ? g.output : input.shape();
      if (!(grad.shape() == expected)) {
        return invalid_argument("grad must have shape ", expected, ", got ", grad.shape());
      }
      if (!(argmax.shape() == g.output)) {
        return invalid_argument("argmax must have shape ", g.output, ", got ", argmax.shape());
      }
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, to_input ? input.shape() : g.output));
      MR_TRY_ASSIGN(Tensor moved, compute_buffer<T>(ctx, *out));
      MR_TRY(move(g, input.num_elements(), grad.data<T>().data(), argmax.data<Index>().data(),
                  moved.mutable_data<ComputeType<T>>().data()));
      finish_output<T>(ctx, moved, *out);
      return ok_status();
    }
  }

 private:
  void pool(KernelContext& ctx, const PoolGeometry<2>& g, const T* in, T* out,
            Index* argmax) const {
    g.for_each_output(ctx, [&](int64_t n, const auto& place, int64_t at) {
      const int64_t image = n * g.image_size();
      for (int64_t c = 0; c < g.channels; ++c) {
        int64_t best = -1;
        g.for_each_in_window(place, [&](int64_t offset) {
          if (best < 0 || larger(in[image + offset + c], in[image + best])) best = offset + c;
        });
        out[at + c] = best < 0 ? T{} : in[image + best];
        argmax[at + c] = static_cast<Index>(best < 0 ? 0 : best + (whole_batch_ ? image : 0));
      }
    });
  }

  // Adds every element of grad where it came from, or takes it from there. Windows overlap, so this
  // is one loop.
  Status move(const PoolGeometry<2>& g, int64_t input_size, const T* grad, const Index* argmax,
              ComputeType<T>* out) const {
    using C = ComputeType<T>;
    const int64_t size = g.output.num_elements();
    if constexpr (kKind == Kind::kGrad) std::fill_n(out, input_size, C{});
    const int64_t per_image = size == 0 ? 1 : size / g.output[0];
    const int64_t limit = whole_batch_ ? input_size : g.image_size();
    for (int64_t i = 0; i < size; ++i) {
      const int64_t index = static_cast<int64_t>(argmax[i]);
      if (index < 0 || index >= limit) {
        return invalid_argument("argmax must be in [0, ", limit, "), got ", index);
      }
      const int64_t at = index + (whole_batch_ ? 0 : i / per_image * g.image_size());
      if constexpr (kKind == Kind::kGrad) {
        out[at] = wrapping_add(out[at], static_cast<C>(grad[i]));
      } else {
        out[i] = static_cast<C>(grad[at]);
      }
    }
    return ok_status();
  }

  WindowSpec<2> spec_;
  bool whole_batch_ = false;
};

template <class Index, class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  const auto add = [&](const char* op, DType type, KernelFactory factory) {
    registry.kernel({.op = op,
                     .constraints = {{"T", {type}}, {"Targmax", {dtype_of<Index>}}},
                     .factory = factory});
  };
  (add("MaxPoolWithArgmax", dtype_of<Ts>, &ArgmaxKernel<Ts, Index, Kind::kPool>::make), ...);
  (add("MaxPoolGradWithArgmax", dtype_of<Ts>, &ArgmaxKernel<Ts, Index, Kind::kGrad>::make), ...);
  (add("MaxPoolGradGradWithArgmax", dtype_of<Ts>, &ArgmaxKernel<Ts, Index, Kind::kGradGrad>::make),
   ...);
}

}  // namespace

void register_max_pool_argmax(Registry& registry) {
  const TypeSet index_types = {DType::kInt32, DType::kInt64};
  registry.add({.name = "MaxPoolWithArgmax",
                .doc = "The largest element of every window, and where it is: "
                       "(y * width + x) * channels + channel.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}, {"argmax", "Targmax"}},
                .types = {{"Targmax", index_types, DType::kInt64}, {"T", kRealNumbers}},
                .attrs = argmax_attrs(),
                .traits = {.cost = 8},
                .shape = argmax_shape,
                .gradient = argmax_grad});
  registry.add({.name = "MaxPoolGradWithArgmax",
                .doc = "The gradient of MaxPoolWithArgmax: grad where argmax says.",
                .inputs = {{"input", "T"}, {"grad", "T"}, {"argmax", "Targmax"}},
                .outputs = {{"output", "T"}},
                .types = {{"Targmax", index_types}, {"T", kRealNumbers}},
                .attrs = argmax_attrs(),
                .traits = {.cost = 1},
                .shape = argmax_grad_shape,
                .gradient = argmax_grad_grad});
  registry.add({.name = "MaxPoolGradGradWithArgmax",
                .doc = "The gradient of MaxPoolGradWithArgmax: the elements of grad where argmax "
                       "says.",
                .inputs = {{"input", "T"}, {"grad", "T"}, {"argmax", "Targmax"}},
                .outputs = {{"output", "T"}},
                .types = {{"Targmax", index_types}, {"T", kRealNumbers}},
                .attrs = argmax_attrs(),
                .traits = {.cost = 1},
                .shape = argmax_grad_grad_shape,
                .gradient = argmax_grad_grad_grad});
  register_kernels<int32_t>(registry, RealTypes());
  register_kernels<int64_t>(registry, RealTypes());
}

}  // namespace millrace
