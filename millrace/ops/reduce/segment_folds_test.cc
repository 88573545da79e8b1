// SegmentMax SegmentMin SegmentProd SegmentMean, the unsorted forms, and SparseSegmentX.

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

Tensor ints(std::initializer_list<int32_t> values) { return Tensor::vector(values); }
Tensor scalar(int32_t value) { return Tensor::scalar(value); }

Result<Tensor> sorted(const char* op, const Tensor& x, const Tensor& ids) {
  return OpTester(op).input(x).input(ids).run_one();
}
Result<Tensor> unsorted(const char* op, const Tensor& x, const Tensor& ids, int32_t segments) {
  return OpTester(op).input(x).input(ids).input(scalar(segments)).run_one();
}
void expect_invalid(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

TEST(SegmentFolds, SortedInEveryType) {
  struct Fold {
    const char* op;
    std::vector<C> want;
  };
  const Fold folds[] = {{"SegmentMax", {3, 4, 0, 0, 5, 6}},
                        {"SegmentMin", {1, 2, 0, 0, 5, 6}},
                        {"SegmentProd", {3, 8, 1, 1, 5, 6}},
                        {"SegmentMean", {2, 3, 0, 0, 5, 6}},
                        {"SegmentSum", {4, 6, 0, 0, 5, 6}}};
  for (const auto& [op, want] : folds) {
    for (DType dtype : kernel_types(op)) {
      const Tensor x = make_tensor(dtype, {3, 2}, {1, 2, 3, 4, 5, 6});
      EXPECT_EQ(values_of(*sorted(op, x, ints({0, 0, 2}))), want) << op << dtype_name(dtype);
    }
    EXPECT_EQ(sorted(op, random_tensor(DType::kFloat, {0, 2}, 1), ints({}))->shape(),
              (Shape{0, 2}));
    EXPECT_EQ(sorted(op, random_tensor(DType::kFloat, {2, 0}, 1), ints({0, 3}))->shape(),
              (Shape{4, 0}));
  }
}

TEST(SegmentFolds, NegativeNumbers) {
  const Tensor x = Tensor::vector<float>({-1, -2, -3});
  expect_tensor_equal(*sorted("SegmentMax", x, ints({1, 1, 1})), Tensor::vector<float>({0, -1}));
  expect_tensor_equal(*sorted("SegmentMean", Tensor::vector<int32_t>({3, 4, -12}), ints({0, 0, 1})),
                      Tensor::vector<int32_t>({3, -12}));
}

TEST(SegmentFolds, UnsortedInEveryType) {
  for (const char* op : {"UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"}) {
    for (DType dtype : kernel_types(op)) {
      const Tensor x = make_tensor(dtype, {4, 2}, {1, 2, 3, 4, 5, 6, 2, 7});
      const std::vector<C> y = values_of(*unsorted(op, x, ints({1, 0, -1, 1}), 2));
      const std::string_view name = op;
      const std::vector<C> want = name.ends_with("Max")   ? std::vector<C>{3, 4, 2, 7}
                                  : name.ends_with("Min") ? std::vector<C>{3, 4, 1, 2}
                                                          : std::vector<C>{3, 4, 2, 14};
      EXPECT_EQ(y, want) << op << dtype_name(dtype);
    }
  }
  // What no row belongs to.
  const Tensor x = Tensor::vector<float>({2});
  constexpr float kMax = std::numeric_limits<float>::max();
  expect_tensor_equal(*unsorted("UnsortedSegmentMax", x, ints({1}), 2),
                      Tensor::vector<float>({-kMax, 2}));
  expect_tensor_equal(*unsorted("UnsortedSegmentMin", x, ints({1}), 2),
                      Tensor::vector<float>({kMax, 2}));
  expect_tensor_equal(*unsorted("UnsortedSegmentProd", x, ints({1}), 2),
                      Tensor::vector<float>({1, 2}));
  expect_tensor_equal(*unsorted("UnsortedSegmentMax", Tensor::vector<int8_t>({2}), ints({-1}), 1),
                      Tensor::vector<int8_t>({-128}));
  // Ids of the rank of the data, and of none.
  expect_tensor_equal(*unsorted("UnsortedSegmentMax", Tensor::of<float>({2, 2}, {1, 2, 3, 4}),
                                Tensor::of<int64_t>({2, 2}, {1, 0, 1, 1}), 2),
                      Tensor::vector<float>({2, 4}));
  EXPECT_EQ(unsorted("UnsortedSegmentMax", x, ints({-1}), 0)->shape(), (Shape{0}));
  expect_invalid(unsorted("UnsortedSegmentMax", Tensor::of<float>({1, 1}, {1}),
                          Tensor::of<int32_t>({1, 1}, {7}), 2)
                     .status(),
                 "segment_ids[0,0] = 7 is out of range [0, 2)");
  expect_invalid(unsorted("UnsortedSegmentMax", x, ints({0}), -1).status(), "must not be negative");
}

TEST(SegmentFolds, BadIds) {
  const Tensor x = random_tensor(DType::kFloat, {4, 2}, 1);
  for (const char* op : {"SegmentMax", "SegmentMean", "SegmentSum"}) {
    expect_invalid(sorted(op, x, ints({-1, -1, 0, 0})).status(),
                   "Segment id -1 out of range [0, 1), possibly because 'segment_ids' input is not "
                   "sorted.");
    expect_invalid(sorted(op, x, ints({0, 1, 0, 1})).status(), "segment ids are not increasing");
    expect_invalid(sorted(op, x, ints({0, 1, 2, 0})).status(), "Segment id 1 out of range [0, 1)");
    expect_invalid(sorted(op, x, ints({0, 0, 0, -1})).status(), "segment ids must be >= 0");
    expect_invalid(sorted(op, x, ints({0, 1})).status(), "segment_ids should be the same size");
  }
}

TEST(SegmentFolds, DoNotDependOnThreads) {
  const Tensor x = random_tensor(DType::kFloat, {2000, 300}, 9);
  Tensor ids = Tensor::allocate(DType::kInt32, {2000}).value();
  for (size_t i = 0; i < 2000; ++i)
    ids.mutable_data<int32_t>()[i] = static_cast<int32_t>(i * i % 7);
  OpTester one("UnsortedSegmentProd"), four("UnsortedSegmentProd");
  one.threads(1).input(x).input(ids).input(scalar(7));
  four.threads(4).input(x).input(ids).input(scalar(7));
  expect_tensor_equal(*one.run_one(), *four.run_one());
}

Result<Tensor> sparse(const std::string& op, const Tensor& x, const Tensor& indices,
                      const Tensor& ids, std::optional<int32_t> rows = {}) {
  OpTester tester(op);
  tester.input(x).input(indices).input(ids);
  if (rows) tester.input(scalar(*rows));
  return tester.run_one();
}

TEST(SparseSegments, ForwardInEveryType) {
  const double root = std::sqrt(3.0);
  for (const char* op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"}) {
    const std::string_view name = op;
    const double by = name.ends_with("Sum") ? 1 : name.ends_with("Mean") ? 3 : root;
    for (DType dtype : kernel_types(op)) {
      const Tensor x = make_tensor(dtype, {3, 2}, {1, 2, 3, 4, 5, 6});
      const Tensor y = *sparse(op, x, ints({2, 2, 0, 1}), ints({0, 0, 0, 2}));
      const std::vector<C> got = values_of(y);
      const std::vector<double> want = {11 / by, 14 / by, 0, 0, 3, 4};
      ASSERT_EQ(y.shape(), (Shape{3, 2}));
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(got[i].real(), want[i], 8 * tolerance_of(dtype) * 14)
            << op << dtype_name(dtype);
      }
      const Tensor more =
          *sparse(str_cat(op, "WithNumSegments"), x, ints({2, 2, 0, 1}), ints({0, 0, 0, 2}), 4);
      EXPECT_EQ(more.shape(), (Shape{4, 2}));
      expect_tensor_equal(more.rows(0, 3), y);
      EXPECT_EQ(values_of(more.row(3)), (std::vector<C>{0, 0}));
    }
  }
}

TEST(SparseSegments, Backward) {
  const Tensor dy = Tensor::of<double>({2, 1}, {6, 10});
  const Tensor indices = ints({3, 0, 3, 1}), ids = ints({0, 0, 0, 1});
  expect_tensor_equal(*sparse("SparseSegmentSumGrad", dy, indices, ids, 4),
                      Tensor::of<double>({4, 1}, {6, 10, 0, 12}));
  expect_tensor_equal(*sparse("SparseSegmentMeanGrad", dy, indices, ids, 4),
                      Tensor::of<double>({4, 1}, {2, 10, 0, 4}));
  const Tensor root = *sparse("SparseSegmentSqrtNGrad", dy, indices, ids, 4);
  EXPECT_NEAR(root.data<double>()[0], 6 / std::sqrt(3), 1e-12);
  expect_invalid(sparse("SparseSegmentMeanGrad", dy, ints({3, 0, 10, 1}), ids, 10).status(),
                 "Index 10 out of range [0, 10)");
  expect_invalid(sparse("SparseSegmentMeanGrad", dy, indices, ints({0, 1, 2, 0}), 10).status(),
                 "Segment id 2 out of range [0, 2)");
  expect_invalid(sparse("SparseSegmentMeanGrad", dy, indices, ids, -1).status(), "negative");
}

TEST(SparseSegments, BadInputs) {
  const Tensor x = random_tensor(DType::kFloat, {10, 4}, 1);
  const Tensor ids = ints({0, 1, 2, 2});
  for (const char* op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"}) {
    expect_invalid(sparse(op, x, ints({8, -1, 0, 9}), ids).status(),
                   "indices[1] == -1 out of range [0, 10)");
    expect_invalid(sparse(op, x, ints({8, 3, 0, 10}), ids).status(),
                   "indices[3] == 10 out of range [0, 10)");
    expect_invalid(sparse(op, x, ints({8, 3, 0, 9}), ints({0, 1, 0, 1})).status(),
                   "segment ids are not increasing");
    expect_invalid(sparse(op, x, ints({8, 3}), ids).status(), "");
    EXPECT_EQ(sparse(op, x, ints({}), ints({}))->shape(), (Shape{0, 4}));
  }
  expect_invalid(sparse("SparseSegmentSumWithNumSegments", x, ints({8, 3, 0, 9}), ids, 2).status(),
                 "segment ids must be < num_segments");
}

TEST(SegmentFolds, ShapeRules) {
  const auto shapes = [](std::string_view op, std::string_view inputs) {
    return infer_shapes(OpRegistry::global(), op, {}, inputs);
  };
  EXPECT_EQ(*shapes("SegmentMax", "[4,2];[4]"), "[?,2]");
  EXPECT_EQ(*shapes("SegmentMax", "?;[4]"), "?");
  EXPECT_EQ(*shapes("UnsortedSegmentMin", "[4,3,2];[4,3];[]"), "[?,2]");
  EXPECT_EQ(*shapes("SparseSegmentMean", "[4,2];[?];[3]"), "[?,2]");
  EXPECT_EQ(*shapes("SparseSegmentMeanGrad", "[4,2];[?];[3];[]"), "[?,2]");
  EXPECT_FALSE(shapes("SegmentMax", "[];[4]").ok());
  EXPECT_FALSE(shapes("SegmentMax", "[4];[4,1]").ok());
  EXPECT_FALSE(shapes("SparseSegmentSum", "[4];[4];[3]").ok());
}

}  // namespace
}  // namespace millrace
