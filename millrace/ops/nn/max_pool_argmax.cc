#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/ops/reduce/segments.h"
#include "millrace/ops/rows.h"
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

class ArgmaxKernel : public Kernel {
 public:
  template <class Derived>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<Derived>();
    MR_TRY_ASSIGN(kernel->spec_, read_pool_spec<2>(node.attrs));
    MR_TRY_ASSIGN(kernel->whole_batch_, node.attr<bool>("include_batch_in_index"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 protected:
  // INVALID_ARGUMENT too where a place in the input is too large a number for `index_type`.
  Result<PoolGeometry<2>> geometry(const Shape& input, DType index_type) const {
    MR_TRY_ASSIGN(PoolGeometry<2> g, pool_geometry(spec_, input));
    if (index_type == DType::kInt32 && input.num_elements() > std::numeric_limits<int32_t>::max()) {
      return invalid_argument("an input of ", input.num_elements(), " elements needs int64 argmax");
    }
    return g;
  }

  WindowSpec<2> spec_;
  bool whole_batch_ = false;
};

class ArgmaxPool final : public ArgmaxKernel {
 public:
  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    MR_TRY_ASSIGN(const PoolGeometry<2> g, geometry(input.shape(), ctx.output_type(1)));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
    MR_TRY_ASSIGN(Tensor * argmax, ctx.allocate_output(1, g.output));
    const bool narrow = argmax->dtype() == DType::kInt32;
    Tensor places = *argmax;
    if (narrow) {
      MR_TRY_ASSIGN(places, ctx.allocate_temp(DType::kInt64, g.output));
    }
    const std::span<int64_t> place = places.mutable_data<int64_t>();
    MR_TRY(dispatch<RealTypes>(input.dtype(), [&]<class T>() {
      pool(ctx, g, input.data<T>().data(), out->mutable_data<T>().data(), place.data());
    }));
    if (narrow) {
      std::ranges::transform(place, argmax->mutable_data<int32_t>().begin(),
                             [](int64_t i) { return static_cast<int32_t>(i); });
    }
    return ok_status();
  }

 private:
  template <class T>
  void pool(KernelContext& ctx, const PoolGeometry<2>& g, const T* in, T* out,
            int64_t* argmax) const {
    g.for_each_output(ctx, [&](int64_t n, const auto& place, int64_t at) {
      const int64_t image = n * g.image_size();
      for (int64_t c = 0; c < g.channels; ++c) {
        int64_t best = -1;
        g.for_each_in_window(place, [&](int64_t offset) {
          if (best < 0 || larger(in[image + offset + c], in[image + best])) best = offset + c;
        });
        out[at + c] = best < 0 ? T{} : in[image + best];
        argmax[at + c] = best < 0 ? 0 : best + (whole_batch_ ? image : 0);
      }
    });
  }
};

// Adds every element of grad where it came from, or, for the gradient of that, takes it from there.
template <bool kGradGrad>
class ArgmaxGrad final : public ArgmaxKernel {
 public:
  Status compute(KernelContext& ctx) const override {
    const Shape& input = ctx.input(0).shape();
    const Tensor &grad = ctx.input(1), &argmax = ctx.input(2);
    MR_TRY_ASSIGN(const PoolGeometry<2> g, geometry(input, argmax.dtype()));
    const Shape& expected = kGradGrad ? input : g.output;
    if (!(grad.shape() == expected)) {
      return invalid_argument("grad must have shape ", expected, ", got ", grad.shape());
    }
    if (!(argmax.shape() == g.output)) {
      return invalid_argument("argmax must have shape ", g.output, ", got ", argmax.shape());
    }
    MR_TRY_ASSIGN(const Tensor places, read_places(ctx, g, input.num_elements()));
    const std::span<const int64_t> from = places.data<int64_t>();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, kGradGrad ? g.output : input));
    if constexpr (kGradGrad) {
      const int64_t* place = from.data();
      gather_rows(ctx, grad, out->num_elements(), 1, [place](int64_t i) { return place[i]; }, *out);
      return ok_status();
    } else {
      return sum_rows(ctx, grad, {.to = from}, 1, *out);
    }
  }

 private:
  // Where in the whole input each element of the output came from.
  Result<Tensor> read_places(KernelContext& ctx, const PoolGeometry<2>& g,
                             int64_t input_size) const {
    MR_TRY_ASSIGN(const Indices argmax, Indices::read(ctx, ctx.input(2)));
    MR_TRY_ASSIGN(Tensor places, ctx.allocate_temp(DType::kInt64, argmax.shape()));
    int64_t* const place = places.mutable_data<int64_t>().data();
    const int64_t limit = whole_batch_ ? input_size : g.image_size();
    const int64_t per_image = argmax.size() == 0 ? 1 : argmax.size() / g.output[0];
    for (int64_t i = 0; i < argmax.size(); ++i) {
      if (argmax[i] < 0 || argmax[i] >= limit) {
        return invalid_argument("argmax must be in [0, ", limit, "), got ", argmax[i]);
      }
      place[i] = argmax[i] + (whole_batch_ ? 0 : i / per_image * g.image_size());
    }
    return places;
  }
};

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
  const auto kernel = [&](const char* op, KernelFactory factory) {
    registry.kernel({.op = op,
                     .constraints = {{"T", kRealNumbers}, {"Targmax", index_types}},
                     .factory = factory});
  };
  kernel("MaxPoolWithArgmax", ArgmaxKernel::make<ArgmaxPool>);
  kernel("MaxPoolGradWithArgmax", ArgmaxKernel::make<ArgmaxGrad<false>>);
  kernel("MaxPoolGradGradWithArgmax", ArgmaxKernel::make<ArgmaxGrad<true>>);
}

}  // namespace millrace
