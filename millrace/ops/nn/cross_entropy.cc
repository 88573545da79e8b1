#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/unread_outputs.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// Cross entropy of softmax(features) and labels: one loss per row, and the loss's gradient with
// respect to the features, softmax(features) - labels, as a second output.

namespace millrace {
namespace {

Status cross_entropy_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape features, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape labels, c.with_rank(1, 2));
  Result<PartialShape> both = features.merge(labels);
  if (!both.ok()) {
    return invalid_argument("features and labels must have the same shape, got ", features, " and ",
                            labels);
  }
  c.set_output(0, {both->dim(0)});
  c.set_output(1, *both);
  return ok_status();
}

Status sparse_cross_entropy_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape features, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape labels, c.with_rank(1, 1));
  if (features.dim_known(0) && labels.dim_known(0) && features.dim(0) != labels.dim(0)) {
    return invalid_argument("there must be one label per row of features, got ", labels, " for ",
                            features);
  }
  if (!features.dim_known(0)) features.set_dim(0, labels.dim(0));
  c.set_output(0, {features.dim(0)});
  c.set_output(1, std::move(features));
  return ok_status();
}

// What comes back to the features through both outputs: the loss's gradient times the second
// output, and through the second output (when differentiated twice) the Jacobian of softmax.
Expr features_gradient(GradientContext& c) {
  Expr result;
  if (c.has_gradient(0) || !c.has_gradient(1)) {
    const Expr column = expand_dims(c.gradient(0), int32_scalar(c.builder(), -1));
    result = column * c.output(1);
  }
  if (c.has_gradient(1)) {
    const Expr y = call("Softmax", {c.input(0)}), g = c.gradient(1);
    const Expr through = (g - sum(g * y, int32_vector(c.builder(), {1}), true)) * y;
    result = result.valid() ? result + through : through;
  }
  return result;
}

Status cross_entropy_grad(GradientContext& c) {
  c.set(0, features_gradient(c));
  const Expr column = expand_dims(c.gradient(0), int32_scalar(c.builder(), -1));
  Expr labels = -(column * call("LogSoftmax", {c.input(0)}));
  if (c.has_gradient(1)) labels = labels - c.gradient(1);
  c.set(1, labels);
  return ok_status();
}

Status sparse_cross_entropy_grad(GradientContext& c) {
  c.set(0, features_gradient(c));
  return ok_status();
}

// Whether the gradient is read: where only losses are asked for it is not.
bool wants_backprop(const KernelContext& ctx) {
  const AttrValue* const unread = ctx.node().attrs.find(kUnreadOutputsAttr);
  const int64_t* const bits = unread == nullptr ? nullptr : unread->get<int64_t>();
  return bits == nullptr || (*bits & 2) == 0;
}

// Allocates the outputs and calls range(x, i, rows, y, losses), which writes the losses and the
// gradient y, where that is not null, of `rows` rows x of the features, from row i on, for all of
// them. `wanted`: there is a gradient.
template <class T, class Range>
Status for_each_range(KernelContext& ctx, bool wanted, const Range& range) {
  using C = ComputeType<T>;
  const Shape shape = ctx.input(0).shape();
  MR_TRY_ASSIGN(const Tensor features, as_compute_type<T>(ctx, ctx.input(0)));
  MR_TRY_ASSIGN(Tensor * loss, ctx.allocate_output(0, Shape{shape[0]}));
  MR_TRY_ASSIGN(Tensor * backprop, ctx.allocate_output(1, wanted ? shape : Shape{0, shape[1]}));
  MR_TRY_ASSIGN(Tensor gradient, compute_buffer<T>(ctx, *backprop));
  MR_TRY_ASSIGN(Tensor sums, compute_buffer<T>(ctx, *loss));
  const int64_t n = shape[1];
  const C* const x = features.data<C>().data();
  C* const y = wanted ? gradient.mutable_data<C>().data() : nullptr;
  C* const losses = sums.mutable_data<C>().data();
  ctx.parallel_for(shape[0], 4 + 2 * static_cast<double>(n), [&](int64_t begin, int64_t end) {
    range(x + begin * n, begin, end - begin, y == nullptr ? y : y + begin * n, losses + begin);
  });
  finish_output<T>(ctx, gradient, *backprop);
  finish_output<T>(ctx, sums, *loss);
  return ok_status();
}

// Both kinds of labels where kernels enqueue.
Status cross_entropy_on_device(KernelContext& ctx, DeviceEngine& device) {
  const Tensor &features = ctx.input(0), &labels = ctx.input(1);
  MR_TRY_ASSIGN(Tensor * loss, ctx.allocate_output(0, Shape{features.dim(0)}));
  MR_TRY_ASSIGN(Tensor * backprop, ctx.allocate_output(1, features.shape()));
  return device.cross_entropy(ctx, features.dtype(), labels.dtype(), features.raw(), labels.raw(),
                              features.dim(0), features.dim(1), loss->mutable_raw(),
                              backprop->mutable_raw());
}

template <class T>
Status cross_entropy(KernelContext& ctx) {
  using C = ComputeType<T>;
  MR_TRY(expect_rank(ctx, 0, 2));
  MR_TRY(expect_same_shape(ctx, 0, 1));
  if (DeviceEngine* const device = device_engine(ctx)) return cross_entropy_on_device(ctx, *device);
  MR_TRY_ASSIGN(const Tensor labels, as_compute_type<T>(ctx, ctx.input(1)));
  const C* const all_labels = labels.data<C>().data();
  const int64_t n = labels.dim(1);
  const SoftmaxRows<C>& rows = isa_table<SoftmaxRows<C>>();
  const auto range = [&](const C* x, int64_t i, int64_t count, C* y, C* losses) {
    rows.cross_entropy(x, all_labels + i * n, count, n, y, losses);
  };
  return for_each_range<T>(ctx, /*wanted=*/true, range);
}

template <class T>
Status sparse_cross_entropy(KernelContext& ctx) {
  using C = ComputeType<T>;
  MR_TRY(expect_rank(ctx, 0, 2));
  const Shape &features = ctx.input(0).shape(), &labels = ctx.input(1).shape();
  if (labels.rank() != 1) return invalid_argument("labels must be 1-D, but got shape ", labels);
  if (features[0] != labels[0]) {
    return invalid_argument("there must be one label per row of features, got ", labels, " for ",
                            features);
  }
  if (DeviceEngine* const device = device_engine(ctx)) return cross_entropy_on_device(ctx, *device);
  const int64_t n = features[1];
  MR_TRY_ASSIGN(const Indices classes, Indices::read(ctx, ctx.input(1)));
  for (int64_t i = 0; i < classes.size(); ++i) {
    if (classes[i] < 0 || classes[i] >= n) {
      return invalid_argument("Received a label value of ", classes[i],
                              " which is outside the valid range of [0, ", n, "), in row ", i);
    }
  }
  const SoftmaxRows<C>& rows = isa_table<SoftmaxRows<C>>();
  const auto range = [&](const C* x, int64_t i, int64_t count, C* y, C* losses) {
    rows.class_cross_entropy(x, classes.span().data() + i, count, n, y, losses);
  };
  return for_each_range<T>(ctx, wants_backprop(ctx), range);
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("SoftmaxCrossEntropyWithLogits", DeviceKind::kCpu, &cross_entropy<Ts>), ...);
  (registry.kernel<Ts>("SparseSoftmaxCrossEntropyWithLogits", DeviceKind::kCpu,
                       &sparse_cross_entropy<Ts>),
   ...);
}

}  // namespace

void register_cross_entropy(Registry& registry) {
  registry.add({.name = "SoftmaxCrossEntropyWithLogits",
                .doc =
                    "Cross entropy of softmax(features) and labels per row, and its gradient with "
                    "respect to the features.",
                .inputs = {{"features", "T"}, {"labels", "T"}},
                .outputs = {{"loss", "T"}, {"backprop", "T"}},
                .types = {{"T", kFloating}},
                .traits = {.cost = 3},
                .shape = cross_entropy_shape,
                .gradient = cross_entropy_grad});
  registry.add(
      {.name = "SparseSoftmaxCrossEntropyWithLogits",
       .doc = "As SoftmaxCrossEntropyWithLogits, with one class number per row for labels.",
       .inputs = {{"features", "T"}, {"labels", "Tlabels"}},
       .outputs = {{"loss", "T"}, {"backprop", "T"}},
       .types = {{"T", kFloating}, {"Tlabels", kIndexTypes, DType::kInt64}},
       .traits = {.cost = 3},
       .shape = sparse_cross_entropy_shape,
       .gradient = sparse_cross_entropy_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
