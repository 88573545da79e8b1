#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

using C = Complex128;

Tensor axes_of(const std::vector<int32_t>& axes) {
  return Tensor::vector(std::span<const int32_t>(axes));
}

Result<Tensor> reduce(const char* op, const Tensor& x, const std::vector<int32_t>& axes,
                      bool keep_dims = false) {
  return OpTester(op).attr("keep_dims", keep_dims).input(x).input(axes_of(axes)).run_one();
}

C fold(std::string_view op, C a, C b) {
  if (op == "Sum" || op == "Mean") return a + b;
  if (op == "Prod") return a * b;
  if (op == "Max" || op == "Any") return a.real() > b.real() ? a : b;
  return a.real() < b.real() ? a : b;
}

// One element after the other, in double. No reduced dimension is empty.
std::vector<C> reference(std::string_view op, const Tensor& x, const std::vector<int32_t>& axes) {
  const Shape& shape = x.shape();
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  int64_t per_result = 1, outputs = 1;
  for (int32_t axis : axes)
    reduced[static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis)] = true;
  for (int i = 0; i < shape.rank(); ++i) {
    (reduced[static_cast<size_t>(i)] ? per_result : outputs) *= shape.dim(i);
  }
  std::vector<C> out(static_cast<size_t>(outputs));
  std::vector<bool> begun(out.size());
  const std::vector<C> values = values_of(x);
  for (int64_t flat = 0; flat < x.num_elements(); ++flat) {
    int64_t at = 0, scale = 1, rest = flat;
    for (int i = shape.rank() - 1; i >= 0; rest /= shape.dim(i), --i) {
      if (reduced[static_cast<size_t>(i)]) continue;
      at += rest % shape.dim(i) * scale;
      scale *= shape.dim(i);
    }
    const auto k = static_cast<size_t>(at);
    const C v = values[static_cast<size_t>(flat)];
    out[k] = begun[k] ? fold(op, out[k], v) : v;
    begun[k] = true;
  }
  if (op == "Mean") {
    for (C& v : out) v /= static_cast<double>(per_result);
  }
  return out;
}

void expect_values(const Tensor& actual, const std::vector<C>& expected, double tolerance) {
  const std::vector<C> values = values_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(values[i] - expected[i]), tolerance * (1 + std::abs(expected[i])))
        << "element " << i << " is " << values[i] << ", expected " << expected[i];
  }
}

struct Case {
  Shape shape;
  std::vector<int32_t> axes;
};

// Rows, columns, narrow columns, long and short, and mixtures that take several passes.
const Case kCases[] = {
    {{}, {}},
    {{3}, {}},
    {{1}, {0}},
    {{5}, {0}},
    {{17}, {-1}},
    {{100}, {0}},
    {{5000}, {0}},
    {{3, 4}, {0}},
    {{3, 4}, {1}},
    {{3, 4}, {1, 0}},
    {{7, 100}, {1}},
    {{7, 2500}, {-1}},
    {{1000, 3}, {0}},
    {{1001, 31}, {0}},
    {{300, 40}, {0}},
    {{2, 2100}, {0}},
    {{2, 300, 5}, {1}},
    {{2, 3, 4, 5}, {1, 3}},
    {{2, 3, 4, 5}, {0, 2}},
    {{2, 3, 4, 5}, {0, -1}},
    {{4, 1, 6}, {1}},
    {{2, 3, 2, 3, 2, 3, 2, 3}, {0, 2, 4, 6}},
};

TEST(Reductions, MatchReference) {
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(testing::Message() << op << c.shape.to_string());
      const Tensor x = random_tensor(DType::kFloat, c.shape, 7);
      for (bool keep_dims : {false, true}) {
        Result<Tensor> y = reduce(op, x, c.axes, keep_dims);
        ASSERT_TRUE(y.ok()) << y.status().to_string();
        const double scale = std::string_view(op) == "Sum" ? 30 : 1;  // sums that cancel
        expect_values(*y, reference(op, x, c.axes), 1e-6 * scale);
        EXPECT_EQ(y->rank(),
                  keep_dims ? c.shape.rank() : c.shape.rank() - static_cast<int>(c.axes.size()));
      }
    }
  }
}

TEST(Reductions, EveryType) {
  const Case cases[] = {{{2, 3, 4}, {1}}, {{6, 5}, {1}}, {{4, 70}, {0}}, {{40, 3}, {0}}};
  for (const char* op : {"Sum", "Mean", "Prod", "Max", "Min"}) {
    const std::vector<DType> types = kernel_types(op);
    const bool ordered = op == std::string_view("Max") || op == std::string_view("Min");
    ASSERT_EQ(types.size(), ordered ? 12u : 14u);
    for (DType dtype : types) {
      for (const Case& c : cases) {
        SCOPED_TRACE(testing::Message() << op << dtype_name(dtype) << c.shape.to_string());
        // Small numbers, so that nothing wraps: 1 or 2, three of them 2.
        std::vector<C> values(static_cast<size_t>(c.shape.num_elements()), 1);
        for (size_t i = 0; i < 3; ++i) values[i * 2] = 2;
        const Tensor x = make_tensor(dtype, c.shape, values);
        std::vector<C> expected = reference(op, x, c.axes);
        if (std::string_view(op) == "Mean" && kIntegers.contains(dtype)) {
          for (C& v : expected) v = std::trunc(v.real());
        }
        Result<Tensor> y = reduce(op, x, c.axes);
        ASSERT_TRUE(y.ok()) << y.status().to_string();
        expect_values(*y, expected, tolerance_of(dtype));
      }
    }
  }
}

TEST(Reductions, ComplexNumbers) {
  const Tensor x = random_tensor(DType::kComplex128, {3, 40, 2}, 3);
  for (const char* op : {"Sum", "Mean", "Prod"}) {
    for (const std::vector<int32_t>& axes :
         {std::vector<int32_t>{0}, {1}, {2}, {0, 2}, {0, 1, 2}}) {
      expect_values(*reduce(op, x, axes), reference(op, x, axes), 1e-13);
    }
  }
}

TEST(Reductions, LargeUnsigned) {
  const Tensor x = Tensor::vector<uint64_t>({1, ~uint64_t{0}, 5});
  EXPECT_EQ(reduce("Max", x, {0})->item<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(reduce("Min", x, {0})->item<uint64_t>(), 1u);
  EXPECT_EQ(reduce("Sum", x, {0})->item<uint64_t>(), 5u);
}

TEST(Reductions, IntegersWrap) {
  EXPECT_EQ(reduce("Sum", Tensor::vector<int8_t>({100, 100}), {0})->item<int8_t>(), -56);
  EXPECT_EQ(reduce("Prod", Tensor::vector<int32_t>({1 << 30, 4}), {0})->item<int32_t>(), 0);
  // The sum of a mean does not.
  EXPECT_EQ(reduce("Mean", Tensor::vector<int8_t>({100, 120}), {0})->item<int8_t>(), 110);
  EXPECT_EQ(reduce("Mean", Tensor::vector<int32_t>({-3, -4}), {0})->item<int32_t>(), -3);
}

TEST(Reductions, HalfSumsInFloat) {
  const std::vector<C> ones(4096, 1);
  for (DType dtype : {DType::kHalf, DType::kBFloat16}) {
    EXPECT_EQ(values_of(*reduce("Sum", make_tensor(dtype, {4096}, ones), {0}))[0], 4096.0);
    EXPECT_EQ(values_of(*reduce("Sum", make_tensor(dtype, {4096, 1, 1}, ones), {0}))[0], 4096.0);
  }
}

TEST(Reductions, SumsAreAccurate) {
  Tensor x = Tensor::allocate(DType::kFloat, {1 << 20}).value();
  for (float& v : x.mutable_data<float>()) v = 0.1F;
  const double exact = static_cast<double>(0.1F) * (1 << 20);
  EXPECT_NEAR(reduce("Sum", x, {0})->item<float>(), exact, exact * 1e-6);
  const Tensor columns = x.reshaped({1 << 17, 8}).value();
  const Tensor sums = reduce("Sum", columns, {0}).value();
  for (float v : sums.data<float>()) EXPECT_NEAR(v, exact / 8, exact * 1e-7);
}

TEST(Reductions, DoNotDependOnThreads) {
  for (const Case& c : {Case{{300000}, {0}}, Case{{3000, 100}, {0}}, Case{{50000, 6}, {0}},
                        Case{{100, 3000}, {1}}, Case{{30, 100, 100}, {0, 2}}}) {
    const Tensor x = random_tensor(DType::kFloat, c.shape, 11);
    for (const char* op : {"Sum", "Mean", "Prod"}) {
      OpTester one(op), four(op);
      const Tensor a = *one.threads(1).input(x).input(axes_of(c.axes)).run_one();
      const Tensor b = *four.threads(4).input(x).input(axes_of(c.axes)).run_one();
      expect_tensor_equal(a, b);
    }
  }
}

TEST(Reductions, NothingToReduce) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::allocate(DType::kFloat, {0, 2}).value();
  EXPECT_EQ(reduce("Sum", x, {0})->data<float>()[1], 0);
  EXPECT_EQ(reduce("Prod", x, {0})->data<float>()[1], 1);
  EXPECT_EQ(reduce("Max", x, {0})->data<float>()[0], -inf);
  EXPECT_EQ(reduce("Min", x, {0, 1})->item<float>(), inf);
  EXPECT_TRUE(std::isnan(reduce("Mean", x, {0, 1})->item<float>()));
  EXPECT_EQ(reduce("Sum", x, {1})->shape(), Shape({0}));
  EXPECT_EQ(reduce("Sum", x, {})->shape(), Shape({0, 2}));
  const Tensor ints = Tensor::allocate(DType::kInt32, {0}).value();
  EXPECT_EQ(reduce("Max", ints, {0})->item<int32_t>(), std::numeric_limits<int32_t>::lowest());
  EXPECT_EQ(reduce("Mean", ints, {0})->item<int32_t>(), 0);
  const Tensor bools = Tensor::allocate(DType::kBool, {0}).value();
  EXPECT_TRUE(reduce("All", bools, {0})->item<bool>());
  EXPECT_FALSE(reduce("Any", bools, {0})->item<bool>());
}

// A NaN anywhere in a row of vectors; and infinities of both signs, whose sum is none.
TEST(Reductions, ExtremesOfLongRowsKeepNan) {
  constexpr int64_t kN = 300;
  std::vector<float> x(kN, 1);
  x[7] = std::numeric_limits<float>::infinity();
  x[200] = -x[7];
  EXPECT_EQ(reduce("Max", Tensor::vector(std::span<const float>(x)), {0})->item<float>(), x[7]);
  EXPECT_EQ(reduce("Min", Tensor::vector(std::span<const float>(x)), {0})->item<float>(), x[200]);
  for (size_t i = 0; i < kN; i += 13) {
    std::vector<float> y = x;
    y[i] = std::numeric_limits<float>::quiet_NaN();
    const Tensor row = Tensor::vector(std::span<const float>(y));
    EXPECT_TRUE(std::isnan(reduce("Max", row, {0})->item<float>())) << i;
    EXPECT_TRUE(std::isnan(reduce("Min", row, {0})->item<float>())) << i;
  }
}

TEST(Reductions, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Tensor& x : {Tensor::vector<float>({1, nan, 3}), Tensor::vector<float>({nan, 1, 3})}) {
    EXPECT_TRUE(std::isnan(reduce("Max", x, {0})->item<float>()));
    EXPECT_TRUE(std::isnan(reduce("Min", x, {0})->item<float>()));
  }
}

TEST(Reductions, AllAndAny) {
  const Tensor x = Tensor::of<bool>({3, 2}, {true, true, true, false, false, false});
  expect_tensor_equal(*reduce("All", x, {1}), Tensor::vector<bool>({true, false, false}));
  expect_tensor_equal(*reduce("Any", x, {1}), Tensor::vector<bool>({true, true, false}));
  expect_tensor_equal(*reduce("Any", x, {0}), Tensor::vector<bool>({true, true}));
}

TEST(Reductions, WithoutWorkHandTheInputOn) {
  const Tensor x = Tensor::of<float>({1, 2}, {1, 2});
  EXPECT_TRUE(reduce("Sum", x, {0})->shares_buffer_with(x));
  EXPECT_TRUE(reduce("Mean", x, {})->shares_buffer_with(x));
}

TEST(Reductions, TakeInt64AndScalarAxes) {
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor expected = Tensor::vector<float>({3, 7});
  expect_tensor_equal(*OpTester("Sum").input(x).input(Tensor::scalar<int32_t>(-1)).run_one(),
                      expected);
  expect_tensor_equal(*OpTester("Sum").input(x).input(Tensor::vector<int64_t>({1})).run_one(),
                      expected);
}

TEST(Reductions, RefuseBadAxes) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1);
  const struct {
    Tensor axes;
    const char* message;
  } cases[] = {
      {Tensor::vector<int32_t>({2}), "reduction axis"},
      {Tensor::vector<int32_t>({-3}), "reduction axis"},
      {Tensor::vector<int32_t>({0, -2}), "given twice"},
      {Tensor::vector<int32_t>({0, 1, 1}), "3 axes"},
      {Tensor::of<int32_t>({1, 1}, {0}), "at most rank 1"},
  };
  for (const auto& c : cases) {
    const Status status = OpTester("Sum").input(x).input(c.axes).run().status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find(c.message), std::string::npos) << status.to_string();
    const Result<std::string> shape =
        infer_shapes(OpRegistry::global(), "Sum", {}, "[2,3];?", {{1, c.axes}});
    EXPECT_EQ(shape.status().code(), Code::kInvalidArgument);
  }
}

TEST(Reductions, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap keep = {{"keep_dims", true}};
  EXPECT_EQ(*infer_shapes(ops, "Sum", {}, "[2,?,4];=[1]"), "[2,4]");
  EXPECT_EQ(*infer_shapes(ops, "Sum", {}, "[2,?,4];=-1"), "[2,?]");
  EXPECT_EQ(*infer_shapes(ops, "Sum", keep, "[2,?,4];=[0,1]"), "[1,1,4]");
  EXPECT_EQ(*infer_shapes(ops, "Sum", {}, "[2,3,4];[2]"), "[?]");
  EXPECT_EQ(*infer_shapes(ops, "Sum", {}, "[2,3,4];?"), "?");
  EXPECT_EQ(*infer_shapes(ops, "Sum", keep, "[2,3];?"), "[?,?]");
  EXPECT_EQ(*infer_shapes(ops, "Sum", {}, "?;=[0]"), "?");
  EXPECT_FALSE(infer_shapes(ops, "Sum", {}, "[2];[1,1]").ok());
}

TEST(Reductions, Values) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap ints = {{"T", DType::kInt32}};
  EXPECT_EQ(*infer_values(ops, "Prod", ints, "=[2,3,4];=[0]"), "24");
  EXPECT_EQ(*infer_values(ops, "Sum", ints, "=[2,3,4];=-1"), "9");
  EXPECT_EQ(*infer_values(ops, "Max", ints, "=[2,5,4];=[0]"), "5");
  EXPECT_EQ(*infer_values(ops, "Min", {{"T", DType::kInt32}, {"keep_dims", true}}, "=[2,5];=[0]"),
            "[2]");
  EXPECT_EQ(*infer_values(ops, "Prod", ints, "=[2,?];=[0]"), "?");
  EXPECT_EQ(*infer_values(ops, "Prod", ints, "=[2,?];=[]"), "[2,?]");
}

}  // namespace
}  // namespace millrace
