#include "millrace/ops/queue/accumulator.h"

#include <gtest/gtest.h>

#include <list>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }
Tensor longs(std::initializer_list<int64_t> values) { return Tensor::vector(values); }

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

// One accumulator and the ops on it.
class Accumulators : public testing::Test {
 protected:
  void make(const std::string& op, const AttrMap& attrs) {
    OpTester tester(env_, op);
    tester.attr("dtype", dtype_);
    for (const auto& [key, value] : attrs) tester.attr(key, value);
    Result<std::vector<Value>> made = tester.run_values();
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    handle_ = (*made)[0];
  }
  OpTester& on(const std::string& op) {
    const bool resource = !handle_.is_ref();
    OpTester& tester = testers_.emplace_back(env_, resource ? "Resource" + op : op);
    return resource ? tester.input(handle_.tensor) : tester.input_ref(handle_.cell);
  }
  Status apply(const Tensor& gradient, int64_t local_step = 0) {
    return on("AccumulatorApplyGradient")
        .input(Tensor::scalar(local_step))
        .input(gradient)
        .run()
        .status();
  }
  Status apply_rows(const Tensor& indices, const Tensor& values, int64_t local_step = 0,
                    const Tensor& shape = Tensor()) {
    return on("SparseAccumulatorApplyGradient")
        .attr("has_known_shape", shape.valid())
        .input(Tensor::scalar(local_step))
        .input(indices)
        .input(values)
        .input(shape.valid() ? shape : longs({}))
        .run()
        .status();
  }
  Ref<OpRun> start_take(int32_t required, const std::string& op = "AccumulatorTakeGradient") {
    return on(op).attr("dtype", dtype_).input(Tensor::scalar(required)).start().value();
  }
  Result<std::vector<Tensor>> take_rows(int32_t required) {
    return tensors(start_take(required, "SparseAccumulatorTakeGradient"));
  }
  Result<Tensor> take(int32_t required) {
    MR_TRY_ASSIGN(std::vector<Tensor> out, tensors(start_take(required)));
    return out[0];
  }
  static Result<std::vector<Tensor>> tensors(const Ref<OpRun>& run) {
    MR_TRY_ASSIGN(std::vector<Value> values, run->wait());
    std::vector<Tensor> out;
    for (Value& value : values) out.push_back(std::move(value.tensor));
    return out;
  }
  int count() { return on("AccumulatorNumAccumulated").run_one().value().item<int32_t>(); }
  void set_step(int64_t step) {
    EXPECT_TRUE(on("AccumulatorSetGlobalStep").input(Tensor::scalar(step)).run().ok());
  }

  OpEnv env_;
  std::list<OpTester> testers_;
  Value handle_;
  DType dtype_ = DType::kFloat;
};

TEST_F(Accumulators, MeanAndSum) {
  for (const char* op : {"ConditionalAccumulator", "ResourceConditionalAccumulator"}) {
    for (const char* reduction : {"MEAN", "SUM"}) {
      make(op, {{"shape", Shape{2}}, {"reduction_type", reduction}});
      ASSERT_TRUE(apply(floats({1, 4})).ok());
      ASSERT_TRUE(apply(floats({3, -2})).ok());
      EXPECT_EQ(count(), 2);
      const bool mean = std::string_view(reduction) == "MEAN";
      expect_tensor_equal(*take(1), mean ? floats({2, 1}) : floats({4, 2}));
      EXPECT_EQ(count(), 0);
    }
  }
}

// 2048 + 1 is 2048 in half.
TEST_F(Accumulators, SumsOfHalfAreRoundedOnce) {
  dtype_ = DType::kHalf;
  const auto halves = [](float x) { return Tensor::vector<Half>({Half(x)}); };
  make("ConditionalAccumulator", {{"shape", Shape{1}}, {"reduction_type", "SUM"}});
  for (float x : {2048, 1, 1}) ASSERT_TRUE(apply(halves(x)).ok());
  expect_tensor_equal(*take(3), halves(2050));
  make("SparseConditionalAccumulator", {{"shape", Shape{5}}, {"reduction_type", "SUM"}});
  for (float x : {2048, 1, 1}) ASSERT_TRUE(apply_rows(longs({3}), halves(x)).ok());
  expect_tensor_equal((*take_rows(3))[1], halves(2050));
}

TEST_F(Accumulators, ATakeWaitsForEnough) {
  make("ConditionalAccumulator", {{"shape", Shape{1}}});
  Ref<OpRun> first = start_take(2), second = start_take(1);
  ASSERT_TRUE(apply(floats({10})).ok());
  EXPECT_FALSE(first->done());
  EXPECT_FALSE(second->done()) << "takes are served in order";
  ASSERT_TRUE(apply(floats({20})).ok());
  expect_tensor_equal((*tensors(first))[0], floats({15}));
  EXPECT_FALSE(second->done());
  ASSERT_TRUE(apply(floats({7}), 1).ok());
  expect_tensor_equal((*tensors(second))[0], floats({7}));
}

TEST_F(Accumulators, OldGradientsAreDropped) {
  make("ConditionalAccumulator", {{"shape", Shape{1}}});
  set_step(3);
  ASSERT_TRUE(apply(floats({10}), 2).ok());
  ASSERT_TRUE(apply(floats({20}), 3).ok());
  ASSERT_TRUE(apply(floats({40}), 5).ok());
  EXPECT_EQ(count(), 2);
  expect_tensor_equal(*take(2), floats({30}));
  ASSERT_TRUE(apply(floats({1}), 3).ok());
  EXPECT_EQ(count(), 0) << "a take moves the step on";
  ASSERT_TRUE(apply(floats({1}), 4).ok());
  EXPECT_EQ(count(), 1);
}

TEST_F(Accumulators, EachGiverCountsOnceUntilTheNextTake) {
  const auto give = [&](const char* giver, float x, int64_t step = 0) {
    OpTester& tester = on("AccumulatorGiveGradient").input(Tensor::scalar<int64_t>(0));
    tester.input(Tensor::scalar(step));
    return tester.input(Tensor::scalar(std::string(giver))).input(floats({x})).run_one();
  };
  make("ResourceConditionalAccumulator", {{"shape", Shape{1}}});
  EXPECT_TRUE(give("a", 1)->item<bool>());
  EXPECT_FALSE(give("a", 5)->item<bool>());
  EXPECT_TRUE(give("b", 3)->item<bool>());
  expect_tensor_equal(*take(2), floats({2}));
  EXPECT_FALSE(give("a", 1, 0)->item<bool>()) << "its step is past";
  EXPECT_TRUE(give("a", 1, 1)->item<bool>());
  EXPECT_TRUE(give("", 1, 1)->item<bool>());
  EXPECT_TRUE(give("", 4, 1)->item<bool>()) << "nobody's gradients all count";
  expect_tensor_equal(*take(1), floats({2}));
  // One that does not fit is not counted as given.
  OpTester& wrong = on("AccumulatorGiveGradient").input(Tensor::scalar<int64_t>(0));
  wrong.input(Tensor::scalar<int64_t>(2));
  expect_error(wrong.input(Tensor::scalar(std::string("a"))).input(floats({1, 2})).run().status(),
               Code::kInvalidArgument, "Shape mismatch");
  EXPECT_TRUE(give("a", 1, 2)->item<bool>());
  make("SparseConditionalAccumulator", {{"shape", Shape{5}}});
  for (const bool first : {true, false}) {
    OpTester& tester = on("SparseAccumulatorGiveGradient").input(Tensor::scalar<int64_t>(0));
    tester.input(Tensor::scalar<int64_t>(0));
    tester.input(Tensor::scalar(std::string("a"))).input(longs({3})).input(floats({2}));
    tester.attr("has_known_shape", false).input(longs({}));
    EXPECT_EQ(tester.run_one()->item<bool>(), first);
  }
  expect_tensor_equal((*take_rows(1))[1], floats({2}));
}

TEST_F(Accumulators, AnEraKeepsWhatWasTakenForAStep) {
  const auto number = [](int64_t x) { return Tensor::scalar(x); };
  const auto begin = [&](int64_t era, int64_t step) {
    EXPECT_TRUE(on("AccumulatorBegin").input(number(era)).input(number(step)).run().ok());
  };
  const auto give = [&](int64_t era, int64_t step, const char* giver, float x) {
    OpTester& tester = on("AccumulatorGiveGradient").input(number(era)).input(number(step));
    tester.input(Tensor::scalar(std::string(giver))).input(floats({x}));
    return tester.run_one()->item<bool>();
  };
  const auto take = [&](int64_t era, int64_t step, int32_t required) {
    OpTester& tester = on("AccumulatorTakeStep").attr("dtype", dtype_).input(number(era));
    return tester.input(number(step)).input(Tensor::scalar(required)).start().value();
  };
  make("ResourceConditionalAccumulator", {{"shape", Shape{1}}});
  begin(7, 3);
  EXPECT_FALSE(give(6, 3, "a", 9)) << "of another era";
  EXPECT_FALSE(give(7, 2, "a", 9)) << "of a step that is past";
  EXPECT_TRUE(give(7, 3, "a", 1));
  begin(7, 3);
  EXPECT_EQ(count(), 1) << "the era goes on";
  Ref<OpRun> first = take(7, 3, 2), second = take(7, 3, 2);
  EXPECT_TRUE(give(7, 3, "b", 4));
  expect_tensor_equal((*tensors(first))[0], floats({2.5}));
  expect_tensor_equal((*tensors(second))[0], floats({2.5}));
  EXPECT_FALSE(give(7, 3, "a", 1)) << "the step is taken";
  expect_tensor_equal((*tensors(take(7, 3, 2)))[0], floats({2.5}));
  expect_error(take(7, 5, 1)->wait().status(), Code::kAborted, "is at step 4, not 5");
  expect_error(take(6, 3, 1)->wait().status(), Code::kAborted, "in another era");
  // Who gives to the next step knows that this one is over.
  EXPECT_TRUE(give(7, 4, "a", 6));
  expect_error(take(7, 3, 1)->wait().status(), Code::kAborted, "is at step 4, not 3");
  // Another era: from nothing.
  Ref<OpRun> waiting = take(7, 4, 2);
  begin(8, 1);
  expect_error(waiting->wait().status(), Code::kAborted, "begins anew at step 1");
  EXPECT_EQ(count(), 0);
  EXPECT_FALSE(give(7, 4, "a", 6));
  EXPECT_TRUE(give(8, 1, "a", 6));
  Ref<OpRun> of_step = take(8, 1, 2);
  set_step(2);
  expect_error(of_step->wait().status(), Code::kAborted, "is at step 2, not 1");
  // Whichever era it is.
  EXPECT_TRUE(give(0, 2, "b", 8));
  expect_tensor_equal((*tensors(take(0, 9, 2)))[0], floats({7}));
}

TEST_F(Accumulators, CancelledTake) {
  make("ConditionalAccumulator", {{"shape", Shape{1}}});
  Ref<OpRun> first = start_take(2), second = start_take(1);
  ASSERT_TRUE(apply(floats({5})).ok());
  first->cancel();
  expect_error(first->wait().status(), Code::kCancelled, "TakeGrad operation was cancelled");
  expect_tensor_equal((*tensors(second))[0], floats({5}));
}

TEST_F(Accumulators, RefuseWhatDoesNotFit) {
  make("ConditionalAccumulator", {{"shape", PartialShape({-1, 2})}});
  expect_error(apply(floats({1, 2})), Code::kInvalidArgument,
               "Shape mismatch: expected [?,2], got [2]");
  ASSERT_TRUE(apply(Tensor::of<float>({1, 2}, {1, 2})).ok());
  expect_error(apply(Tensor::of<float>({2, 2}, {1, 2, 3, 4})), Code::kInvalidArgument,
               "Shape mismatch: expected [1,2], got [2,2]");
  expect_error(apply(Tensor::of<double>({1, 2}, {1, 2})), Code::kInvalidArgument, "type float");
  expect_error(apply_rows(longs({0}), Tensor::of<float>({1, 2}, {1, 2})), Code::kInvalidArgument,
               "holds dense gradients");
  expect_error(start_take(1, "SparseAccumulatorTakeGradient")->wait().status(),
               Code::kInvalidArgument, "holds dense gradients");
  expect_error(take(0).status(), Code::kInvalidArgument, "must be positive, but is 0");
  expect_tensor_equal(*take(1), Tensor::of<float>({1, 2}, {1, 2}));
}

TEST_F(Accumulators, SharedNames) {
  make("ConditionalAccumulator", {{"shape", Shape{1}}, {"shared_name", "g"}});
  ASSERT_TRUE(apply(floats({5})).ok());
  make("ConditionalAccumulator", {{"shape", Shape{1}}, {"shared_name", "g"}});
  EXPECT_EQ(count(), 1);
  expect_error(OpTester(env_, "SparseConditionalAccumulator")
                   .attr("dtype", DType::kFloat)
                   .attr("shape", Shape{1})
                   .attr("shared_name", "g")
                   .run_values()
                   .status(),
               Code::kInvalidArgument, "is the mean of float [1], this node expects the sparse");
}

TEST_F(Accumulators, IntegersAndComplexNumbers) {
  make("ConditionalAccumulator", {{"dtype", DType::kInt8}, {"shape", PartialShape()}});
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(apply(Tensor::vector<int8_t>({1, -1, 0})).ok());
  Tensor y = *OpTester(env_, "AccumulatorTakeGradient")
                  .input_ref(handle_.cell)
                  .attr("dtype", DType::kInt8)
                  .input(Tensor::scalar<int32_t>(300))
                  .run_one();
  // 300 wraps to 44 in eight bits, and 44 / 300 is 0.
  expect_tensor_equal(y, Tensor::vector<int8_t>({0, 0, 0}));
  make("ConditionalAccumulator", {{"dtype", DType::kComplex64}, {"shape", PartialShape()}});
  ASSERT_TRUE(apply(Tensor::scalar(Complex64(2, 4))).ok());
  ASSERT_TRUE(apply(Tensor::scalar(Complex64(0, 2))).ok());
  y = *OpTester(env_, "AccumulatorTakeGradient")
           .input_ref(handle_.cell)
           .attr("dtype", DType::kComplex64)
           .input(Tensor::scalar<int32_t>(1))
           .run_one();
  expect_tensor_equal(y, Tensor::scalar(Complex64(1, 3)));
}

TEST_F(Accumulators, RowsAreDividedByTheirOwnCount) {
  make("SparseConditionalAccumulator", {{"shape", PartialShape({-1, 2})}});
  ASSERT_TRUE(apply_rows(longs({4, 0}), Tensor::of<float>({2, 2}, {1, 2, 3, 4})).ok());
  ASSERT_TRUE(apply_rows(longs({2, 4}), Tensor::of<float>({2, 2}, {5, 6, 7, 8})).ok());
  const std::vector<Tensor> y = *take_rows(2);
  expect_tensor_equal(y[0], longs({0, 2, 4}));
  expect_tensor_equal(y[1], Tensor::of<float>({3, 2}, {3, 4, 5, 6, 4, 5}));
  expect_tensor_equal(y[2], longs({-1, 2}));
}

TEST_F(Accumulators, RowsInParts) {
  make("SparseConditionalAccumulator", {{"shape", Shape{5}}});
  ASSERT_TRUE(apply_rows(longs({1, 1, 3}), floats({1, 2, 3})).ok());
  ASSERT_TRUE(apply_rows(longs({1}), floats({5})).ok());
  ASSERT_TRUE(apply_rows(longs({}), floats({})).ok());
  const std::vector<Tensor> y = *take_rows(3);
  expect_tensor_equal(y[0], longs({1, 3}));
  expect_tensor_equal(y[1], floats({4, 3}));
  expect_tensor_equal(y[2], longs({5}));
}

TEST_F(Accumulators, RowsWithoutElements) {
  make("SparseConditionalAccumulator", {{"shape", PartialShape()}});
  ASSERT_TRUE(apply_rows(longs({}), Tensor::of<float>({0, 3}, {})).ok());
  std::vector<Tensor> y = *take_rows(1);
  EXPECT_EQ(y[1].shape(), (Shape{0, 3}));
  ASSERT_TRUE(apply_rows(longs({2}), Tensor::of<float>({1, 0}, {}), 1).ok());
  y = *take_rows(1);
  EXPECT_EQ(y[1].shape(), (Shape{1, 0}));
  expect_tensor_equal(y[0], longs({2}));
}

TEST_F(Accumulators, RefuseRowsThatDoNotFit) {
  make("SparseConditionalAccumulator", {{"shape", PartialShape({2, 2, -1})}});
  const auto refused = [&](const Status& status, std::string_view part) {
    expect_error(status, Code::kInvalidArgument, part);
  };
  const Tensor fits = random_tensor(DType::kFloat, {1, 2, 2}, 1);
  refused(apply_rows(longs({0}), fits, 0, longs({2, 2})), "expected shape rank at least 3, got 2");
  refused(apply_rows(longs({0}), fits, 0, longs({2, 3, 2})), "expected shape dim 1 to be 2, got 3");
  refused(apply_rows(longs({3}), fits), "index of slice 0 exceeded limits of shape; index is 3");
  refused(apply_rows(longs({-1}), fits), "must not be negative");
  refused(apply_rows(Tensor::scalar<int64_t>(0), fits), "Input indices should be vector");
  refused(apply_rows(longs({0}), Tensor::scalar(1.0F)), "Values cannot be 0-dimensional.");
  refused(apply_rows(longs({0, 1}), fits), "Expected 2 non-empty input values, got 1");
  refused(apply_rows(longs({0}), random_tensor(DType::kFloat, {1, 2}, 1)),
          "expected values rank at least 3, got 2");
  refused(apply_rows(longs({0}), random_tensor(DType::kFloat, {1, 3, 2}, 1)),
          "expected values dim 1 to be 2, got 3");
  ASSERT_TRUE(apply_rows(longs({0}), random_tensor(DType::kFloat, {1, 2, 2, 2}, 1)).ok());
  refused(apply_rows(longs({0}), fits), "expected values rank 4, got 3");
  refused(apply_rows(longs({0}), random_tensor(DType::kFloat, {1, 2, 2, 3}, 1)),
          "expected values dim 3 to be 2, got 3");
  ASSERT_TRUE(take_rows(1).ok());
  EXPECT_TRUE(apply_rows(longs({0}), fits, 1).ok());
}

}  // namespace
}  // namespace millrace
