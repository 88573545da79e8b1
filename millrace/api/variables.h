#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/api/initializers.h"
#include "millrace/api/scope.h"

namespace millrace {

// A tensor that lives in the session and keeps its value from run to run. Made by Variables, which
// owns it.
struct Variable {
  std::string name;
  Shape shape;
  DType dtype = DType::kInvalid;
  bool trainable = true;
  Expr handle;         // what operations on the variable take
  Expr initial_value;  // computed anew in a run that asks for it
  Operation initializer;

  bool valid() const { return handle.valid(); }
  // The value at the time when the operation runs. Gradients flow from it to `handle`.
  Expr read(const Scope& scope, SourceLocation where = SourceLocation::current()) const;
  // Sets, and adds to, the value.
  Operation assign(const Scope& scope, Expr value,
                   SourceLocation where = SourceLocation::current()) const;
  Operation assign_add(const Scope& scope, Expr value,
                       SourceLocation where = SourceLocation::current()) const;
};

struct VariableOptions {
  bool trainable = true;
};

// The variables of a model, by name. A layer asks for its variables each time it is called; asking
// again for a name gives the same variable, which is how two calls share weights.
//
//   Scope root = Scope::make_root();
//   Variables vars(root);
//   Variable& w = vars.get(root, "w", {3, 2}, DType::kFloat, initializers::glorot_uniform());
//   Expr y = ops::mat_mul(root, x, w.read(root));
//   ...
//   MR_TRY(session.run({}, {}, {vars.initialize()}).status());
//
// First values are drawn from `seed` and the variable's name: the same program begins with the same
// numbers in every process. Seed 0 begins with others each time.
//
// Not thread-safe. Must outlive what holds its variables: optimisers, averages.
class Variables {
 public:
  // `root` is a scope of the graph that sessions run.
  explicit Variables(const Scope& root, int64_t seed = 1) : root_(root), seed_(seed) {}
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // The variable "<scope>/<name>". It is made in the root's graph on the scope's device, also when
  // `scope` is that of a branch or loop body. One that exists must have this shape and dtype:
  // INVALID_ARGUMENT in both scopes otherwise, and a variable that is not valid().
  Variable& get(const Scope& scope, std::string_view name, const Shape& shape, DType dtype,
                const Initializer& initializer, const VariableOptions& options = {},
                SourceLocation where = SourceLocation::current());
  // A new one: where the name is taken, "name_1" and so on.
  Variable& create(const Scope& scope, std::string_view name, const Shape& shape, DType dtype,
                   const Initializer& initializer, const VariableOptions& options = {},
                   SourceLocation where = SourceLocation::current());
  // Null when there is none. `name` is the whole name.
  Variable* find(std::string_view name);

  // In the order in which they were made.
  std::vector<Variable*> all();
  std::vector<Variable*> trainable();

  // Gives every variable made so far its first value.
  Operation initialize();

  // Operations that layers want run once per training step, such as moving averages;
  // Optimizer::minimize() has them run.
  void add_update(const Operation& update) { updates_.push_back(update); }
  const std::vector<Operation>& updates() const { return updates_; }

  const Scope& root() const { return root_; }
  int64_t seed() const { return seed_; }

 private:
  Variable& add(const Scope& scope, std::string name, const Shape& shape, DType dtype,
                const Initializer& initializer, const VariableOptions& options,
                SourceLocation where);
  Variable& fail(const Scope& scope, const Status& status);

  Scope root_;
  int64_t seed_;
  std::deque<Variable> variables_;
  Variable none_;
  std::vector<Operation> updates_;
  Operation initialize_;
  size_t num_initialized_ = 0;  // by initialize_
};

// The variable "global_step", an int64 that counts training steps from 0.
Variable& global_step(Variables& variables);

}  // namespace millrace
