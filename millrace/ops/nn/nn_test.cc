#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/kernel/unread_outputs.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

const bool registered = register_for_tests(
    {register_array_ops, register_linalg_ops, register_math_ops, register_nn_ops});

constexpr DType kRealTypes[] = {DType::kFloat, DType::kDouble, DType::kHalf,   DType::kBFloat16,
                                DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
                                DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};

Tensor iota(DType type, const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.num_elements()));
  std::iota(values.begin(), values.end(), 0.0);
  return tensor_of(type, shape, values);
}

TEST(BiasAdd, AllTypesAndLayouts) {
  for (DType type : kRealTypes) {
    for (bool nchw : {false, true}) {
      for (const Shape& shape :
           {Shape{2, 3}, Shape{2, 3, 4}, Shape{2, 3, 2, 5}, Shape{0, 3}, Shape{2, 0, 3, 0}}) {
        SCOPED_TRACE(str_cat(type, " ", shape, nchw ? " NCHW" : ""));
        const int channel = nchw && shape.rank() > 2 ? 1 : shape.rank() - 1;
        const Tensor value = iota(type, shape), bias = iota(type, {shape[channel]});
        int64_t inner = 1;
        for (int i = channel + 1; i < shape.rank(); ++i) inner *= shape[i];
        std::vector<double> want = doubles_of(value), sums(static_cast<size_t>(shape[channel]));
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t c = i / static_cast<size_t>(inner) % sums.size();
          sums[c] += want[i];
          want[i] += static_cast<double>(c);
        }
        const char* format = nchw ? "NCHW" : "NHWC";
        expect_close(OpTester("BiasAdd")
                         .attr("data_format", format)
                         .input(value)
                         .input(bias)
                         .run_one()
                         .value(),
                     want);
        if (std::all_of(sums.begin(), sums.end(), [](double s) { return s < 128; })) {
          expect_close(
              OpTester("BiasAddGrad").attr("data_format", format).input(value).run_one().value(),
              sums);
        }
        if (!nchw)
          expect_close(OpTester("BiasAddV1").input(value).input(bias).run_one().value(), want);
      }
    }
  }
  const Tensor z = Tensor::of<Complex64>({1, 2}, {{1, 2}, {3, 4}}),
               b = Tensor::vector<Complex64>({{1, 1}, {0, 1}});
  EXPECT_TRUE(bit_equal(OpTester("BiasAdd").input(z).input(b).run_one().value(),
                        Tensor::of<Complex64>({1, 2}, {{2, 3}, {3, 5}})));
}

TEST(BiasAdd, SumsDoNotDependOnThreads) {
  std::mt19937 random(3);
  std::vector<double> values(200000);
  for (double& v : values) v = std::ldexp(static_cast<double>(random()), -20);
  const Tensor value = tensor_of(DType::kFloat, {20000, 10}, values);
  const Tensor one = OpTester("BiasAddGrad").threads(1).input(value).run_one().value();
  EXPECT_TRUE(bit_equal(one, OpTester("BiasAddGrad").threads(4).input(value).run_one().value()));
}

TEST(BiasAdd, BadInputsAndShapes) {
  const Tensor value = iota(DType::kFloat, {2, 3});
  EXPECT_HAS(error_of(OpTester("BiasAdd").input(value).input(iota(DType::kFloat, {2}))),
             "bias must have 3 elements");
  EXPECT_HAS(error_of(OpTester("BiasAdd").input(value).input(value)), "must be a vector");
  EXPECT_HAS(
      error_of(OpTester("BiasAdd").input(iota(DType::kFloat, {3})).input(iota(DType::kFloat, {3}))),
      "rank 2");
  EXPECT_HAS(error_of(OpTester("BiasAddGrad").input(Tensor::scalar(1.0f))), "rank 2");
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "BiasAdd", {}, "[2,?];[3]"), "[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "BiasAdd", {{"data_format", "NCHW"}}, "[2,?,4,4];[3]"), "[2,3,4,4]");
  EXPECT_EQ(*infer_shapes(ops, "BiasAddGrad", {{"data_format", "NCHW"}}, "[2,3,4,4]"), "[3]");
  EXPECT_EQ(*infer_shapes(ops, "BiasAddGrad", {}, "?"), "[?]");
  EXPECT_FALSE(infer_shapes(ops, "BiasAdd", {}, "[2,4];[3]").ok());
}

TEST(L2Loss, AllTypes) {
  for (DType type : kRealTypes) {
    SCOPED_TRACE(dtype_name(type));
    expect_close(OpTester("L2Loss").input(tensor_of(type, {2, 2}, {1, 2, 3, 4})).run_one().value(),
                 {15});
    expect_close(OpTester("L2Loss").input(tensor_of(type, {0, 2}, {})).run_one().value(), {0});
  }
  const Tensor big = iota(DType::kDouble, {20001});
  expect_close(OpTester("L2Loss").input(big).run_one().value(),
               {20000.0 * 20001.0 * 40001.0 / 12.0});
  EXPECT_EQ(
      OpTester("L2Loss").input(Tensor::vector<Complex64>({{1, 1}})).run_one()->item<Complex64>(),
      Complex64(0, 1));
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "L2Loss", {}, "[2,?]"), "[]");
}

TEST(Lrn, ValueAndGradient) {
  const int64_t radius = 2;
  const double bias = 1.5, alpha = 0.25;
  std::mt19937 random(6);
  for (float beta : {0.5f, 1.0f, 0.75f}) {
    const auto value = [&](const std::vector<double>& x, size_t channels) {
      std::vector<double> y(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        double sum = 0;
        const auto c = static_cast<int64_t>(i % channels);
        for (int64_t d = std::max<int64_t>(0, c - radius);
             d < std::min<int64_t>(static_cast<int64_t>(channels), c + radius + 1); ++d) {
          const double v = x[i - static_cast<size_t>(c) + static_cast<size_t>(d)];
          sum += v * v;
        }
        y[i] = x[i] * std::pow(bias + alpha * sum, -static_cast<double>(beta));
      }
      return y;
    };
    for (DType type : {DType::kFloat, DType::kHalf, DType::kBFloat16}) {
      for (const Shape& shape :
           {Shape{2, 3, 3, 7}, Shape{1, 1, 1, 1}, Shape{0, 2, 2, 3}, Shape{1, 2, 2, 0}}) {
        SCOPED_TRACE(str_cat(type, " ", shape, " beta ", beta));
        const Tensor x = random_tensor(type, shape, random),
                     dy = random_tensor(type, shape, random);
        OpTester forward("LRN"), backward("LRNGrad");
        for (OpTester* op : {&forward, &backward}) {
          op->attr("depth_radius", radius).attr("bias", static_cast<float>(bias));
          op->attr("alpha", static_cast<float>(alpha)).attr("beta", beta);
        }
        const Tensor y = forward.input(x).run_one().value();
        const std::vector<double> values = doubles_of(x), g = doubles_of(dy);
        const auto channels = static_cast<size_t>(std::max<int64_t>(1, shape[3]));
        expect_close(y, value(values, channels), 16);
        // Numeric derivative of sum(dy * y).
        std::vector<double> want(values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          const double h = 1e-6;
          std::vector<double> up = values, down = values;
          up[i] += h;
          down[i] -= h;
          const std::vector<double> yu = value(up, channels), yd = value(down, channels);
          for (size_t j = 0; j < values.size(); ++j) want[i] += g[j] * (yu[j] - yd[j]) / (2 * h);
        }
        expect_close(backward.input(dy).input(x).input(y).run_one().value(), want, 64);
      }
    }
  }
}

// LRNGrad in double precision: dy[d] n[d]^-beta - 2 alpha beta x[d] sum of dy[c] y[c] / n[c].
std::vector<double> lrn_gradient(const std::vector<std::vector<double>>& inputs, size_t channels,
                                 size_t radius, double bias, double alpha, double beta) {
  const std::vector<double>&dy = inputs[0], &x = inputs[1], &y = inputs[2];
  const auto window_sum = [&](auto term) {
    std::vector<double> sums(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = i / channels * channels; j < (i / channels + 1) * channels; ++j) {
        if (std::max(i, j) - std::min(i, j) <= radius) sums[i] += term(j);
      }
    }
    return sums;
  };
  std::vector<double> n = window_sum([&](size_t j) { return x[j] * x[j]; });
  for (double& norm : n) norm = bias + alpha * norm;
  const std::vector<double> sums = window_sum([&](size_t j) { return dy[j] * y[j] / n[j]; });
  std::vector<double> dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    dx[i] = dy[i] * std::pow(n[i], -beta) - 2 * alpha * beta * x[i] * sums[i];
  }
  return dx;
}

TEST(Lrn, GradientOfTheGradient) {
  const double bias = 1.5, alpha = 0.25;
  const AttrMap base = {{"bias", 1.5f}, {"alpha", 0.25f}};
  std::mt19937 random(7);
  for (float beta : {0.5f, 0.75f}) {
    for (size_t radius : {size_t{0}, size_t{2}, size_t{9}}) {
      const Shape shape{1, 2, 2, 5};
      AttrMap attrs = base;
      attrs.set("beta", beta);
      attrs.set("depth_radius", static_cast<int64_t>(radius));
      EagerBuilder builder;
      std::vector<std::vector<double>> inputs;
      std::vector<Expr> in;
      for (int i = 0; i < 3; ++i) {
        const Tensor tensor = random_tensor(DType::kFloat, shape, random);
        inputs.push_back(doubles_of(tensor));
        in.push_back(builder.constant(tensor));
      }
      const Tensor dz = random_tensor(DType::kFloat, shape, random);
      const std::vector<double> g = doubles_of(dz);
      const std::vector<Expr> out = builder.emit("LRNGrad", in, attrs);
      GradientContext context(builder, in, out, {builder.constant(dz)}, attrs,
                              std::vector<DType>(3, DType::kFloat));
      ASSERT_TRUE(OpRegistry::global().find("LRNGrad")->gradient(context).ok());
      ASSERT_TRUE(builder.status().ok()) << builder.status().to_string();
      for (size_t k = 0; k < 3; ++k) {
        SCOPED_TRACE(str_cat("beta ", beta, " radius ", radius, " input ", k));
        std::vector<double> want(g.size());
        for (size_t i = 0; i < g.size(); ++i) {
          const double h = 1e-6;
          auto up = inputs, down = inputs;
          up[k][i] += h;
          down[k][i] -= h;
          const std::vector<double> zu = lrn_gradient(up, 5, radius, bias, alpha, beta),
                                    zd = lrn_gradient(down, 5, radius, bias, alpha, beta);
          for (size_t j = 0; j < g.size(); ++j) want[i] += g[j] * (zu[j] - zd[j]) / (2 * h);
        }
        expect_close(builder.tensor(context.input_gradients()[k].values), want, 64);
      }
    }
  }
}

TEST(Lrn, BadInputsAndShapes) {
  EXPECT_HAS(error_of(OpTester("LRN").input(Tensor::scalar(1.0f))), "rank 4");
  EXPECT_HAS(
      error_of(OpTester("LRN").attr("depth_radius", -1).input(iota(DType::kFloat, {1, 1, 1, 2}))),
      "depth_radius");
  const Tensor a = iota(DType::kFloat, {1, 1, 1, 2}), b = iota(DType::kFloat, {1, 1, 1, 3});
  EXPECT_HAS(error_of(OpTester("LRNGrad").input(b).input(a).input(a)), "same shape");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "LRN", {}, "[?,2,2,3]"), "[?,2,2,3]");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "LRNGrad", {}, "?;[1,?,2,3];[?,2,?,?]"),
            "[1,2,2,3]");
}

TEST(Softmax, AgreesWithTheDefinition) {
  std::mt19937 random(5);
  for (DType type : kFloatingTypes) {
    for (const Shape& shape : {Shape{5}, Shape{3, 1}, Shape{2, 16}, Shape{4, 37}, Shape{2, 3, 129},
                               Shape{0, 3}, Shape{3, 0}}) {
      SCOPED_TRACE(str_cat(type, " ", shape));
      const Tensor logits = random_tensor(type, shape, random);
      const std::vector<double> x = doubles_of(logits);
      const auto n = static_cast<size_t>(shape[shape.rank() - 1]);
      std::vector<double> want(x.size()), want_log(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        double sum = 0;
        for (size_t j = i / n * n; j < i / n * n + n; ++j) sum += std::exp(x[j]);
        want[i] = std::exp(x[i]) / sum;
        want_log[i] = x[i] - std::log(sum);
      }
      expect_close(OpTester("Softmax").input(logits).run_one().value(), want);
      expect_close(OpTester("LogSoftmax").input(logits).run_one().value(), want_log);
    }
  }
}

TEST(Softmax, ExtremesAndErrors) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({3, 2}, {1e30f, 1e30f, -inf, 0, nan, 0});
  const double quiet = std::numeric_limits<double>::quiet_NaN();
  expect_close(OpTester("Softmax").input(x).run_one().value(), {0.5, 0.5, 0, 1, quiet, quiet});
  EXPECT_HAS(error_of(OpTester("Softmax").input(Tensor::scalar(1.0f))), "rank 1 or more");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "Softmax", {}, "[2,?]"), "[2,?]");
  // In place, when nobody else holds the input.
  Tensor mine = Tensor::of<float>({1, 2}, {0, 0});
  const void* memory = mine.raw();
  const Tensor y = OpTester("LogSoftmax").movable(true).input(std::move(mine)).run_one().value();
  EXPECT_EQ(y.raw(), memory);
  expect_close(y, {-std::log(2.0), -std::log(2.0)});
}

TEST(CrossEntropy, DenseAndSparse) {
  std::mt19937 random(7);
  for (DType type : kFloatingTypes) {
    for (const Shape& shape : {Shape{4, 5}, Shape{3, 40}, Shape{1, 1}, Shape{0, 3}}) {
      SCOPED_TRACE(str_cat(type, " ", shape));
      const auto n = static_cast<size_t>(shape[1]), rows = static_cast<size_t>(shape[0]);
      const Tensor logits = random_tensor(type, shape, random);
      const std::vector<double> x = doubles_of(logits);
      std::vector<double> labels(x.size()), loss(rows), gradient(x.size());
      std::vector<int64_t> classes(rows);
      for (size_t r = 0; r < rows; ++r) {
        classes[r] = static_cast<int64_t>(random() % n);
        labels[r * n + static_cast<size_t>(classes[r])] = 1;
        double sum = 0;
        for (size_t j = 0; j < n; ++j) sum += std::exp(x[r * n + j]);
        for (size_t j = 0; j < n; ++j) {
          const size_t i = r * n + j;
          gradient[i] = std::exp(x[i]) / sum - labels[i];
          loss[r] += labels[i] * (std::log(sum) - x[i]);
        }
      }
      const auto dense = OpTester("SoftmaxCrossEntropyWithLogits")
                             .input(logits)
                             .input(tensor_of(type, shape, labels))
                             .run();
      ASSERT_TRUE(dense.ok()) << dense.status().to_string();
      expect_close((*dense)[0], loss);
      expect_close((*dense)[1], gradient);
      for (DType label_type : {DType::kInt32, DType::kInt64}) {
        const Tensor ids =
            tensor_of(label_type, {shape[0]}, std::vector<double>(classes.begin(), classes.end()));
        const auto sparse =
            OpTester("SparseSoftmaxCrossEntropyWithLogits").input(logits).input(ids).run();
        ASSERT_TRUE(sparse.ok()) << sparse.status().to_string();
        expect_close((*sparse)[0], loss);
        expect_close((*sparse)[1], gradient);
      }
    }
  }
}

TEST(CrossEntropy, LossesAlone) {
  for (DType type : {DType::kFloat, DType::kDouble, DType::kHalf}) {
    for (const Shape& shape : {Shape{40, 10}, Shape{3, 10}, Shape{7, 33}, Shape{5, 1000}}) {
      std::vector<double> values, classes;
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        values.push_back(static_cast<double>(i * 37 % 101) / 16);
      }
      for (int64_t i = 0; i < shape[0]; ++i) {
        classes.push_back(static_cast<double>(i * 7 % shape[1]));
      }
      const Tensor x = tensor_of(type, shape, values);
      const Tensor ids = tensor_of(DType::kInt32, {shape[0]}, classes);
      const auto both = OpTester("SparseSoftmaxCrossEntropyWithLogits").input(x).input(ids).run();
      const auto alone = OpTester("SparseSoftmaxCrossEntropyWithLogits")
                             .attr(kUnreadOutputsAttr, int64_t{2})
                             .input(x)
                             .input(ids)
                             .check_shapes(false)
                             .run();
      ASSERT_TRUE(both.ok() && alone.ok()) << alone.status().to_string();
      EXPECT_TRUE(bit_equal((*both)[0], (*alone)[0]));
      EXPECT_EQ((*alone)[1].num_elements(), 0);
    }
  }
}

TEST(CrossEntropy, NoClassesAndNoWeight) {
  const Tensor empty = Tensor::zeros(DType::kFloat, {2, 0}).value();
  const auto none = OpTester("SoftmaxCrossEntropyWithLogits").input(empty).input(empty).run();
  ASSERT_TRUE(none.ok());
  expect_close((*none)[0], {0, 0});
  const float inf = std::numeric_limits<float>::infinity();
  const auto masked = OpTester("SoftmaxCrossEntropyWithLogits")
                          .input(Tensor::of<float>({1, 2}, {-inf, 0}))
                          .input(Tensor::of<float>({1, 2}, {0, 1}))
                          .run();
  expect_close((*masked)[0], {0});
}

TEST(CrossEntropy, BadInputsAndShapes) {
  const Tensor x = iota(DType::kFloat, {2, 3});
  const auto sparse = [&](const Tensor& labels) {
    return error_of(OpTester("SparseSoftmaxCrossEntropyWithLogits").input(x).input(labels));
  };
  EXPECT_HAS(sparse(Tensor::vector<int64_t>({0, 3})),
             "a label value of 3 which is outside the valid range of [0, 3), in row 1");
  EXPECT_HAS(sparse(Tensor::vector<int32_t>({-1, 0})),
             "INVALID_ARGUMENT: Received a label value of -1");
  EXPECT_HAS(sparse(Tensor::vector<int32_t>({0})), "one label per row");
  EXPECT_HAS(sparse(Tensor::scalar<int32_t>(0)), "labels must be 1-D");
  EXPECT_HAS(
      error_of(
          OpTester("SoftmaxCrossEntropyWithLogits").input(x).input(iota(DType::kFloat, {3, 2}))),
      "same shape");
  EXPECT_HAS(error_of(OpTester("SoftmaxCrossEntropyWithLogits")
                          .input(Tensor::scalar(1.0f))
                          .input(Tensor::scalar(1.0f))),
             "rank 2");
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "SoftmaxCrossEntropyWithLogits", {}, "[?,3];[2,?]"), "[2];[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "SparseSoftmaxCrossEntropyWithLogits", {}, "[?,3];[2]"),
            "[2];[2,3]");
  EXPECT_FALSE(infer_shapes(ops, "SparseSoftmaxCrossEntropyWithLogits", {}, "[4,3];[2]").ok());
}

TEST(TopK, AllTypes) {
  for (DType type : kRealTypes) {
    SCOPED_TRACE(dtype_name(type));
    const Tensor x = tensor_of(type, {2, 5}, {1, 9, 3, 9, 0, 5, 4, 3, 2, 1});
    for (bool sorted : {true, false}) {
      const auto y = OpTester("TopKV2")
                         .attr("sorted", sorted)
                         .input(x)
                         .input(Tensor::scalar<int32_t>(3))
                         .run();
      ASSERT_TRUE(y.ok()) << y.status().to_string();
      expect_close((*y)[0], sorted ? std::vector<double>{9, 9, 3, 5, 4, 3}
                                   : std::vector<double>{3, 9, 9, 3, 4, 5});
      EXPECT_TRUE(bit_equal((*y)[1], sorted ? Tensor::of<int32_t>({2, 3}, {1, 3, 2, 0, 1, 2})
                                            : Tensor::of<int32_t>({2, 3}, {2, 1, 3, 2, 1, 0})));
    }
    const auto one = OpTester("TopK").attr("k", 1).input(x).run();
    ASSERT_TRUE(one.ok());
    EXPECT_TRUE(bit_equal((*one)[1], Tensor::of<int32_t>({2, 1}, {1, 0})));
  }
}

TEST(TopK, OrderOfNanZerosAndNegatives) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (DType type : kFloatingTypes) {
    const Tensor x = tensor_of(type, {8}, {-0.0, inf, nan, 0, -1, -inf, nan, -2});
    const auto y = OpTester("TopKV2").input(x).input(Tensor::scalar<int32_t>(8)).run();
    EXPECT_TRUE(bit_equal(y.value()[1], Tensor::vector<int32_t>({2, 6, 1, 0, 3, 4, 7, 5})));
  }
}

TEST(TopK, LargeRowsAgreeWithSorting) {
  std::mt19937 random(12);
  const Tensor x = random_tensor(DType::kFloat, {3, 500}, random);  // many ties
  const std::vector<double> values = doubles_of(x);
  for (int32_t k : {0, 1, 7, 16, 17, 100, 500}) {
    std::vector<double> want;
    for (size_t row = 0; row < 3; ++row) {
      std::vector<double> order(500);
      std::iota(order.begin(), order.end(), 0.0);
      std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
        return values[row * 500 + static_cast<size_t>(a)] >
               values[row * 500 + static_cast<size_t>(b)];
      });
      want.insert(want.end(), order.begin(), order.begin() + k);
    }
    EXPECT_EQ(doubles_of(OpTester("TopKV2").input(x).input(Tensor::scalar(k)).run().value()[1]),
              want)
        << k;
  }
}

TEST(TopK, BadInputsAndShapes) {
  const Tensor x = iota(DType::kFloat, {2, 3});
  const auto top = [&](const Tensor& input, int32_t k) {
    return error_of(OpTester("TopKV2").input(input).input(Tensor::scalar(k)));
  };
  EXPECT_HAS(top(x, 4), "last dimension >= k = 4");
  EXPECT_HAS(top(x, -1), "Need k >= 0, got -1");
  EXPECT_HAS(top(Tensor::scalar(1.0f), 1), "rank 1 or more");
  EXPECT_HAS(error_of(OpTester("TopKV2").input(x).input(Tensor::vector<int32_t>({1, 2}))),
             "INVALID_ARGUMENT");
  EXPECT_EQ(top(Tensor::zeros(DType::kFloat, {0, 3}).value(), 2), "ok");
  EXPECT_EQ(top(Tensor::zeros(DType::kFloat, {3, 0}).value(), 0), "ok");
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "TopKV2", {}, "[2,?,5];=3"), "[2,?,3];[2,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "TopKV2", {}, "[2,5];?"), "[2,?];[2,?]");
  EXPECT_EQ(*infer_shapes(ops, "TopK", {{"k", 2}}, "[5]"), "[2];[2]");
  EXPECT_FALSE(infer_shapes(ops, "TopKV2", {}, "[2,5];=6").ok());
}

TEST(InTopK, RanksTargets) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor p = Tensor::of<float>({5, 3}, {1, 2, 3, 3, 2, 2, 1, 2, 3, 1, inf, 0, 1, 2, 3});
  const std::vector<int32_t> targets = {1, 1, 0, 0, 7};
  const std::vector<bool> want = {true, true, false, false, false};
  for (DType type : {DType::kInt32, DType::kInt64}) {
    const Tensor t = tensor_of(type, {5}, std::vector<double>(targets.begin(), targets.end()));
    const Tensor y = OpTester("InTopK").attr("k", 2).input(p).input(t).run_one().value();
    const auto got = y.data<bool>();
    EXPECT_EQ(std::vector<bool>(got.begin(), got.end()), want);
    const Tensor k = tensor_of(type, {}, {2});
    EXPECT_TRUE(bit_equal(y, OpTester("InTopKV2").input(p).input(t).input(k).run_one().value()));
  }
  EXPECT_HAS(error_of(OpTester("InTopK").attr("k", 2).input(p).input(Tensor::vector<int32_t>({1}))),
             "one target per row");
  EXPECT_HAS(error_of(OpTester("InTopK")
                          .attr("k", 2)
                          .input(Tensor::scalar(1.0f))
                          .input(Tensor::vector<int32_t>({1}))),
             "rank 2");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "InTopK", {{"k", 1}}, "[?,3];[4]"), "[4]");
}

}  // namespace
}  // namespace millrace
