// Stacks of tensors that live for one step: where loops of older graphs keep values for their
// gradients.

#include <cstdint>

#include "millrace/base/mutex.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {
namespace {

class Stack : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Stack";

  // `max_size` negative: no limit.
  Stack(std::string name, DType dtype, int64_t max_size)
      : name_(std::move(name)), dtype_(dtype), max_size_(max_size) {}

  DType dtype() const { return dtype_; }
  const std::string& name() const { return name_; }

  Status push(Tensor tensor) {
    MutexLock lock(mu_);
    MR_TRY(check_open());
    if (max_size_ >= 0 && static_cast<int64_t>(tensors_.size()) >= max_size_) {
      return invalid_argument("Stack[", name_, "] overflowed its max_size (", max_size_, ")");
    }
    tensors_.push_back(std::move(tensor));
    return ok_status();
  }
  Result<Tensor> pop() {
    MutexLock lock(mu_);
    MR_TRY(check_open());
    if (tensors_.empty()) {
      return invalid_argument("Stack[", name_, "] is empty when calling Pop().");
    }
    Tensor top = std::move(tensors_.back());
    tensors_.pop_back();
    return top;
  }
  void close() {
    std::vector<Tensor> dropped;  // ends after the lock
    MutexLock lock(mu_);
    dropped.swap(tensors_);
    closed_ = true;
  }
  std::string describe() const override {
    MutexLock lock(mu_);
    return str_cat("Stack ", dtype_, ", ", tensors_.size(), " elements");
  }

 private:
  Status check_open() const MR_REQUIRES(mu_) {
    if (!closed_) return ok_status();
    return invalid_argument("Stack[", name_, "] has already been closed.");
  }

  const std::string name_;
  const DType dtype_;
  const int64_t max_size_;

  mutable Mutex mu_;
  bool closed_ MR_GUARDED_BY(mu_) = false;
  std::vector<Tensor> tensors_ MR_GUARDED_BY(mu_);
};

Status reference_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{2});
  return ok_status();
}

Status handle_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(DType dtype, c.attr<DType>("elem_type"));
  MR_TRY(c.with_rank(0, 0).status());
  c.set_output(0, PartialShape::scalar());
  c.set_output_resource(0, {{dtype, PartialShape::unknown()}});
  return ok_status();
}

// INVALID_ARGUMENT when the stack is known to hold another type.
Status check_known_type(const ShapeContext& c, DType dtype) {
  const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(0).resource;
  if (known.size() != 1 || known[0].dtype == dtype) return ok_status();
  return invalid_argument("the stack holds ", known[0].dtype, ", this op expects ", dtype);
}

Status push_shape(ShapeContext& c) {
  MR_TRY(check_known_type(c, c.input_type(1)));
  c.set_output(0, c.input(1));
  c.set_output_resource(0, c.input_facts(1).resource);
  return ok_status();
}

Status pop_shape(ShapeContext& c) { return check_known_type(c, c.output_type(0)); }

class StackKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("elem_type"));
    MR_TRY_ASSIGN(std::string name, node.attr<std::string>("stack_name"));
    return std::make_unique<StackKernel>(name.empty() ? node.name : name, dtype);
  }
  StackKernel(std::string name, DType dtype) : name_(std::move(name)), dtype_(dtype) {}

  Status compute(KernelContext& ctx) const override {
    int64_t max_size = -1;
    if (ctx.num_inputs() == 1) {
      MR_TRY(expect_rank(ctx, 0, 0));
      MR_TRY_ASSIGN(max_size, ctx.int_scalar_input(0));
    }
    const std::string container = ctx.step().container();
    const std::string name = unique_step_name(name_);
    MR_TRY(ctx.resources().create<Stack>(container, name, make_ref<Stack>(name, dtype_, max_size)));
    if (is_ref(ctx.output_type(0))) {
      ctx.set_output_ref(0, make_handle_cell(container, name));
    } else {
      ctx.set_output(0, make_handle(ctx, container, name, Stack::kTypeName,
                                    {{dtype_, PartialShape::unknown()}}));
    }
    return ok_status();
  }

 private:
  const std::string name_;
  const DType dtype_;
};

Status check_type(const Stack& stack, DType dtype) {
  if (stack.dtype() == dtype) return ok_status();
  return invalid_argument("Stack[", stack.name(), "] holds ", stack.dtype(), ", this op expects ",
                          dtype);
}

Status push(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Stack> stack, resource_input<Stack>(ctx, 0));
  MR_TRY(check_type(*stack, ctx.input(1).dtype()));
  Value value = ctx.take_input(1);
  MR_TRY(stack->push(value.tensor));
  ctx.set_output_value(0, std::move(value));
  return ok_status();
}

Status pop(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Stack> stack, resource_input<Stack>(ctx, 0));
  MR_TRY(check_type(*stack, ctx.output_type(0)));
  MR_TRY_ASSIGN(Tensor top, stack->pop());
  ctx.set_output(0, std::move(top));
  return ok_status();
}

Status close(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Stack> stack, resource_input<Stack>(ctx, 0));
  stack->close();
  return ok_status();
}

constexpr const char* kNoGradient = "what was put on the stack is not known";

}  // namespace

void register_stack(Registry& registry) {
  for (const bool v2 : {false, true}) {
    const std::string suffix = v2 ? "V2" : "", handle = v2 ? "resource" : "ref(string)";
    OpSpec make = {.name = "Stack" + suffix,
                   .doc = "A stack of tensors that ends with the step.",
                   .outputs = {{"handle", handle}},
                   .types = {{"elem_type", {}}},
                   .attrs = {{"stack_name", "string = ''", "Part of its name."}},
                   .traits = {.stateful = true, .step_state = true, .cannot_differentiate = true},
                   .shape = v2 ? handle_shape : reference_shape};
    if (v2)
      make.inputs = {{"max_size", "host(int32)", "How many elements fit; negative: any number."}};
    registry.add(make);
    registry.add({.name = "StackPush" + suffix,
                  .doc = "Puts a tensor on a stack and hands it on.",
                  .inputs = {{"handle", handle}, {"elem", "T"}},
                  .outputs = {{"output", "T"}},
                  .types = {{"T", {}}},
                  .attrs = {{"swap_memory", "bool = false",
                             "Keep it in host memory; all stacks of a CPU do."}},
                  .traits = {.stateful = true, .may_alias = 2, .retains = 2},
                  .shape = push_shape,
                  .no_gradient = kNoGradient});
    registry.add({.name = "StackPop" + suffix,
                  .doc = "Takes the tensor that was put on a stack last.",
                  .inputs = {{"handle", handle}},
                  .outputs = {{"elem", "elem_type"}},
                  .types = {{"elem_type", {}}},
                  .traits = {.stateful = true},
                  .shape = pop_shape,
                  .no_gradient = kNoGradient});
    registry.add({.name = "StackClose" + suffix,
                  .doc = "Drops what is on a stack, which cannot be used afterwards.",
                  .inputs = {{"handle", handle}},
                  .traits = {.stateful = true, .cannot_differentiate = true},
                  .shape = shape_rules::no_outputs});
    registry.kernel<StackKernel>("Stack" + suffix, DeviceKind::kCpu);
    registry.kernel("StackPush" + suffix, DeviceKind::kCpu, push);
    registry.kernel("StackPop" + suffix, DeviceKind::kCpu, pop);
    registry.kernel("StackClose" + suffix, DeviceKind::kCpu, close);
  }
}

}  // namespace millrace
