#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/eager/eager_context.h"
#include "millrace/graph/gradient.h"

namespace millrace::eager {

// The OpBuilder that runs ops: gradient rules, and programs written with Expr (graph/expr.h), give
// values instead of nodes.
//
//   Builder b(*context);
//   Expr y = tanh(matmul(b.expr(x), b.expr(w)));
//   MR_TRY_ASSIGN(TensorRef value, b.tensor(y));
//
// An op runs when somebody asks for what comes out of it, or for its shape: what nobody needs, such
// as the gradient of a constant, is not computed. Exprs are good until clear(). For one thread.
class Builder final : public OpBuilder {
 public:
  // The context outlives the builder.
  explicit Builder(EagerContext& context) : context_(context) {}

  EagerContext& context() const { return context_; }

  // A value to compute with; invalid for null.
  Expr expr(TensorRef tensor);
  Gradient gradient(EagerGradient gradient);
  // The value; INVALID_ARGUMENT for an invalid Expr, status() when that is an error.
  Result<TensorRef> tensor(Expr e);
  // The values (null for invalid ones), after which everything else is dropped, as by clear().
  // Knows what is read for the last time, so memory is used again on the way.
  Result<std::vector<TensorRef>> finish(std::span<const Expr> results);
  // The same for gradients.
  Result<std::vector<EagerGradient>> finish(std::span<const Gradient> results);
  // Drops all values and the error.
  void clear();

  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override;
  Expr constant(const Tensor& value) override;
  DType dtype(Expr e) const override { return slot(e).dtype; }
  // Runs what `e` comes from.
  PartialShape shape(Expr e) const override;
  // Of what is there already and in host memory.
  const Tensor* constant_value(Expr e) const override;
  const Status& status() const override { return status_; }
  void fail(Status error) override {
    if (status_.ok()) status_ = std::move(error);
  }

 private:
  struct Slot {
    DType dtype = DType::kInvalid;
    TensorRef tensor;   // null until it is computed
    int32_t step = -1;  // that computes it
  };
  struct Step {
    Ref<PreparedOp> op;
    std::vector<int32_t> inputs;
    int32_t first_output = 0;
    bool done = false;
  };
  const Slot& slot(Expr e) const { return slots_[static_cast<size_t>(e.id())]; }
  Result<std::vector<Expr>> add(std::string_view op, const std::vector<Expr>& inputs,
                                AttrMap attrs);
  // Runs the steps that the slots need. `last`: nothing else will be asked for.
  Status compute(std::span<const int32_t> wanted, bool last);
  Status run(Step& step, uint64_t movable);

  EagerContext& context_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  Status status_;
};

}  // namespace millrace::eager
