// LinSpace ReverseSequence.

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}

template <class T>
Result<Tensor> lin_space(T start, T stop, int64_t num) {
  return OpTester("LinSpace")
      .input(Tensor::scalar(start))
      .input(Tensor::scalar(stop))
      .input(Tensor::scalar(num))
      .run_one();
}

TEST(LinSpace, EqualSteps) {
  expect_tensor_equal(*lin_space(1.0, 2.0, 5), Tensor::vector<double>({1, 1.25, 1.5, 1.75, 2}));
  expect_tensor_equal(*lin_space(3.0F, -1.0F, 3), Tensor::vector<float>({3, 1, -1}));
  expect_tensor_equal(*lin_space(3.0F, -1.0F, 1), Tensor::vector<float>({3}));
  expect_tensor_equal(*lin_space(Half(0.0F), Half(1.0F), 3),
                      Tensor::vector<Half>({Half(0.0F), Half(0.5F), Half(1.0F)}));
  expect_tensor_equal(*lin_space(BFloat16(0.0F), BFloat16(1.0F), 3),
                      Tensor::vector<BFloat16>({BFloat16(0.0F), BFloat16(0.5F), BFloat16(1.0F)}));
  // The end is exact although the step is not.
  const Tensor long_way = *lin_space(0.1F, 0.7F, 1000);
  EXPECT_EQ(long_way.data<float>()[999], 0.7F);
  EXPECT_FLOAT_EQ(long_way.data<float>()[500], 0.1F + 500 * (0.6F / 999));
  expect_error(lin_space(0.0F, 1.0F, 0).status(), Code::kInvalidArgument, "Requires num > 0: 0");
  EXPECT_EQ(*shapes("LinSpace", "[];[];[]"), "[?]");
  EXPECT_FALSE(shapes("LinSpace", "[1];[];[]").ok());
}

OpTester& reverse(OpTester& tester, int seq_dim, int batch_dim, const Tensor& x,
                  const Tensor& lengths) {
  return tester.attr("seq_dim", seq_dim).attr("batch_dim", batch_dim).input(x).input(lengths);
}

TEST(ReverseSequence, EveryTypeAndDimension) {
  for (DType dtype : moved_types()) {
    for (int seq = 0; seq < 3; ++seq) {
      for (int batch = 0; batch < 3; ++batch) {
        if (seq == batch) continue;
        const Shape shape = {3, 4, 5};
        const Tensor x = random_tensor(dtype, shape, 1);
        Index lengths;
        for (int64_t i = 0; i < shape.dim(batch); ++i) lengths.push_back(i % (shape.dim(seq) + 1));
        OpTester tester("ReverseSequence");
        const DType type = seq == 0 ? DType::kInt32 : DType::kInt64;
        const Tensor y = *reverse(tester, seq, batch, x, int_vector(lengths, type)).run_one();
        expect_tensor_equal(y, pick(x, shape, [&](const Index& at) {
                              Index from = at;
                              int64_t& step = from[static_cast<size_t>(seq)];
                              const int64_t length =
                                  lengths[static_cast<size_t>(at[static_cast<size_t>(batch)])];
                              if (step < length) step = length - 1 - step;
                              return flat_index(shape, from);
                            }));
      }
    }
  }
}

TEST(ReverseSequence, EmptyAndBadInputs) {
  const Tensor x = random_tensor(DType::kFloat, {3, 4}, 1);
  const auto run = [](int seq, int batch, const Tensor& data, const Index& lengths) {
    OpTester tester("ReverseSequence");
    return reverse(tester, seq, batch, data, int_vector(lengths)).run_one();
  };
  EXPECT_EQ(run(1, 0, random_tensor(DType::kFloat, {0, 4}, 1), {})->shape(), (Shape{0, 4}));
  EXPECT_EQ(run(1, 0, random_tensor(DType::kFloat, {2, 0, 3}, 1), {0, 0})->shape(),
            (Shape{2, 0, 3}));
  const auto refused = [](const Result<Tensor>& result, std::string_view part) {
    expect_error(result.status(), Code::kInvalidArgument, part);
  };
  refused(run(1, 0, x, {1, 2, 5}), "seq_lens(2) > input.dims(1)");
  refused(run(1, 0, x, {1, -2, 4}), "seq_lens(1) < 0");
  refused(run(0, 0, x, {1, 2, 3}), "batch_dim == seq_dim == 0");
  refused(run(3, 0, x, {1, 2, 3}), "seq_dim must be < input rank");
  refused(run(1, 2, x, {1, 2, 3}), "batch_dim must be < input rank");
  refused(run(-1, 0, x, {1, 2, 3}), "Invalid seq_dim -1");
  EXPECT_FALSE(run(1, 0, x, {1, 2}).ok());
  EXPECT_EQ(*shapes("ReverseSequence", "[?,4];[3]", {{"seq_dim", 1}}), "[3,4]");
  EXPECT_FALSE(shapes("ReverseSequence", "[2,4];[3]", {{"seq_dim", 1}}).ok());
}

}  // namespace
}  // namespace millrace
