#include <utility>

#include "millrace/ops/math/elementwise_kernels.h"
#include "millrace/ops/math/unary_ops.h"

// Definitions, rules and kernels of the table in unary_ops.h.

namespace millrace {
namespace {

template <class Op>
void unary_value(ValueContext& c) {
  const PartialValue* x = c.input(0);
  const Result<DType> dtype = c.attr<DType>("T");
  if (x == nullptr || !dtype.ok()) return;
  PartialValue y = *x;
  for (auto& e : y.elements) {
    if (!e) continue;
    e = *dtype == DType::kInt32 ? Op::eval(static_cast<int32_t>(*e)) : Op::eval(*e);
  }
  c.set_output(0, std::move(y));
}

template <class Op>
Status unary_grad(GradientContext& c) {
  const Expr dx = Op::grad(conjugate(c.input(0)), conjugate(c.output(0)), c.gradient());
  if (dx.valid()) c.set(0, dx);
  return ok_status();
}

template <class Op>
Result<std::unique_ptr<Kernel>> make_unary(const KernelNode& node) {
  return UnaryKernel::make(node, Op::info);
}

template <class Op>
void register_one(Registry& registry) {
  OpSpec spec = elementwise_spec(Op::info, 1);
  spec.shape = shape_rules::unchanged;
  if constexpr (Op::info.kernels.contains(DType::kInt32)) spec.value = unary_value<Op>;
  if constexpr (Op::info.differentiable) spec.gradient = unary_grad<Op>;
  const bool typed = !spec.types.empty();
  registry.add(spec);
  KernelDef kernel{.op = Op::info.name, .factory = make_unary<Op>};
  if (typed) kernel.constraints = {{"T", Op::info.kernels}};
  registry.kernel(kernel);
}

template <class... Ops>
void register_all(Registry& registry, OpList<Ops...>) {
  (register_one<Ops>(registry), ...);
}

}  // namespace

const OpInfo* find_unary_info(std::string_view name) { return find_info(name, UnaryOps()); }

void register_unary(Registry& registry) { register_all(registry, UnaryOps()); }

}  // namespace millrace
