#include "millrace/kernel/eager_testing.h"

#include "millrace/graph/op_registry.h"

namespace millrace {

EagerBuilder::EagerBuilder() : own_env_(std::make_unique<OpEnv>()), env_(*own_env_) {}
EagerBuilder::EagerBuilder(OpEnv& env) : env_(env) {}
EagerBuilder::~EagerBuilder() = default;

Expr EagerBuilder::constant(const Tensor& value) {
  tensors_.push_back(value);
  return Expr(this, static_cast<int64_t>(tensors_.size()) - 1, 0);
}

PartialShape EagerBuilder::shape(Expr e) const {
  const Shape& real = tensor(e).shape();
  if (shapes == Shapes::kKnown) return real;
  return shapes == Shapes::kRankOnly ? PartialShape::of_rank(real.rank()) : PartialShape();
}

std::vector<Expr> EagerBuilder::emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) {
  if (!status_.ok()) return {};
  Result<const OpDef*> def = OpRegistry::global().lookup(op);
  if (!def.ok()) {
    fail(def.status());
    return {};
  }
  // Lists share evenly what single arguments leave.
  size_t singles = 0, lists = 0;
  for (const ArgDef& arg : (*def)->inputs) ++(arg.is_list() ? lists : singles);
  const size_t length = lists == 0 ? 0 : (inputs.size() - singles) / lists;
  OpTester tester(env_, op);
  for (const auto& [name, value] : attrs) tester.attr(name, value);
  size_t next = 0;
  for (const ArgDef& arg : (*def)->inputs) {
    if (!arg.is_list()) {
      tester.input(tensor(inputs[next++]));
      continue;
    }
    std::vector<Tensor> list;
    for (size_t i = 0; i < length; ++i) list.push_back(tensor(inputs[next++]));
    tester.input_list(std::move(list));
  }
  Result<std::vector<Tensor>> outputs = tester.run();
  if (!outputs.ok()) {
    fail(outputs.status().with_prefix(op));
    return {};
  }
  std::vector<Expr> out;
  for (const Tensor& output : *outputs) out.push_back(constant(output));
  return out;
}

}  // namespace millrace
