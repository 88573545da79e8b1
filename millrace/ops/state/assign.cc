// Variables as a whole: set, increased, decreased.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/state/variable_update.h"

namespace millrace {
namespace {

Status assign_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(bool validate, c.attr<bool>("validate_shape"));
  if (!validate) {
    c.set_output(0, c.input(1));
    return ok_status();
  }
  MR_TRY_ASSIGN(PartialShape shape, c.input(0).merge(c.input(1)));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status assign_variable_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, variable_shape(c, 0, c.input_type(1)));
  return shape.merge(c.input(1)).status();
}

Status shapes_differ(const PartialShape& variable, const Shape& value) {
  return invalid_argument("Assign requires shapes of both tensors to match. lhs shape= ", variable,
                          " rhs shape= ", value);
}

// Locked whatever use_locking says: nobody reads a part of the new value.
class Assign : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(bool validate_shape, node.attr<bool>("validate_shape"));
    return std::make_unique<Assign>(validate_shape);
  }
  explicit Assign(bool validate_shape) : validate_shape_(validate_shape) {}

  Status compute(KernelContext& ctx) const override {
    RefCell& cell = ctx.input_ref(0);
    Tensor value = ctx.take_input(1).tensor;
    MutexLock lock(cell.mu);
    if (validate_shape_) MR_TRY(check_shape(cell, value.shape()));
    MR_TRY(store_value(ctx, std::move(value), cell.tensor));
    ctx.set_output_ref(0, Ref<RefCell>(&cell));
    return ok_status();
  }

 private:
  // The first value must have the declared shape, later ones that of the value before.
  static Status check_shape(const RefCell& cell, const Shape& shape) MR_REQUIRES(cell.mu) {
    if (cell.tensor.valid()) {
      return cell.tensor.shape() == shape ? ok_status() : shapes_differ(cell.tensor.shape(), shape);
    }
    const auto* variable = dynamic_cast<const VariableCell*>(&cell);
    if (variable == nullptr || variable->shape().compatible(shape)) return ok_status();
    return shapes_differ(variable->shape(), shape);
  }

  const bool validate_shape_;
};

class AssignVariable : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(bool validate_shape, node.attr<bool>("validate_shape"));
    return std::make_unique<AssignVariable>(validate_shape);
  }
  explicit AssignVariable(bool validate_shape) : validate_shape_(validate_shape) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const ResourceHandle* handle, variable_handle_input(ctx, 0));
    Tensor value = ctx.take_input(1).tensor;
    const PartialShape declared =
        handle->contents.size() == 1 ? handle->contents[0].shape : PartialShape();
    const DType dtype = handle->contents.size() == 1 ? handle->contents[0].dtype : value.dtype();
    MR_TRY_ASSIGN(Ref<ResourceVariable> variable,
                  ctx.resources().lookup_or_create<ResourceVariable>(
                      container_or_default(handle->container), handle->name,
                      [&]() -> Result<Ref<ResourceVariable>> {
                        return make_ref<ResourceVariable>(handle->name, dtype, declared);
                      }));
    MR_TRY(check_variable_type(*variable, dtype));
    MR_TRY(check_variable_type(*variable, value.dtype()));
    if (!variable->shape().compatible(declared)) {
      return invalid_argument("variable ", handle->name, " is shared and was made with shape ",
                              variable->shape(), ", this handle expects ", declared);
    }
    if (!variable->shape().compatible(value.shape())) {
      return shapes_differ(variable->shape(), value.shape());
    }
    variable->lock();
    Status status = store(ctx, *variable, std::move(value));
    variable->unlock();
    return status;
  }

 private:
  Status store(KernelContext& ctx, ResourceVariable& variable, Tensor value) const {
    Tensor& now = variable.tensor();
    if (validate_shape_ && now.valid() && now.shape() != value.shape()) {
      return shapes_differ(now.shape(), value.shape());
    }
    return store_value(ctx, std::move(value), now);
  }

  const bool validate_shape_;
};

Status update_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.input(0).merge(c.input(1)));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// variable = f(variable, value), f an op of the elementwise table.
class AssignUpdate : public Kernel {
 public:
  AssignUpdate(const OpInfo& info, DType dtype, bool use_locking)
      : info_(info), function_(info, dtype), use_locking_(use_locking) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& value = ctx.input(1);
    VariableUpdate update(ctx, use_locking_);
    MR_TRY(update.open(1, value.dtype()));
    if (update.tensor(0).shape() != value.shape()) {
      return invalid_argument("Cannot update variable with shape ", update.tensor(0).shape(),
                              " using a Tensor with shape ", value.shape(),
                              ", shapes must be equal.");
    }
    MR_TRY_ASSIGN(Tensor * tensor, update.writable(0));
    char* out = static_cast<char*>(tensor->mutable_raw());
    const char* in = static_cast<const char*>(value.raw());
    if (DeviceEngine* const device = device_engine(ctx)) {
      const Shape shape = value.shape();
      MR_TRY(
          device->binary(ctx, info_.name, value.dtype(), {out, &shape}, {in, &shape}, out, shape));
      update.forward();
      return ok_status();
    }
    const int64_t size = static_cast<int64_t>(dtype_size(value.dtype()));
    ctx.parallel_for(value.num_elements(), info_.cost, [&](int64_t begin, int64_t end) {
      function_(out + begin * size, in + begin * size, out + begin * size, end - begin);
    });
    update.forward();
    return ok_status();
  }

 private:
  const OpInfo& info_;
  const BinaryFunction function_;
  const bool use_locking_;
};

template <class Op>
Result<std::unique_ptr<Kernel>> make_reference_update(const KernelNode& node) {
  MR_TRY_ASSIGN(DType dtype, node.attr<DType>("T"));
  MR_TRY_ASSIGN(bool use_locking, node.attr<bool>("use_locking"));
  return std::make_unique<AssignUpdate>(Op::info, dtype, use_locking);
}

template <class Op>
Result<std::unique_ptr<Kernel>> make_resource_update(const KernelNode& node) {
  MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
  return std::make_unique<AssignUpdate>(Op::info, dtype, /*use_locking=*/true);
}

template <class Op>
void register_update(Registry& registry, const std::string& name, const std::string& doc) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
                .outputs = {{"output_ref", "ref(T)"}},
                .types = {{"T", kNumberTypes}},
                .attrs = {{"use_locking", "bool = false", "Whether updates exclude each other."}},
                .traits = {.stateful = true, .cannot_differentiate = true, .may_alias = 1},
                .shape = update_shape});
  registry.kernel({.op = name,
                   .device = DeviceKind::kCpu,
                   .constraints = {{"T", Op::info.kernels}},
                   .factory = &make_reference_update<Op>});
  const std::string resource_name = name + "VariableOp";
  registry.add({.name = resource_name,
                .doc = doc,
                .inputs = {{"resource", "resource"}, {"value", "dtype"}},
                .types = {{"dtype", {}}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = assign_variable_shape});
  registry.kernel({.op = resource_name,
                   .device = DeviceKind::kCpu,
                   .constraints = {{"dtype", Op::info.kernels}},
                   .factory = &make_resource_update<Op>});
}

}  // namespace

void register_assign(Registry& registry) {
  registry.add({.name = "Assign",
                .doc = "Sets a variable to a value.",
                .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
                .outputs = {{"output_ref", "ref(T)", "The variable, for what must come after."}},
                .types = {{"T", {}}},
                .attrs = {{"validate_shape", "bool = true", "Whether the shape must stay."},
                          {"use_locking", "bool = true", "Assignments are always locked."}},
                .traits = {.stateful = true,
                           .allows_uninitialized_input = true,
                           .cannot_differentiate = true,
                           .may_alias = 1,
                           .retains = 2},
                .shape = assign_shape});
  registry.kernel<Assign>("Assign", DeviceKind::kCpu);
  registry.add({.name = "AssignVariableOp",
                .doc = "Sets a variable to a value.",
                .inputs = {{"resource", "resource"}, {"value", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"validate_shape", "bool = false", "Whether the shape must stay."}},
                .traits = {.stateful = true, .cannot_differentiate = true, .retains = 2},
                .shape = assign_variable_shape});
  registry.kernel<AssignVariable>("AssignVariableOp", DeviceKind::kCpu);
  register_update<Add>(registry, "AssignAdd", "Adds a value to a variable.");
  register_update<Sub>(registry, "AssignSub", "Subtracts a value from a variable.");
}

}  // namespace millrace
