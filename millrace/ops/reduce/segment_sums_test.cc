#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

using C = Complex128;

Result<Tensor> unsorted(const Tensor& x, const Tensor& ids, int32_t segments) {
  return OpTester("UnsortedSegmentSum")
      .input(x)
      .input(ids)
      .input(Tensor::scalar(segments))
      .run_one();
}

TEST(SegmentSums, Unsorted) {
  for (DType dtype : kernel_types("UnsortedSegmentSum")) {
    const Tensor x = make_tensor(dtype, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor y = *unsorted(x, Tensor::vector<int32_t>({2, 0, -1, 2}), 4);
    EXPECT_EQ(y.shape(), Shape({4, 2}));
    EXPECT_EQ(values_of(y), (std::vector<C>{3, 4, 0, 0, 8, 10, 0, 0})) << dtype_name(dtype);
  }
  // Ids of the shape of the data, and of no dimension.
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  expect_tensor_equal(*unsorted(x, Tensor::of<int64_t>({2, 2}, {1, 0, 1, 1}), 2),
                      Tensor::vector<float>({2, 8}));
  expect_tensor_equal(*unsorted(Tensor::scalar(5.0F), Tensor::scalar<int32_t>(1), 2),
                      Tensor::vector<float>({0, 5}));
}

TEST(SegmentSums, Sorted) {
  const Tensor x = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto sum = [&](const Tensor& data, const Tensor& ids) {
    return OpTester("SegmentSum").input(data).input(ids).run_one();
  };
  expect_tensor_equal(*sum(x, Tensor::vector<int32_t>({0, 0, 2})),
                      Tensor::of<float>({3, 2}, {4, 6, 0, 0, 5, 6}));
  const Tensor none = Tensor::allocate(DType::kFloat, {0, 2}).value();
  EXPECT_EQ(sum(none, Tensor::vector<int64_t>({}))->shape(), Shape({0, 2}));
  EXPECT_EQ(sum(x, Tensor::vector<int32_t>({0, 1, 0})).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sum(x, Tensor::vector<int32_t>({-1, 1, 2})).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(sum(x, Tensor::vector<int32_t>({0, 1})).status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(sum(x, Tensor::vector<int64_t>({0, 0, INT64_MAX})).ok());
}

TEST(SegmentSums, EmptyAndBadInputs) {
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor none = Tensor::allocate(DType::kFloat, {0, 2}).value();
  const Tensor no_ids = Tensor::allocate(DType::kInt32, {0}).value();
  expect_tensor_equal(*unsorted(none, no_ids, 2), Tensor::of<float>({2, 2}, {0, 0, 0, 0}));
  EXPECT_EQ(unsorted(none, no_ids, 0)->shape(), Shape({0, 2}));
  const Status status = unsorted(x, Tensor::vector<int32_t>({0, 2}), 2).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("segment_ids[1] = 2 is out of range [0, 2)"), std::string::npos);
  EXPECT_EQ(unsorted(x, Tensor::vector<int32_t>({0, 1}), -1).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(unsorted(x, Tensor::vector<int32_t>({0}), 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(unsorted(Tensor::scalar(1.0F), no_ids, 2).status().code(), Code::kInvalidArgument);
}

TEST(SegmentSums, DoNotDependOnThreads) {
  const Tensor x = random_tensor(DType::kFloat, {3000, 300}, 9);
  Tensor ids = Tensor::allocate(DType::kInt32, {3000}).value();
  for (size_t i = 0; i < 3000; ++i)
    ids.mutable_data<int32_t>()[i] = static_cast<int32_t>(i * i % 7);
  OpTester one("UnsortedSegmentSum"), four("UnsortedSegmentSum");
  one.threads(1).input(x).input(ids).input(Tensor::scalar<int32_t>(7));
  four.threads(4).input(x).input(ids).input(Tensor::scalar<int32_t>(7));
  expect_tensor_equal(*one.run_one(), *four.run_one());
}

// Ids in [-1, segments), most of them 3 where `uneven`.
std::vector<int32_t> random_ids(std::mt19937& random, int64_t n, int32_t segments, bool sorted,
                                bool uneven) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    const bool chosen = uneven && random() % 4 != 0;
    ids.push_back(
        chosen ? 3 : static_cast<int32_t>(random() % static_cast<uint32_t>(segments + 1)) - 1);
  }
  if (sorted) std::sort(ids.begin(), ids.end());
  return ids;
}

// The sums, one row after the other.
template <class T>
std::vector<T> added_in_order(const Tensor& x, const std::vector<int32_t>& ids, int64_t segments) {
  const int64_t cols = x.dim(1);
  std::vector<T> sums(static_cast<size_t>(segments * cols));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) continue;
    for (int64_t k = 0; k < cols; ++k) {
      T& sum = sums[static_cast<size_t>(ids[i] * cols + k)];
      sum = wrapping_add(sum, x.data<T>()[i * static_cast<size_t>(cols) + static_cast<size_t>(k)]);
    }
  }
  return sums;
}

template <class T>
void expect_added_in_order(int64_t cols, bool sorted, bool uneven) {
  SCOPED_TRACE(str_cat(dtype_of<T>, " ", cols, " columns, sorted ", sorted, " uneven ", uneven));
  constexpr int64_t kRows = 500;
  constexpr int32_t kSegments = 37;
  std::mt19937 random(5);
  const Tensor x = random_tensor(dtype_of<T>, {kRows, cols}, 9);
  const std::vector<int32_t> ids = random_ids(random, kRows, kSegments, sorted, uneven);
  const Tensor sums = *unsorted(x, Tensor::vector(std::span<const int32_t>(ids)), kSegments);
  const std::vector<T> wanted = added_in_order<T>(x, ids, kSegments);
  EXPECT_EQ(std::memcmp(sums.raw(), wanted.data(), wanted.size() * sizeof(T)), 0);
}

TEST(SegmentSums, AddRowsFromFirstToLast) {
  for (int64_t cols : {1, 3, 16, 65, 130, 300}) {
    for (bool sorted : {false, true}) {
      for (bool uneven : {false, true}) {
        expect_added_in_order<float>(cols, sorted, uneven);
        expect_added_in_order<double>(cols, sorted, uneven);
        expect_added_in_order<int32_t>(cols, sorted, uneven);
        expect_added_in_order<int64_t>(cols, sorted, uneven);
      }
    }
  }
}

TEST(SegmentSums, ShapesAndValues) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "UnsortedSegmentSum", {}, "[2,3,4];[2];=5"), "[5,3,4]");
  EXPECT_EQ(*infer_shapes(ops, "UnsortedSegmentSum", {}, "[2,3,4];[2,3];[]"), "[?,4]");
  EXPECT_EQ(*infer_shapes(ops, "UnsortedSegmentSum", {}, "?;[2];=5"), "?");
  EXPECT_FALSE(infer_shapes(ops, "UnsortedSegmentSum", {}, "[2];[3];=5").ok());
  EXPECT_EQ(*infer_shapes(ops, "SegmentSum", {}, "[2,3];[2]"), "[?,3]");
  EXPECT_FALSE(infer_shapes(ops, "SegmentSum", {}, "[2,3];[2,3]").ok());
  EXPECT_EQ(
      *infer_values(ops, "UnsortedSegmentSum", {{"T", DType::kInt32}}, "=[1,1,1];=[0,2,2];=4"),
      "[1,0,2,0]");
}

}  // namespace
}  // namespace millrace
