#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

using Ints = std::vector<int64_t>;

class Dilation : public testing::Test {
 protected:
  static Tensor random_tensor(const Shape& shape, std::mt19937& random) {
    std::vector<Complex128> values;
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      values.emplace_back(static_cast<double>(random()) * 0x1p-29 - 4);  // no two sums alike
    }
    return make_tensor(DType::kDouble, shape, values);
  }
  Result<Tensor> run(const char* op, const std::vector<Tensor>& inputs,
                     const Ints& rates = {1, 2, 3, 1}) const {
    OpTester t(op);
    t.attr("strides", Ints{1, 2, 1, 1}).attr("rates", rates).attr("padding", padding_);
    for (const Tensor& input : inputs) t.input(input);
    return t.run_one();
  }
  Tensor dilate(const Tensor& input, const Tensor& filter) const {
    return run("Dilation2D", {input, filter}).value();
  }
  double total(const Tensor& input, const Tensor& filter, const Tensor& weights) const {
    double sum = 0;
    const Tensor out = dilate(input, filter);
    for (size_t i = 0; i < out.data<double>().size(); ++i) {
      sum += out.data<double>()[i] * weights.data<double>()[i];
    }
    return sum;
  }

  std::string padding_ = "SAME";
  std::mt19937 random_{5};
};

TEST_F(Dilation, IsTheMaximumOfSums) {
  // SAME, strides 2 and 1, rates 2 and 3, a window of 2 x 2: [5,6] becomes [3,6].
  const Tensor input = random_tensor({2, 5, 6, 2}, random_),
               filter = random_tensor({2, 2, 2}, random_);
  const Tensor got = dilate(input, filter);
  ASSERT_EQ(got.shape(), Shape({2, 3, 6, 2}));
  size_t at = 0;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t y = 0; y < 3; ++y) {
      for (int64_t x = 0; x < 6; ++x) {
        for (int64_t d = 0; d < 2; ++d) {
          double most = -INFINITY;
          for (int64_t i = 0; i < 2; ++i) {
            for (int64_t j = 0; j < 2; ++j) {
              const int64_t row = y * 2 + i * 2 - 1, column = x + j * 3 - 1;
              if (row < 0 || row >= 5 || column < 0 || column >= 6) continue;
              most = std::max(
                  most,
                  input.data<double>()[static_cast<size_t>(((b * 5 + row) * 6 + column) * 2 + d)] +
                      filter.data<double>()[static_cast<size_t>((i * 2 + j) * 2 + d)]);
            }
          }
          EXPECT_EQ(got.data<double>()[at++], most) << b << " " << y << " " << x << " " << d;
        }
      }
    }
  }
}

TEST_F(Dilation, GradientsAgreeWithDifferences) {
  for (const char* padding : {"SAME", "VALID"}) {
    padding_ = padding;
    const Tensor point[] = {random_tensor({1, 5, 6, 2}, random_),
                            random_tensor({2, 2, 2}, random_)};
    const Tensor weights = random_tensor(dilate(point[0], point[1]).shape(), random_);
    for (size_t which : {0U, 1U}) {
      const char* const op = which == 0 ? "Dilation2DBackpropInput" : "Dilation2DBackpropFilter";
      const Tensor got = run(op, {point[0], point[1], weights}).value();
      ASSERT_EQ(got.shape(), point[which].shape());
      for (size_t i = 0; i < got.data<double>().size(); ++i) {
        double sums[2];
        for (size_t side : {0U, 1U}) {
          std::vector<Complex128> values = values_of(point[which]);
          values[i] += side == 0 ? -1e-4 : 1e-4;
          const Tensor moved = make_tensor(DType::kDouble, point[which].shape(), values);
          sums[side] =
              which == 0 ? total(moved, point[1], weights) : total(point[0], moved, weights);
        }
        EXPECT_NEAR(got.data<double>()[i], (sums[1] - sums[0]) / 2e-4, 1e-6) << padding << " " << i;
      }
    }
  }
}

// Sums over what TensorFlow gives, with many ties.
TEST_F(Dilation, TiesGoToTheFirst) {
  const auto counted = [](const Shape& shape, int modulus) {
    std::vector<Complex128> values;
    for (int i = 0; i < shape.num_elements(); ++i) values.emplace_back(i % modulus);
    return make_tensor(DType::kDouble, shape, values);
  };
  const Tensor input = counted({2, 5, 6, 2}, 7), filter = counted({2, 2, 2}, 3);
  const Tensor g = counted({2, 3, 6, 2}, 1000);
  EXPECT_EQ(total(input, filter, g), 12894);
  const Tensor to_filter = run("Dilation2DBackpropFilter", {input, filter, g}).value();
  EXPECT_EQ(values_of(to_filter),
            (std::vector<Complex128>{246, 638, 492, 141, 418, 374, 104, 143}));
  const std::vector<Complex128> to_input =
      values_of(run("Dilation2DBackpropInput", {input, filter, g}).value());
  double sum = 0;
  for (size_t i = 0; i < to_input.size(); ++i) sum += static_cast<double>(i) * to_input[i].real();
  EXPECT_EQ(sum, 200076);
}

TEST_F(Dilation, BadInputs) {
  const auto zeros = [](const Shape& shape) {
    return Tensor::zeros(DType::kDouble, shape).value();
  };
  const Tensor image = zeros({1, 3, 3, 2}), filter = zeros({2, 2, 2});
  const auto expect_refused = [&](const Result<Tensor>& result, const char* why) {
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument) << why;
    EXPECT_NE(result.status().to_string().find(why), std::string::npos)
        << result.status().to_string();
  };
  expect_refused(run("Dilation2D", {image, image}), "rank");
  expect_refused(run("Dilation2D", {image, zeros({2, 2, 3})}), "3");
  expect_refused(run("Dilation2DBackpropInput", {image, filter, image}), "[1,3,3,2]");
  expect_refused(run("Dilation2D", {image, filter}, {1, 0, 1, 1}), "between 1");
}

TEST_F(Dilation, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap attrs = {
      {"strides", Ints{1, 2, 1, 1}}, {"rates", Ints{1, 2, 3, 1}}, {"padding", "VALID"}};
  EXPECT_EQ(*infer_shapes(ops, "Dilation2D", attrs, "[?,7,8,?];[3,2,4]"), "[?,2,5,4]");
  EXPECT_EQ(*infer_shapes(ops, "Dilation2D", attrs, "?;?"), "[?,?,?,?]");
  EXPECT_EQ(*infer_shapes(ops, "Dilation2DBackpropFilter", attrs, "[1,7,8,4];[3,2,4];?"),
            "[3,2,4]");
  EXPECT_EQ(*infer_shapes(ops, "Dilation2DBackpropInput", attrs, "[1,7,8,4];[3,2,4];?"),
            "[1,7,8,4]");
  EXPECT_FALSE(infer_shapes(ops, "Dilation2D", attrs, "[1,7,8,3];[3,2,4]").ok());
}

}  // namespace
}  // namespace millrace
