#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/source_location.h"
#include "millrace/graph/function_builder.h"

namespace millrace {

// An operation without outputs, or seen as something to run.
struct Operation {
  NodeId node = -1;
  std::string name;
  bool valid() const { return node >= 0; }
};

// Where a C++ program adds operations: a graph together with a name prefix, a device and other
// settings for what is added. Copies share the graph. The first error sticks (status()), and
// everything built afterwards is invalid, so a program checks once, at the end.
//
//   Scope root = Scope::make_root();
//   Expr x = ops::placeholder(root, DType::kFloat);
//   Expr y = ops::mat_mul(root.sub_scope("layer1"), x, w) + b;
//   MR_TRY(root.status());
//
// Not thread-safe.
class Scope {
 public:
  // Over a new graph. Registers the library's ops on first use.
  static Scope make_root();
  // Over a graph that exists.
  explicit Scope(Ref<Graph> graph);
  // Where `builder` builds, such as inside a function in the making. The builder must outlive it.
  explicit Scope(GraphBuilder& builder);

  const Ref<Graph>& graph() const { return shared_->graph; }
  GraphBuilder& builder() const { return shared_->builder; }
  const Status& status() const { return shared_->builder.status(); }
  bool ok() const { return status().ok(); }

  // Names below "<this scope>/<name>/"; unique, so "layer", then "layer_1".
  Scope sub_scope(std::string_view name) const;
  // The next operation made directly in the scope returned is called `name`.
  Scope with_name(std::string_view name) const;
  Scope with_device(std::string_view device) const;
  // Operations wait for these as well.
  Scope with_control(std::span<const Operation> operations) const;
  Scope with_control(std::initializer_list<Operation> operations) const {
    return with_control(std::span<const Operation>(operations.begin(), operations.size()));
  }
  Scope colocated_with(Expr tensor) const;

  // Adds an operation; what the generated functions call. Inputs flat, list arguments expanded.
  Operation add(std::string_view op, std::vector<Expr> inputs, AttrMap attrs,
                SourceLocation where = SourceLocation::current()) const;
  // Output `index` of an operation; invalid when the operation is.
  Expr output(const Operation& operation, int index) const;
  // All outputs.
  std::vector<Expr> outputs(const Operation& operation) const;

  // Runs `code` with the settings of this scope in builder(), and with `where` as the origin of
  // what it makes.
  template <class F>
  auto build(SourceLocation where, F code) const {
    GraphBuilder::Context before = builder().context();
    builder().context() = context_;
    builder().context().origin = intern_origin({.file = where.file, .line = where.line});
    auto result = code(builder());
    builder().context() = std::move(before);
    return result;
  }
  // The name given by with_name(); `otherwise` when there is none.
  std::string name_or(std::string_view otherwise) const {
    return next_name_.empty() ? std::string(otherwise) : next_name_;
  }

  // A constant from values: scalars, vectors, tensors.
  Expr constant(Tensor value, SourceLocation where = SourceLocation::current()) const;
  template <class T>
    requires(dtype_of<T> != DType::kInvalid)
  Expr constant(T value, SourceLocation where = SourceLocation::current()) const {
    return constant(Tensor::scalar<T>(std::move(value)), where);
  }

  // "node:0", for Session::run.
  std::string name_of(Expr tensor) const;
  Operation operation_of(Expr tensor) const;

 private:
  struct Shared {
    Ref<Graph> graph;
    std::unique_ptr<GraphBuilder> own;  // null: somebody else's
    GraphBuilder& builder;
  };

  std::shared_ptr<Shared> shared_;
  GraphBuilder::Context context_;
  std::string next_name_;
};

}  // namespace millrace
