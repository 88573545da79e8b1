// Making TensorArrays and those of their gradients, their size, their end.

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/tensor_array/tensor_array.h"

namespace millrace {
namespace {

// What ops on the array know of it; see tensor_array_shape().
Status array_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(DType dtype, c.attr<DType>("dtype"));
  MR_TRY_ASSIGN(PartialShape element, c.attr<PartialShape>("element_shape"));
  MR_TRY(c.with_rank(0, 0).status());
  const std::optional<int64_t> size = c.input_scalar(0);
  if (size && *size < 0) return invalid_argument("size must not be negative, got ", *size);
  c.set_output(0, PartialShape::scalar());
  c.set_output(1, PartialShape::scalar());
  c.set_output_resource(0, {{dtype, std::move(element)}});
  return ok_status();
}

Status gradient_array_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY(c.with_rank(1, 0).status());
  c.set_output(0, PartialShape::scalar());
  c.set_output(1, PartialShape::scalar());
  c.set_output_resource(0, c.input_facts(0).resource);
  return ok_status();
}

Status gradient_array_grad(GradientContext& g) {
  g.set(1, g.gradient(1));
  return ok_status();
}

Status size_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  return flow_shape(c);
}

class TensorArrayKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    TensorArray::Options options;
    MR_TRY_ASSIGN(options.dtype, node.attr<DType>("dtype"));
    MR_TRY_ASSIGN(options.element_shape, node.attr<PartialShape>("element_shape"));
    MR_TRY_ASSIGN(options.identical_element_shapes, node.attr<bool>("identical_element_shapes"));
    MR_TRY_ASSIGN(options.dynamic_size, node.attr<bool>("dynamic_size"));
    MR_TRY_ASSIGN(options.clear_after_read, node.attr<bool>("clear_after_read"));
    MR_TRY_ASSIGN(std::string name, node.attr<std::string>("tensor_array_name"));
    return std::make_unique<TensorArrayKernel>(name.empty() ? node.name : name, std::move(options));
  }
  TensorArrayKernel(std::string name, TensorArray::Options options)
      : name_(std::move(name)), options_(std::move(options)) {}

  Status compute(KernelContext& ctx) const override {
    TensorArray::Options options = options_;
    MR_TRY(expect_rank(ctx, 0, 0));
    MR_TRY_ASSIGN(options.size, ctx.int_scalar_input(0));
    if (options.size < 0) {
      return invalid_argument("size must not be negative, got ", options.size);
    }
    const std::string container = ctx.step().container();
    const std::string name = unique_step_name(name_);
    MR_TRY(ctx.resources().create<TensorArray>(container, name,
                                               make_ref<TensorArray>(name, std::move(options))));
    ctx.set_output(0, make_handle(ctx, container, name, TensorArray::kTypeName,
                                  {{options_.dtype, options_.element_shape}}));
    ctx.set_output(1, Tensor::scalar(0.0F));
    return ok_status();
  }

 private:
  const std::string name_;
  const TensorArray::Options options_;
};

class TensorArrayGrad : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string source, node.attr<std::string>("source"));
    return std::make_unique<TensorArrayGrad>(std::move(source));
  }
  explicit TensorArrayGrad(std::string source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_flow(ctx));
    MR_TRY_ASSIGN(HandleName handle, handle_name_input(ctx, 0, TensorArray::kTypeName));
    MR_TRY_ASSIGN(Ref<TensorArray> array,
                  ctx.resources().lookup<TensorArray>(handle.container, handle.name));
    const std::string name = str_cat(handle.name, "@", source_);
    MR_TRY(ctx.resources()
               .lookup_or_create<TensorArray>(handle.container, name,
                                              [&] { return array->make_gradient(name); })
               .status());
    ctx.set_output(0, make_handle(ctx, handle.container, name, TensorArray::kTypeName,
                                  handle.tensor.item<ResourceHandle>().contents));
    ctx.set_output_value(1, ctx.take_input(1));
    return ok_status();
  }

 private:
  const std::string source_;
};

Status array_size(KernelContext& ctx) {
  MR_TRY(expect_flow(ctx));
  MR_TRY_ASSIGN(Ref<TensorArray> array, resource_input<TensorArray>(ctx, 0));
  MR_TRY_ASSIGN(int64_t size, array->size());
  size = std::min<int64_t>(size, std::numeric_limits<int32_t>::max());
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(size)));
  return ok_status();
}

Status close_array(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<TensorArray> array, resource_input<TensorArray>(ctx, 0));
  array->close();
  return ok_status();
}

}  // namespace

void register_arrays(Registry& registry) {
  registry.add(
      {.name = "TensorArrayV3",
       .doc = "An array of tensors that ends with the step. Ops on it are ordered by their flow.",
       .inputs = {{"size", "host(int32)"}},
       .outputs = {{"handle", "resource"}, {"flow", "float"}},
       .types = {{"dtype", {}}},
       .attrs = {{"element_shape", "shape = ?", "What is known of the elements' shape."},
                 {"dynamic_size", "bool = false", "A write past the end makes the array longer."},
                 {"clear_after_read", "bool = true",
                  "An element is freed when it is read, so it can be read once."},
                 {"identical_element_shapes", "bool = false", "All elements have one shape."},
                 {"tensor_array_name", "string = ''", "Part of its name."}},
       .traits = {.stateful = true, .step_state = true, .cannot_differentiate = true},
       .shape = array_shape});
  registry.add({.name = "TensorArrayGradV3",
                .doc = "The array that the gradients of an array's elements are added to.",
                .inputs = {{"handle", "resource"}, {"flow_in", "float"}},
                .outputs = {{"grad_handle", "resource"}, {"flow_out", "float"}},
                .attrs = {{"source", "string", "Tells computations of gradients apart."}},
                .traits = {.stateful = true, .step_state = true, .may_alias = 2},
                .shape = gradient_array_shape,
                .gradient = gradient_array_grad});
  registry.add({.name = "TensorArraySizeV3",
                .doc = "The number of elements.",
                .inputs = {{"handle", "resource"}, {"flow_in", "float"}},
                .outputs = {{"size", "host(int32)"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = size_shape});
  registry.add({.name = "TensorArrayCloseV3",
                .doc = "Frees the elements of an array, which cannot be used afterwards.",
                .inputs = {{"handle", "resource"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = shape_rules::no_outputs});
  registry.kernel<TensorArrayKernel>("TensorArrayV3", DeviceKind::kCpu);
  registry.kernel<TensorArrayGrad>("TensorArrayGradV3", DeviceKind::kCpu);
  registry.kernel("TensorArraySizeV3", DeviceKind::kCpu, array_size);
  registry.kernel("TensorArrayCloseV3", DeviceKind::kCpu, close_array);
}

}  // namespace millrace
