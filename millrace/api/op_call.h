#pragma once

#include <string_view>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace::ops {

// What a generated function does: collects inputs and attributes, adds the operation, hands out its
// outputs one argument after the other. Nothing is inline, because there are a thousand of them.
class OpCall {
 public:
  // `scope` must outlive the call.
  OpCall(const Scope& scope, std::string_view op, SourceLocation where);
  ~OpCall();

  void input(Expr tensor);
  void inputs(const std::vector<Expr>& tensors);
  void attr(std::string_view name, AttrValue value);
  // The attribute that holds how many tensors there are, or their types.
  void count_attr(std::string_view name, const std::vector<Expr>& tensors);
  void types_attr(std::string_view name, const std::vector<Expr>& tensors);

  // Adds the operation. What follows is about its outputs.
  Operation add();
  Expr one();
  std::vector<Expr> all();
  // As many as the int attribute says, or as the list attribute has types.
  std::vector<Expr> numbered(std::string_view attr);
  std::vector<Expr> typed(std::string_view attr);

 private:
  std::vector<Expr> several(int64_t n);

  const Scope& scope_;
  std::string_view op_;
  SourceLocation where_;
  std::vector<Expr> inputs_;
  AttrMap attrs_;
  Operation operation_;
  int next_ = 0;
};

}  // namespace millrace::ops
