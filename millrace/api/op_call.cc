#include "millrace/api/op_call.h"

#include <utility>

namespace millrace::ops {

OpCall::OpCall(const Scope& scope, std::string_view op, SourceLocation where)
    : scope_(scope), op_(op), where_(where) {}
OpCall::~OpCall() = default;

void OpCall::input(Expr tensor) { inputs_.push_back(tensor); }

void OpCall::inputs(const std::vector<Expr>& tensors) {
  inputs_.insert(inputs_.end(), tensors.begin(), tensors.end());
}

void OpCall::attr(std::string_view name, AttrValue value) { attrs_.set(name, std::move(value)); }

void OpCall::count_attr(std::string_view name, const std::vector<Expr>& tensors) {
  attr(name, static_cast<int64_t>(tensors.size()));
}

void OpCall::types_attr(std::string_view name, const std::vector<Expr>& tensors) {
  std::vector<DType> types;
  for (const Expr& t : tensors) {
    if (t.valid()) types.push_back(base_type(t.dtype()));
  }
  attr(name, std::move(types));
}

Operation OpCall::add() {
  operation_ = scope_.add(op_, std::move(inputs_), std::move(attrs_), where_);
  return operation_;
}

Expr OpCall::one() { return scope_.output(operation_, next_++); }

std::vector<Expr> OpCall::all() { return scope_.outputs(operation_); }

std::vector<Expr> OpCall::numbered(std::string_view attr) {
  if (!operation_.valid()) return {};
  Result<int64_t> count = scope_.graph()->node(operation_.node).attr<int64_t>(attr);
  return several(count.ok() ? *count : 0);
}

std::vector<Expr> OpCall::typed(std::string_view attr) {
  if (!operation_.valid()) return {};
  Result<std::vector<DType>> types =
      scope_.graph()->node(operation_.node).attr<std::vector<DType>>(attr);
  return several(types.ok() ? static_cast<int64_t>(types->size()) : 0);
}

std::vector<Expr> OpCall::several(int64_t n) {
  std::vector<Expr> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(one());
  return out;
}

}  // namespace millrace::ops
