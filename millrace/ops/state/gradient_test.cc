#include "millrace/graph/gradient.h"

#include "millrace/ops/array/register.h"
#include "millrace/ops/state/state_testing.h"

// Gradient rules, run by a builder that computes every op at once.

namespace millrace {
namespace {

class EagerBuilder final : public OpBuilder {
 public:
  explicit EagerBuilder(OpEnv& env) : env_(env) {}

  Expr constant(const Tensor& value) override {
    tensors_.push_back(value);
    return Expr(this, static_cast<int64_t>(tensors_.size()) - 1, 0);
  }
  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override {
    OpTester tester(env_, op);
    for (const auto& [name, value] : attrs) tester.attr(name, value);
    const OpDef* def = OpRegistry::global().find(op);
    for (size_t i = 0; i < inputs.size(); ++i) {
      // A list argument takes the rest but for the arguments after it.
      if (def != nullptr && i < def->inputs.size() && def->inputs[i].is_list()) {
        const size_t after = def->inputs.size() - i - 1;
        std::vector<Tensor> list;
        for (; i + after < inputs.size(); ++i) list.push_back(tensor(inputs[i]));
        tester.input_list(std::move(list));
        --i;
      } else {
        tester.input(tensor(inputs[i]));
      }
    }
    Result<std::vector<Tensor>> outputs = tester.run();
    EXPECT_TRUE(outputs.ok()) << op << ": " << outputs.status().to_string();
    std::vector<Expr> result;
    if (outputs.ok()) {
      for (const Tensor& t : *outputs) result.push_back(constant(t));
    } else {
      fail(outputs.status());
    }
    return result;
  }
  DType dtype(Expr e) const override { return tensor(e).dtype(); }
  PartialShape shape(Expr e) const override { return tensor(e).shape(); }
  const Status& status() const override { return status_; }
  void fail(Status error) override {
    if (status_.ok()) status_ = std::move(error);
  }
  const Tensor& tensor(Expr e) const { return tensors_[static_cast<size_t>(e.id())]; }

 private:
  OpEnv& env_;
  std::vector<Tensor> tensors_;
  Status status_;
};

class VariableGradients : public StateTest {
 protected:
  static void SetUpTestSuite() {
    StateTest::SetUpTestSuite();
    register_for_tests({register_array_ops});
  }
};

TEST_F(VariableGradients, ReadPassesItToTheHandle) {
  EagerBuilder builder(env_);
  const Expr resource = builder.constant(variable("v", Tensor::scalar(1.0f)));
  const Expr value = builder.constant(Tensor::scalar(1.0f));
  const Expr gradient = builder.constant(Tensor::scalar(3.0f));
  const AttrMap attrs = {{"dtype", DType::kFloat}};
  GradientContext context(builder, {resource}, {value}, {gradient}, attrs, {DType::kResource});
  ASSERT_TRUE(OpRegistry::global().find("ReadVariableOp")->gradient(context).ok());
  EXPECT_EQ(context.input_gradients()[0].values.id(), gradient.id());
  EXPECT_FALSE(context.input_gradients()[0].indices.valid());
}

TEST_F(VariableGradients, GatherGivesTheRowsItTook) {
  const Tensor v = variable("v", Tensor::zeros(DType::kFloat, {5, 2}).value());
  const Tensor dy = Tensor::of<float>({1, 3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = Tensor::of<int64_t>({1, 3}, {4, 0, 4});
  EagerBuilder builder(env_);
  const AttrMap attrs = {{"dtype", DType::kFloat}, {"batch_dims", 0}};
  GradientContext context(builder, {builder.constant(v), builder.constant(rows)},
                          {builder.constant(dy)}, {builder.constant(dy)}, attrs,
                          {DType::kResource, DType::kInt64});
  ASSERT_TRUE(OpRegistry::global().find("ResourceGather")->gradient(context).ok());
  ASSERT_TRUE(builder.status().ok());
  const GradientContext::InputGradient& g = context.input_gradients()[0];
  expect_equal(builder.tensor(g.values), Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  expect_equal(builder.tensor(g.indices), Tensor::vector<int64_t>({4, 0, 4}));
  expect_equal(builder.tensor(g.dense_shape), Tensor::vector<int32_t>({5, 2}));
  EXPECT_FALSE(context.input_gradients()[1].values.valid());
}

}  // namespace
}  // namespace millrace
