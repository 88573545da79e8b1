// Variables behind handles: every access is an op, so each read and write has its place in the
// order of a step.

#include <atomic>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// The shared_name with which clients ask for a variable of their own at every run.
constexpr std::string_view kAnonymousName = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";

Status handle_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  MR_TRY_ASSIGN(DType dtype, c.attr<DType>("dtype"));
  c.set_output(0, PartialShape::scalar());
  c.set_output_resource(0, {{dtype, std::move(shape)}});
  return ok_status();
}

Status read_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, variable_shape(c, 0, c.output_type(0)));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status is_initialized_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::scalar());
  return c.with_rank(0, 0).status();
}

Status destroy_shape(ShapeContext& c) { return c.with_rank(0, 0).status(); }

// The elements follow from the handle alone, so they are known here and not to a value rule.
Status variable_shape_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape handle, c.with_rank(0, 0));
  const PartialShape shape = variable_facts(c, 0).shape;
  if (!shape.rank_known()) {
    c.set_output(0, PartialShape::of_rank(1));
    return ok_status();
  }
  c.set_output(0, {shape.rank()});
  PartialValue value;
  for (int64_t size : shape.dims()) {
    value.elements.push_back(size < 0 ? std::nullopt : std::optional<int64_t>(size));
  }
  c.outputs()[0].value = std::move(value);
  return ok_status();
}

Status read_gradient(GradientContext& g) {
  g.set(0, g.gradient_as_is());
  return ok_status();
}

class VarHandle : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("shape"));
    ResourceHandle handle;
    handle.device = node.device->name();
    handle.container = std::move(name.container);
    handle.name = std::move(name.shared_name);
    handle.type_name = ResourceVariable::kTypeName;
    handle.contents = {{dtype, std::move(shape)}};
    return std::make_unique<VarHandle>(std::move(handle));
  }
  explicit VarHandle(ResourceHandle handle)
      : anonymous_(handle.name == kAnonymousName), handle_(Tensor::scalar(std::move(handle))) {}

  Status compute(KernelContext& ctx) const override {
    ctx.set_output(0, anonymous_ ? unnamed_handle() : handle_);
    return ok_status();
  }

 private:
  Tensor unnamed_handle() const {
    static std::atomic<uint64_t> next{0};
    ResourceHandle handle = handle_.item<ResourceHandle>();
    handle.name = str_cat("_anonymous_", next.fetch_add(1, std::memory_order_relaxed));
    return Tensor::scalar(std::move(handle));
  }

  const bool anonymous_;
  const Tensor handle_;
};

Status read_variable(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<ResourceVariable> variable, variable_input(ctx, 0));
  MR_TRY(check_variable_type(*variable, ctx.output_type(0)));
  Tensor value = variable->read();
  if (!value.valid()) return uninitialized_variable(ctx.input(0).item<ResourceHandle>());
  ctx.set_output(0, std::move(value));
  return ok_status();
}

Status is_initialized(KernelContext& ctx) {
  MR_TRY_ASSIGN(const ResourceHandle* handle, variable_handle_input(ctx, 0));
  Result<Ref<ResourceVariable>> found = ctx.resources().lookup<ResourceVariable>(
      container_or_default(handle->container), handle->name);
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  out->mutable_data<bool>()[0] = found.ok() && (*found)->read().valid();
  return ok_status();
}

Status disable_copy_on_read(KernelContext& ctx) { return variable_handle_input(ctx, 0).status(); }

Status shape_of_variable(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<ResourceVariable> variable, variable_input(ctx, 0));
  const Tensor value = variable->read();
  if (!value.valid()) return uninitialized_variable(ctx.input(0).item<ResourceHandle>());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{value.rank()}));
  for (int i = 0; i < value.rank(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (out->dtype() == DType::kInt64) {
      out->mutable_data<int64_t>()[at] = value.dim(i);
    } else if (value.dim(i) > INT32_MAX) {
      return invalid_argument("dimension ", i, " of size ", value.dim(i),
                              " does not fit in int32: use out_type int64");
    } else {
      out->mutable_data<int32_t>()[at] = static_cast<int32_t>(value.dim(i));
    }
  }
  return ok_status();
}

class DestroyResource : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(bool ignore, node.attr<bool>("ignore_lookup_error"));
    return std::make_unique<DestroyResource>(ignore);
  }
  explicit DestroyResource(bool ignore_missing) : ignore_missing_(ignore_missing) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const ResourceHandle* handle, handle_input(ctx, 0));
    Status removed = ctx.resources().remove_any(container_or_default(handle->container),
                                                handle->type_name, handle->name);
    return removed.code() == Code::kNotFound && ignore_missing_ ? ok_status() : removed;
  }

 private:
  const bool ignore_missing_;
};

}  // namespace

void register_resource_variables(Registry& registry) {
  mark_reach({"VarHandleOp"}, Reach::kState);
  registry.add(
      {.name = "VarHandleOp",
       .doc = "The handle of a variable, which its first assignment makes.",
       .outputs = {{"resource", "resource"}},
       .types = {{"dtype", {}}},
       .attrs = {{"container", "string = ''",
                  "Where it is kept; empty: the session's default container."},
                 {"shared_name", "string = ''", "Its name: the same name, the same variable."},
                 {"shape", "shape", "What every value must have."},
                 {"allowed_devices", "list(string) = []", "Read by nobody here."},
                 {"debug_name", "string = ''"}},
       .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
       .shape = handle_shape});
  registry.kernel<VarHandle>("VarHandleOp", DeviceKind::kAny);
  registry.add({.name = "ReadVariableOp",
                .doc = "The variable's value now; later updates do not change it.",
                .inputs = {{"resource", "resource"}},
                .outputs = {{"value", "dtype"}},
                .types = {{"dtype", {}}},
                .traits = {.stateful = true},
                .shape = read_shape,
                .gradient = read_gradient});
  registry.kernel("ReadVariableOp", DeviceKind::kCpu, read_variable);
  registry.add({.name = "VarIsInitializedOp",
                .doc = "Whether the variable has a value.",
                .inputs = {{"resource", "resource"}},
                .outputs = {{"is_initialized", "host(bool)"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = is_initialized_shape});
  registry.kernel("VarIsInitializedOp", DeviceKind::kAny, is_initialized);
  registry.add({.name = "VariableShape",
                .doc = "The shape of the variable's value now.",
                .inputs = {{"input", "resource"}},
                .outputs = {{"output", "host(out_type)"}},
                .types = {{"out_type", kIndexTypes, DType::kInt32}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = variable_shape_shape});
  registry.kernel("VariableShape", DeviceKind::kAny, shape_of_variable);
  registry.add({.name = "DestroyResourceOp",
                .doc = "Forgets a resource; who holds it keeps it until done.",
                .inputs = {{"resource", "resource"}},
                .attrs = {{"ignore_lookup_error", "bool = true", "Whether none there is fine."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = destroy_shape});
  registry.kernel<DestroyResource>("DestroyResourceOp", DeviceKind::kAny);
  registry.add({.name = "DisableCopyOnRead",
                .doc = "Nothing: reads of a variable share its memory until it is changed.",
                .inputs = {{"resource", "resource"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = destroy_shape});
  registry.kernel("DisableCopyOnRead", DeviceKind::kAny, disable_copy_on_read);
}

}  // namespace millrace
