#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "millrace/api/variables.h"

// What the layers share. Not for programs.

namespace millrace::layers {

// One call of a layer: its scope, its weights, its mistakes.
class Layer {
 public:
  Layer(const Scope& scope, Variables& variables, std::string_view kind, std::string_view name,
        SourceLocation where);

  const Scope& scope() const { return inside_; }

  // The value of the variable "<name>/<part>"; invalid after an error.
  Expr weight(std::string_view part, std::initializer_list<int64_t> dims, DType dtype,
              const Initializer& initializer);
  // The variable itself; null after an error.
  Variable* variable(std::string_view part, std::initializer_list<int64_t> dims, DType dtype,
                     const Initializer& initializer, const VariableOptions& options = {});

  // Makes `x` a tensor of this scope's graph and gives the size of its last dimension; where that
  // is not known, an error and 0.
  int64_t known_last(Expr& x, std::string_view what);
  // False, with an error, where it is not, or so large that it can only be a mistake.
  bool positive(int64_t value, std::string_view what);
  Expr fail(const Status& status);

  // Runs code that writes Exprs. Gives nothing after an error.
  template <class F>
  auto build(F code) const {
    using Out = decltype(code(inside_.builder()));
    return inside_.ok() ? inside_.build(where_, code) : Out();
  }

 private:
  Scope outside_, inside_;
  Variables& variables_;
  std::string kind_, name_;
  SourceLocation where_;
};

struct Moments {
  Expr mean, variance;
};
Moments moments_of(Expr x, Expr axes, bool keep_dims);

}  // namespace millrace::layers
