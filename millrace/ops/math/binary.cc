#include <utility>

#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/math/elementwise_kernels.h"
#include "millrace/ops/math/gradient_ops.h"

// Definitions, rules and kernels of the tables in binary_ops.h and gradient_ops.h.

namespace millrace {
namespace {

// Operands that do not go together are an error or, when the node says so, give a scalar.
Status equality_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool error, c.attr<bool>("incompatible_shape_error"));
  if (error) return shape_rules::broadcast(c);
  if (!c.input(0).fully_known() || !c.input(1).fully_known()) return ok_status();
  const Result<PartialShape> shape = broadcast_shapes(c.input(0), c.input(1));
  c.set_output(0, shape.ok() ? *shape : PartialShape::scalar());
  return ok_status();
}

// f(x, y) where the op has an answer.
template <class Op>
std::optional<int64_t> eval_known(DType dtype, int64_t x, int64_t y) {
  if (Op::info.check == OperandCheck::kDivisor && y == 0) return std::nullopt;
  if (Op::info.check == OperandCheck::kExponent && y < 0) return std::nullopt;
  if (dtype == DType::kInt64) return Op::eval(x, y);
  return Op::eval(static_cast<int32_t>(x), static_cast<int32_t>(y));
}

template <class Op>
void binary_value(ValueContext& c) {
  const PartialValue* x = c.input(0);
  const PartialValue* y = c.input(1);
  const Result<DType> dtype = c.attr<DType>("T");
  if (x == nullptr || y == nullptr || !dtype.ok() || !kIndexTypes.contains(*dtype)) return;
  const size_t nx = x->elements.size(), ny = y->elements.size();
  if (nx != ny && nx != 1 && ny != 1) return;
  PartialValue z;
  z.is_scalar = x->is_scalar && y->is_scalar;
  const size_t n = nx == 1 ? ny : nx;
  for (size_t i = 0; i < n; ++i) {
    const auto& a = x->elements[nx == 1 ? 0 : i];
    const auto& b = y->elements[ny == 1 ? 0 : i];
    z.elements.push_back(a && b ? eval_known<Op>(*dtype, *a, *b) : std::nullopt);
  }
  c.set_output(0, std::move(z));
}

template <class Op>
Status binary_grad(GradientContext& c) {
  const bool conj = Op::info.holomorphic;
  const Expr x = c.input(0), y = c.input(1), z = c.output(0);
  const ExprPair g = Op::grad(conj ? conjugate(x) : x, conj ? conjugate(y) : y,
                              conj ? conjugate(z) : z, c.gradient());
  const ExprPair summed = Op::info.broadcasts ? unbroadcast(g.first, g.second, x, y) : g;
  if (summed.first.valid()) c.set(0, summed.first);
  if (summed.second.valid()) c.set(1, summed.second);
  return ok_status();
}

template <class Op>
Result<std::unique_ptr<Kernel>> make_binary(const KernelNode& node) {
  return BinaryKernel::make(node, Op::info);
}

template <class Op>
void register_one(Registry& registry) {
  constexpr bool kEquality = std::is_same_v<Op, Equal> || std::is_same_v<Op, NotEqual>;
  OpSpec spec = elementwise_spec(Op::info, 2);
  spec.shape = kEquality             ? equality_shape
               : Op::info.broadcasts ? shape_rules::broadcast
                                     : shape_rules::merged;
  // Strings are computed in string_binary.cc.
  if (kEquality || std::is_same_v<Op, Add>) {
    spec.types[0].allowed = spec.types[0].allowed | TypeSet{DType::kString};
  }
  if (kEquality) spec.attrs.push_back({"incompatible_shape_error", "bool = true"});
  if constexpr (Op::info.kernels.contains(DType::kInt32) && !Op::info.predicate) {
    spec.value = binary_value<Op>;
  }
  if constexpr (Op::info.differentiable) spec.gradient = binary_grad<Op>;
  const bool typed = !spec.types.empty();
  registry.add(spec);
  KernelDef kernel{.op = Op::info.name, .factory = make_binary<Op>};
  if (typed) kernel.constraints = {{"T", Op::info.kernels}};
  registry.kernel(kernel);
}

template <class... Ops>
void register_all(Registry& registry, OpList<Ops...>) {
  (register_one<Ops>(registry), ...);
}

}  // namespace

const OpInfo* find_binary_info(std::string_view name) {
  const OpInfo* info = find_info(name, BinaryOps());
  return info != nullptr ? info : find_info(name, GradientOps());
}

void register_binary(Registry& registry) {
  register_all(registry, BinaryOps());
  register_all(registry, GradientOps());
}

}  // namespace millrace
