#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/reduce/reduce.h"

// BiasAdd, its older twin, and the sum that is their gradient. The bias runs along the channels:
// the last dimension, or dimension 1 for NCHW.

namespace millrace {
namespace {

Result<bool> channels_first(const AttrMap& attrs) {
  const AttrValue* format = attrs.find("data_format");
  if (format == nullptr || *format == AttrValue("NHWC")) return false;
  if (*format == AttrValue("NCHW")) return true;
  return invalid_argument("data_format must be NHWC or NCHW, got ", *format);
}

// Channels in second place need a rank of 3, else the last dimension is meant.
int channel_dim(int rank, bool nchw) { return nchw && rank >= 3 ? 1 : rank - 1; }

Status bias_add_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool nchw, channels_first(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape bias, c.with_rank(1, 1));
  MR_TRY_ASSIGN(PartialShape value, c.with_rank_at_least(0, 2));
  if (value.rank_known()) {
    const int channel = channel_dim(value.rank(), nchw);
    if (value.dim_known(channel) && bias.dim_known(0) && value.dim(channel) != bias.dim(0)) {
      return invalid_argument("bias must have ", value.dim(channel), " elements for a value of ",
                              value, ", got ", bias);
    }
    if (!value.dim_known(channel)) value.set_dim(channel, bias.dim(0));
  }
  c.set_output(0, std::move(value));
  return ok_status();
}

Status bias_add_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool nchw, channels_first(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape value, c.with_rank_at_least(0, 2));
  c.set_output(0, {value.rank_known() ? value.dim(channel_dim(value.rank(), nchw)) : -1});
  return ok_status();
}

Status bias_add_grad(GradientContext& c) {
  c.set(0, c.gradient());
  c.set(1, call("BiasAddGrad", {c.gradient()}, {{"data_format", c.attr_value("data_format")}}));
  return ok_status();
}

Status bias_add_v1_grad(GradientContext& c) {
  c.set(0, c.gradient());
  c.set(1, call("BiasAddGrad", {c.gradient()}));
  return ok_status();
}

// The sum over all but the channels: its gradient is the same for every element of a channel.
Status bias_add_grad_grad(GradientContext& c) {
  const Expr value = zeros_like(c.input(0));
  c.set(0, call("BiasAdd", {value, c.gradient()}, {{"data_format", c.attr_value("data_format")}}));
  return ok_status();
}

// A tensor seen as [outer, channels, inner].
struct BiasGeometry {
  int64_t outer = 1, channels = 1, inner = 1;
};

Result<BiasGeometry> bias_geometry(const Shape& value, bool nchw) {
  if (value.rank() < 2) return invalid_argument("value must have rank 2 or more, got ", value);
  const int channel = channel_dim(value.rank(), nchw);
  BiasGeometry g;
  g.channels = value[channel];
  if (value.num_elements() == 0) {
    g.outer = 0;
    return g;
  }
  for (int i = 0; i < value.rank(); ++i)
    (i < channel ? g.outer : g.inner) *= i == channel ? 1 : value[i];
  return g;
}

class BiasAddKernel final : public Kernel {
 public:
  BiasAddKernel(bool nchw, BinaryFunction add) : nchw_(nchw), add_(add) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool nchw, channels_first(node.attrs));
    const BinaryFunction add(Add::info, base_type(node.input_types[0]));
    return std::unique_ptr<Kernel>(std::make_unique<BiasAddKernel>(nchw, add));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 1, 1));
    const Shape shape = ctx.input(0).shape();
    MR_TRY_ASSIGN(const BiasGeometry g, bias_geometry(shape, nchw_));
    if (ctx.input(1).dim(0) != g.channels) {
      return invalid_argument("bias must have ", g.channels, " elements for a value of ", shape,
                              ", got ", ctx.input(1).shape());
    }
    const char* const value = static_cast<const char*>(ctx.input(0).raw());
    const void* const bias = ctx.input(1).raw();
    MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
    if (g.outer == 0) return ok_status();
    if (DeviceEngine* const device = device_engine(ctx)) {
      const Shape all{g.outer, g.channels, g.inner}, channels{g.channels, 1};
      return device->binary(ctx, Add::info.name, out->dtype(), {value, &all}, {bias, &channels},
                            out->mutable_raw(), all);
    }
    char* const to = static_cast<char*>(out->mutable_raw());
    const auto size = static_cast<int64_t>(dtype_size(out->dtype()));
    const int64_t row = g.channels * g.inner;
    const double cost = static_cast<double>(row) * 0.3;
    if (g.inner == 1 && g.channels >= kDirectRun) {
      ctx.parallel_for(g.outer, cost, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin * row * size; at < end * row * size; at += row * size) {
          add_(value + at, bias, to + at, row);
        }
      });
      return ok_status();
    }
    const Shape all{g.outer, g.channels, g.inner}, channels{g.channels, 1};
    MR_TRY_ASSIGN(const BroadcastPlan plan, BroadcastPlan::make({&all, &channels}));
    ctx.parallel_for(g.outer, cost, [&](int64_t begin, int64_t end) {
      broadcast_range(plan, add_, value, bias, static_cast<size_t>(size), to,
                      static_cast<size_t>(size), begin * row, end * row);
    });
    return ok_status();
  }

 private:
  const bool nchw_;
  const BinaryFunction add_;
};

class BiasAddGradKernel final : public Kernel {
 public:
  explicit BiasAddGradKernel(bool nchw) : nchw_(nchw) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool nchw, channels_first(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<BiasAddGradKernel>(nchw));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const BiasGeometry g, bias_geometry(ctx.input(0).shape(), nchw_));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{g.channels}));
    ReduceDims dims;
    dims.add(g.outer, true);
    dims.add(g.channels, false);
    dims.add(g.inner, true);
    return sum_tensor(ctx, ctx.input(0), dims, *out);
  }

 private:
  const bool nchw_;
};

}  // namespace

void register_bias_add(Registry& registry) {
  registry.add({.name = "BiasAdd",
                .doc = "Adds a vector along the channels of value.",
                .inputs = {{"value", "T"}, {"bias", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}},
                .attrs = {{"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"}},
                .traits = {.may_alias = 1,
                           .cost = 0.5,
                           .fused_by = "_FusedElementwise",
                           .affine_in = 1,
                           .shifted_by = 2,
                           .image_inputs = 1,
                           .image_outputs = 1},
                .shape = bias_add_shape,
                .gradient = bias_add_grad});
  registry.add({.name = "BiasAddV1",
                .doc = "Adds a vector along the last dimension of value.",
                .inputs = {{"value", "T"}, {"bias", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}},
                .traits = {.may_alias = 1,
                           .cost = 0.5,
                           .fused_by = "_FusedElementwise",
                           .affine_in = 1,
                           .shifted_by = 2},
                .shape = bias_add_shape,
                .gradient = bias_add_v1_grad});
  registry.add({.name = "BiasAddGrad",
                .doc = "The sum over all dimensions but the channels.",
                .inputs = {{"out_backprop", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}},
                .attrs = {{"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"}},
                .traits = {.cost = 50, .image_inputs = 1},
                .shape = bias_add_grad_shape,
                .gradient = bias_add_grad_grad});
  const auto kernel = [&](const char* op, KernelFactory factory) {
    registry.kernel({.op = op, .constraints = {{"T", kNumbers}}, .factory = factory});
  };
  kernel("BiasAdd", BiasAddKernel::make);
  kernel("BiasAddV1", BiasAddKernel::make);
  kernel("BiasAddGrad", BiasAddGradKernel::make);
}

}  // namespace millrace
