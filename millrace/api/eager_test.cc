#include "millrace/api/eager.h"

#include <gtest/gtest.h>

#include "millrace/api/scope.h"
#include "millrace/graph/graph_builder.h"

namespace millrace::eager {
namespace {

class EagerFunctions : public testing::Test {
 protected:
  void SetUp() override { runtime_ = make_eager_runtime().value(); }

  // A function of one float scalar.
  FunctionAttr define(const char* name, Expr (*f)(Expr)) {
    Scope root = Scope::make_root();
    GraphBuilder& builder = root.builder();
    const NodeId x =
        builder.add("Placeholder", "x", {}, {{"dtype", DType::kFloat}, {"shape", Shape({})}})
            .value();
    const Output arg = {x, 0};
    const Output result = GraphBuilder::output(f(builder.expr(arg)));
    Ref<Function> function =
        function_from_graph(*root.graph(), name, std::span(&arg, 1), std::span(&result, 1)).value();
    MR_CHECK_OK(runtime_.functions->add(std::move(function)));
    return {name, {}};
  }
  TensorRef scalar(float value) { return runtime_.context->tensor(Tensor::scalar(value)); }
  float run(std::string_view op, std::vector<TensorRef> inputs, AttrMap attrs) {
    const Result<TensorRef> out =
        runtime_.context->execute_one(op, std::move(inputs), std::move(attrs));
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? (*out)->tensor().item<float>() : -1;
  }

  const AttrMap types_ = {{"Tin", std::vector<DType>{DType::kFloat}},
                          {"Tout", std::vector<DType>{DType::kFloat}}};
  EagerRuntime runtime_;
};

TEST_F(EagerFunctions, Call) {
  AttrMap attrs = types_;
  attrs.set("f", define("twice_and_one", [](Expr x) { return x * 2.0 + 1.0; }));
  EXPECT_EQ(run("PartitionedCall", {scalar(3)}, attrs), 7);
  EXPECT_EQ(run("PartitionedCall", {scalar(4)}, attrs), 9);
}

TEST_F(EagerFunctions, BranchesAndLoops) {
  const FunctionAttr twice = define("twice", [](Expr x) { return x * 2.0; });
  const FunctionAttr negative = define("negative", [](Expr x) { return -x; });
  AttrMap branches = types_;
  branches.set("then_branch", twice);
  branches.set("else_branch", negative);
  EXPECT_EQ(run("If", {runtime_.context->tensor(Tensor::scalar(true)), scalar(3)}, branches), 6);
  EXPECT_EQ(run("If", {runtime_.context->tensor(Tensor::scalar(false)), scalar(3)}, branches), -3);
  // Minus zero is zero.
  EXPECT_EQ(run("If", {scalar(-0.0f), scalar(3)}, branches), -3);
  AttrMap cases = types_;
  cases.set("branches", std::vector<FunctionAttr>{twice, negative});
  const auto index = [&](int32_t i) { return runtime_.context->tensor(Tensor::scalar(i)); };
  EXPECT_EQ(run("Case", {index(0), scalar(3)}, cases), 6);
  EXPECT_EQ(run("Case", {index(-7), scalar(3)}, cases), -3);
  const AttrMap loop = {
      {"T", std::vector<DType>{DType::kFloat}},
      {"cond", define("small", [](Expr x) { return less(x, constant_like(x, 100)); })},
      {"body", twice}};
  EXPECT_EQ(run("While", {scalar(3)}, loop), 192);
  EXPECT_EQ(run("While", {scalar(200)}, loop), 200);
}

TEST_F(EagerFunctions, UnknownFunctions) {
  AttrMap attrs = types_;
  attrs.set("f", FunctionAttr{"nowhere", {}});
  const Status status = runtime_.context->execute("PartitionedCall", {scalar(3)}, attrs).status();
  EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
}

// A runtime is alone with its state.
TEST(EagerRuntimeTest, Options) {
  SessionOptions options;
  options.cpu_devices = 0;
  EXPECT_EQ(make_eager_runtime(options).status().code(), Code::kInvalidArgument);
  options.cpu_devices = 2;
  const EagerRuntime runtime = make_eager_runtime(options).value();
  ASSERT_EQ(runtime.context->devices().size(), 2u);
  const std::string second = runtime.context->devices()[1]->name();
  const Op add = runtime.context->op("Add", {}, second).value();
  const TensorRef one = runtime.context->tensor(Tensor::scalar(1.0f));
  const TensorRef sum = runtime.context->execute_one(add, {one, one}).value();
  EXPECT_EQ(&sum->device(), runtime.context->devices()[1].get());
  EXPECT_EQ(sum->tensor().item<float>(), 2);
  // A variable's ops run where it is.
  const Op handle =
      runtime.context->op("VarHandleOp", {{"dtype", DType::kFloat}, {"shape", Shape({})}}, second)
          .value();
  const TensorRef v = runtime.context->execute_one(handle, {}).value();
  ASSERT_TRUE(runtime.context->execute("AssignVariableOp", {v, sum}).ok());
  const TensorRef read =
      runtime.context->execute_one("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}).value();
  EXPECT_EQ(&read->device(), runtime.context->devices()[1].get());
  EXPECT_EQ(read->tensor().item<float>(), 2);
}

}  // namespace
}  // namespace millrace::eager
