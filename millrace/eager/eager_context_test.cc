#include "millrace/eager/eager_context.h"

#include <thread>

#include "millrace/eager/context_testing.h"
#include "millrace/eager/variable.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace::eager {
namespace {

class EagerContextTest : public EagerTest {
 protected:
  void expect_error(std::string_view op, std::vector<TensorRef> inputs, AttrMap attrs, Code code,
                    std::string_view text) {
    const auto out = context_->execute(op, std::move(inputs), std::move(attrs));
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), code) << out.status().to_string();
    EXPECT_NE(out.status().message().find(text), std::string_view::npos)
        << out.status().to_string();
  }
  size_t resources() { return context_->host().resources().list().size(); }
};

TEST_F(EagerContextTest, RunsAnOp) {
  EXPECT_EQ(values(run("Add", {vector({1, 2}), scalar(10)})), (std::vector<float>{11, 12}));
  const auto parts = context_->execute(
      "Split", {context_->tensor(Tensor::scalar<int32_t>(0)), vector({1, 2})}, {{"num_split", 2}});
  ASSERT_TRUE(parts.ok()) << parts.status().to_string();
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ(values((*parts)[1]), std::vector<float>{2});
  EXPECT_EQ(values(run("Const", {}, {{"value", Tensor::scalar(3.0f)}, {"dtype", DType::kFloat}})),
            std::vector<float>{3});
}

TEST_F(EagerContextTest, KeepsOneKernelForEachOpAttributesAndTypes) {
  const size_t before = context_->cached_ops();
  run("Add", {scalar(1), scalar(2)});
  run("Add", {vector({1, 2}), scalar(2)});
  EXPECT_EQ(context_->cached_ops(), before + 1);
  run("Add", {context_->tensor(Tensor::scalar(1.0)), context_->tensor(Tensor::scalar(1.0))});
  EXPECT_EQ(context_->cached_ops(), before + 2);
  // Attributes are part of what a call is.
  const TensorRef square = context_->tensor(Tensor::of<float>({2, 2}, {1, 2, 3, 4}));
  const TensorRef row = context_->tensor(Tensor::of<float>({1, 2}, {1, 1}));
  EXPECT_EQ(values(run("MatMul", {row, square})), (std::vector<float>{4, 6}));
  EXPECT_EQ(values(run("MatMul", {row, square}, {{"transpose_b", true}})),
            (std::vector<float>{3, 7}));
  EXPECT_EQ(values(run("MatMul", {row, square}, {{"transpose_b", false}})),
            (std::vector<float>{4, 6}));
}

TEST_F(EagerContextTest, AnInputThatNobodyElseHoldsIsWrittenOver) {
  TensorRef x = run("Fill", {context_->tensor(Tensor::vector<int32_t>({1000})), scalar(1)});
  const void* memory = x->tensor().raw();
  const TensorRef kept = run("Neg", {x});
  EXPECT_NE(kept->tensor().raw(), memory);
  EXPECT_EQ(values(x)[0], 1);
  std::vector<TensorRef> given;
  given.push_back(std::move(x));
  const TensorRef moved = run("Neg", std::move(given));
  EXPECT_EQ(moved->tensor().raw(), memory);
  EXPECT_EQ(values(moved)[999], -1);
  // Memory of the caller's is read only.
  float theirs[256] = {};
  Tensor borrowed(DType::kFloat, {256}, Buffer::borrow(theirs, sizeof theirs, {}));
  const TensorRef out = run("Exp", {context_->tensor(std::move(borrowed))});
  EXPECT_NE(out->tensor().raw(), theirs);
  EXPECT_EQ(theirs[3], 0);
}

TEST_F(EagerContextTest, OpsOfGraphsAreRefused) {
  expect_error("Placeholder", {}, {{"dtype", DType::kFloat}}, Code::kUnimplemented,
               "Placeholder: stands for a value that a session is fed");
  expect_error("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", Shape({})}},
               Code::kUnimplemented, "use resource variables");
  expect_error("Switch", {scalar(1), context_->tensor(Tensor::scalar(true))}, {},
               Code::kUnimplemented, "use the language's own if");
  expect_error("StackV2", {context_->tensor(Tensor::scalar<int32_t>(1))},
               {{"elem_type", DType::kFloat}}, Code::kUnimplemented, "tf.TensorArray");
}

TEST_F(EagerContextTest, ErrorsNameTheOpAndWhatItWasGiven) {
  expect_error("MatMul", {vector({1, 2}), vector({1, 2})}, {}, Code::kInvalidArgument, "MatMul: ");
  expect_error("MatMul", {vector({1, 2}), vector({1, 2})}, {}, Code::kInvalidArgument,
               "inputs: float32 [2], float32 [2]");
  expect_error("Add", {scalar(1)}, {}, Code::kInvalidArgument, "Add: expected 2 inputs, got 1");
  expect_error("Add", {scalar(1), context_->tensor(Tensor::scalar(1.0))}, {},
               Code::kInvalidArgument, "does not match type float");
  expect_error("Gather", {vector({1}), scalar(0)}, {}, Code::kInvalidArgument, "Gather: ");
  expect_error("Nope", {}, {}, Code::kNotFound, "Nope");
  expect_error("Add", {scalar(1), nullptr}, {}, Code::kInvalidArgument, "input 1 is missing");
  expect_error("Add", {scalar(1), scalar(2)}, {{"colour", 3}}, Code::kInvalidArgument, "colour");
  // And the context goes on.
  EXPECT_EQ(values(run("Add", {scalar(1), scalar(2)})), std::vector<float>{3});
}

TEST_F(EagerContextTest, StateBelongsToItsOwner) {
  const AttrMap attrs = {{"dtype", DType::kFloat}, {"shape", Shape({})}};
  const TensorRef a = run("VarHandleOp", {}, attrs), b = run("VarHandleOp", {}, attrs);
  ASSERT_TRUE(context_->execute("AssignVariableOp", {a, scalar(1)}).ok());
  ASSERT_TRUE(context_->execute("AssignVariableOp", {b, scalar(2)}).ok());
  EXPECT_EQ(values(run("ReadVariableOp", {a}, {{"dtype", DType::kFloat}})), std::vector<float>{1});
  EXPECT_EQ(resources(), 2u);
  ASSERT_TRUE(context_->execute("DestroyResourceOp", {a}).ok());
  EXPECT_EQ(resources(), 1u);
  {
    const Variable v = Variable::create(context_, Tensor::scalar(5.0f)).value();
    EXPECT_EQ(resources(), 2u);
    ASSERT_TRUE(v.assign_add(scalar(2)).ok());
    const TensorRef before = v.read().value();
    ASSERT_TRUE(v.assign_sub(scalar(1)).ok());
    EXPECT_EQ(values(before), std::vector<float>{7});
    EXPECT_EQ(values(v.read().value()), std::vector<float>{6});
  }
  EXPECT_EQ(resources(), 1u);
}

// A stream of random numbers goes on as long as ops with these seeds are called, and no other op
// shares it.
TEST_F(EagerContextTest, RandomStreamsGoOn) {
  const TensorRef shape = context_->tensor(Tensor::vector<int32_t>({4}));
  const auto draw = [&](int64_t seed) {
    return values(run("RandomUniform", {shape},
                      {{"dtype", DType::kFloat}, {"seed", seed}, {"seed2", int64_t{7}}}));
  };
  const auto first = draw(1), other = draw(2), second = draw(1);
  EXPECT_NE(first, other);
  EXPECT_NE(first, second);
  context_->clear_cache();
  EXPECT_EQ(draw(1), first);
  EXPECT_EQ(draw(1), second);
}

TEST_F(EagerContextTest, StateOfOneCallGoesWithIt) {
  const size_t before = resources(), cached = context_->cached_ops();
  const TensorRef shape = context_->tensor(Tensor::vector<int32_t>({4}));
  for (int64_t seed = 0; seed < 1000; ++seed) {
    Op op = context_->op("RandomUniform", {{"dtype", DType::kFloat}, {"seed", seed}}).value();
    op.once = seed % 2 == 0;
    ASSERT_TRUE(context_->execute_one(op, {shape}).ok());
  }
  // What is kept has a limit.
  EXPECT_LE(resources() - before, 256u);
  EXPECT_LE(context_->cached_ops() - cached, 256u);
  context_->clear_cache();
  EXPECT_EQ(resources(), before);
}

TEST_F(EagerContextTest, BadOptions) {
  EXPECT_EQ(EagerContext::create({}).status().code(), Code::kInvalidArgument);
  ContextOptions options;
  options.devices.assign(context_->devices().begin(), context_->devices().end());
  options.default_device = 1;
  EXPECT_EQ(EagerContext::create(std::move(options)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(context_->op("Add", {}, "/device:GPU:0").status().code(), Code::kNotFound);
}

TEST_F(EagerContextTest, TracesWhatRuns) {
  EXPECT_EQ(context_->stop_trace().status().code(), Code::kFailedPrecondition);
  run("Add", {scalar(1), scalar(2)});
  context_->start_trace();
  run("Mul", {vector({1, 2}), scalar(2)});
  const TensorRef v = run("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape{}}});
  ASSERT_TRUE(context_->execute("AssignVariableOp", {v, scalar(1)}).ok());
  EXPECT_FALSE(context_->execute("MatMul", {scalar(1), scalar(2)}).ok());
  const Result<std::vector<TraceEvent>> events = context_->stop_trace();
  run("Sub", {scalar(1), scalar(2)});
  ASSERT_TRUE(events.ok()) << events.status().to_string();
  std::vector<std::string> ops;
  for (const TraceEvent& event : *events) {
    ops.push_back(event.op);
    EXPECT_EQ(event.device, context_->host().name());
    EXPECT_GE(event.end_ns, event.start_ns);
    EXPECT_GT(event.thread, 0u);
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"Mul", "VarHandleOp", "AssignVariableOp", "MatMul"}));
  EXPECT_EQ(events->front().allocated_bytes, 8);
  EXPECT_FALSE(context_->stop_trace().ok());
}

}  // namespace
}  // namespace millrace::eager
