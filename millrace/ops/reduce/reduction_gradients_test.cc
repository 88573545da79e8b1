#include "millrace/ops/reduce/reduction_gradients.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

// Gradient rules of this folder against differences: a builder computes every op of a rule at once.

namespace millrace {
namespace {

const bool registered =
    register_for_tests({register_array_ops, register_math_ops, register_reduce_ops});

using C = Complex128;

struct Case {
  const char* op;
  std::vector<Tensor> inputs;  // the first is differentiated
  AttrMap attrs;
};

Tensor run(const Case& c, const Tensor& x) {
  OpTester tester(c.op);
  for (const auto& [name, value] : c.attrs) tester.attr(name, value);
  tester.input(x);
  for (size_t i = 1; i < c.inputs.size(); ++i) tester.input(c.inputs[i]);
  return tester.run_one().value();
}

double objective(const Case& c, const Tensor& x, const std::vector<C>& dy) {
  const std::vector<C> y = values_of(run(c, x));
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i].real() * dy[i].real();
  return sum;
}

std::vector<C> by_differences(const Case& c, const std::vector<C>& dy) {
  constexpr double kStep = 1e-6;
  const Tensor& x = c.inputs[0];
  std::vector<C> values = values_of(x), gradient(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<C> moved = values;
    moved[i] += kStep;
    const double high = objective(c, make_tensor(DType::kDouble, x.shape(), moved), dy);
    moved[i] -= 2 * kStep;
    const double low = objective(c, make_tensor(DType::kDouble, x.shape(), moved), dy);
    gradient[i] = (high - low) / (2 * kStep);
  }
  return gradient;
}

std::vector<C> by_rule(const Case& c, const Tensor& dy, bool hide_sizes) {
  EagerBuilder builder;
  if (hide_sizes) builder.shapes = EagerBuilder::Shapes::kRankOnly;
  std::vector<Expr> in;
  std::vector<DType> types;
  for (const Tensor& t : c.inputs) in.push_back(builder.constant(t)), types.push_back(t.dtype());
  const Expr out = builder.constant(run(c, c.inputs[0]));
  AttrMap attrs = c.attrs;
  for (const char* name : {"keep_dims", "exclusive", "reverse"}) {
    if (attrs.find(name) == nullptr) attrs.set(name, false);
  }
  GradientContext context(builder, in, {out}, {builder.constant(dy)}, attrs, types);
  const Status status = OpRegistry::global().find(c.op)->gradient(context);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(builder.status().ok()) << builder.status().to_string();
  const Expr gradient = context.input_gradients()[0].values;
  if (!builder.status().ok() || !gradient.valid()) return {};
  EXPECT_EQ(builder.tensor(gradient).shape(), c.inputs[0].shape());
  return values_of(builder.tensor(gradient));
}

void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.op << " " << c.inputs[0].shape().to_string());
  const Tensor dy = random_tensor(DType::kDouble, run(c, c.inputs[0]).shape(), 99);
  const std::vector<C> expected = by_differences(c, values_of(dy));
  for (bool hide_sizes : {false, true}) {
    const std::vector<C> actual = by_rule(c, dy, hide_sizes);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i].real(), expected[i].real(), 1e-7) << "element " << i;
    }
  }
}

Tensor axes_of(const std::vector<int32_t>& axes) {
  return Tensor::vector(std::span<const int32_t>(axes));
}

TEST(ReductionGradients, MatchDifferences) {
  const Tensor x = random_tensor(DType::kDouble, {2, 3, 4}, 5);
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) {
    for (bool keep_dims : {false, true}) {
      for (const std::vector<int32_t>& axes : {std::vector<int32_t>{1}, {-1}, {0, 1, 2}}) {
        check({op, {x, axes_of(axes)}, {{"keep_dims", keep_dims}}});
      }
      check({op, {x, Tensor::scalar<int64_t>(-2)}, {{"keep_dims", keep_dims}}});
    }
    check({op, {Tensor::scalar(2.5), axes_of({})}, {}});
  }
}

TEST(ReductionGradients, SeveralAxes) {
  const Tensor x = random_tensor(DType::kDouble, {2, 3, 4}, 5);
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) {
    check({op, {x, axes_of({2, 0})}, {}});
    check({op, {x, axes_of({})}, {}});
  }
}

TEST(ReductionGradients, EqualExtremesShare) {
  const Case c = {"Max", {Tensor::of<double>({2, 2}, {3, 3, 1, 2}), axes_of({1})}, {}};
  EXPECT_EQ(by_rule(c, Tensor::vector<double>({4, 5}), false), (std::vector<C>{2, 2, 0, 5}));
}

TEST(ReductionGradients, ProductsWithZeros) {
  const Case c = {"Prod", {Tensor::vector<double>({2, 0, 5}), axes_of({0})}, {}};
  EXPECT_EQ(by_rule(c, Tensor::scalar(1.0), false), (std::vector<C>{0, 10, 0}));
}

TEST(ScanGradients, MatchDifferences) {
  const Tensor x = random_tensor(DType::kDouble, {3, 4}, 6);
  for (const char* op : {"Cumsum", "Cumprod"}) {
    for (bool exclusive : {false, true}) {
      for (bool reverse : {false, true}) {
        check({op,
               {x, Tensor::scalar<int32_t>(1)},
               {{"exclusive", exclusive}, {"reverse", reverse}}});
      }
    }
  }
}

TEST(SegmentSumGradients, MatchDifferences) {
  const Tensor x = random_tensor(DType::kDouble, {3, 2}, 7);
  const Tensor three = Tensor::scalar<int32_t>(3);
  check({"UnsortedSegmentSum", {x, Tensor::vector<int32_t>({2, -1, 2}), three}, {}});
  check({"UnsortedSegmentSum", {x, Tensor::of<int64_t>({3, 2}, {2, -1, 2, 0, 0, 1}), three}, {}});
  check({"SegmentSum", {x, Tensor::vector<int32_t>({0, 0, 1})}, {}});
}

// More elements than half can count, and more digits than bfloat16 has.
TEST(ReductionGradients, CountsOfSmallTypesAreExact) {
  for (const auto& [dtype, n] : {std::pair{DType::kHalf, 70000}, {DType::kBFloat16, 257}}) {
    const Tensor x = *Tensor::zeros(dtype, Shape{n}), axis = Tensor::scalar<int32_t>(0);
    const Tensor ids = *Tensor::zeros(DType::kInt32, Shape{n});
    const double share = 1.0 / n, close = dtype == DType::kHalf ? 6e-8 : share / 500;
    for (const Case& c : {Case{"Mean", {x, axis}, {}},
                          {"Max", {x, axis}, {}},
                          {"SegmentMean", {x, ids}, {}},
                          {"SegmentMax", {x, ids}, {}}}) {
      SCOPED_TRACE(str_cat(c.op, " of ", dtype));
      const Tensor dy = make_tensor(dtype, run(c, x).shape(), {C(1)});
      for (bool hide_sizes : {false, true}) {
        EXPECT_NEAR(by_rule(c, dy, hide_sizes)[0].real(), share, close);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
