#pragma once

#include <string_view>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace::ops {

// Hands out an operation's outputs one argument after the other: for the generated functions.
class OutputReader {
 public:
  OutputReader(const Scope& scope, const Operation& operation)
      : scope_(scope), operation_(operation) {}

  Expr one() { return scope_.output(operation_, next_++); }
  // As many as the int attribute says.
  std::vector<Expr> numbered(std::string_view attr) {
    return several(count<int64_t>(attr, [](int64_t n) { return n; }));
  }
  // As many as the list attribute has types.
  std::vector<Expr> typed(std::string_view attr) {
    return several(count<std::vector<DType>>(
        attr, [](const std::vector<DType>& types) { return static_cast<int64_t>(types.size()); }));
  }

 private:
  template <class T, class F>
  int64_t count(std::string_view attr, F&& size) const {
    if (!operation_.valid()) return 0;
    Result<T> value = scope_.graph()->node(operation_.node).attr<T>(attr);
    return value.ok() ? size(*value) : 0;
  }
  std::vector<Expr> several(int64_t n) {
    std::vector<Expr> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(one());
    return out;
  }

  const Scope& scope_;
  const Operation& operation_;
  int next_ = 0;
};

// The types of the tensors, for attributes that hold a list of types; empty after an error.
inline std::vector<DType> types_of(const std::vector<Expr>& tensors) {
  std::vector<DType> out;
  for (const Expr& t : tensors) {
    if (t.valid()) out.push_back(base_type(t.dtype()));
  }
  return out;
}

}  // namespace millrace::ops
