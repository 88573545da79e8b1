#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/graph/expr.h"
#include "millrace/kernel/kernel_testing.h"

namespace millrace {

// An OpBuilder that runs every op at once, for tests of gradient rules: what a rule emits is
// computed, and can be compared with numbers.
class EagerBuilder final : public OpBuilder {
 public:
  // What shape() tells: rules must work from tensors where sizes or ranks are not known.
  enum class Shapes { kKnown, kRankOnly, kUnknown };

  // In an environment of its own, or in `env`, which outlives the builder.
  EagerBuilder();
  explicit EagerBuilder(OpEnv& env);
  ~EagerBuilder() override;

  Shapes shapes = Shapes::kKnown;

  const Tensor& tensor(Expr e) const { return tensors_[static_cast<size_t>(e.id())]; }

  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override;
  Expr constant(const Tensor& value) override;
  DType dtype(Expr e) const override { return tensor(e).dtype(); }
  PartialShape shape(Expr e) const override;
  // Null, too, where shapes are not known.
  const Tensor* constant_value(Expr e) const override {
    return shapes == Shapes::kKnown ? &tensor(e) : nullptr;
  }
  const Status& status() const override { return status_; }
  void fail(Status error) override {
    if (status_.ok()) status_ = std::move(error);
  }

 private:
  std::unique_ptr<OpEnv> own_env_;
  OpEnv& env_;
  std::deque<Tensor> tensors_;  // a deque: tensor() stays valid while ops are emitted
  Status status_;
};

}  // namespace millrace
