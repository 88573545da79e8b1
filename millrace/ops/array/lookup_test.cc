#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

// Gather GatherV2 GatherNd ScatterNd OneHot DynamicPartition DynamicStitch SparseToDense Where
// Unique UniqueWithCounts ListDiff.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Tensor scalar(int64_t v) { return Tensor::scalar<int32_t>(static_cast<int32_t>(v)); }

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}
Result<std::string> values(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_values(OpRegistry::global(), op, std::move(attrs), inputs);
}

TEST(Gather, EveryTypeAndAxis) {
  for (DType dtype : moved_types()) {
    for (DType index : {DType::kInt32, DType::kInt64}) {
      const Tensor params = random_tensor(dtype, {3, 4, 2}, 1);
      const Index picked = {2, 0, 0, 2};
      const Tensor indices = *int_vector(picked, index).reshaped({2, 2});
      const Tensor rows = *OpTester("Gather").input(params).input(indices).run_one();
      expect_tensor_equal(rows, pick(params, {2, 2, 4, 2}, [&](const Index& at) {
                            return flat_index(
                                params.shape(),
                                {picked[static_cast<size_t>(2 * at[0] + at[1])], at[2], at[3]});
                          }));
      const Tensor columns =
          *OpTester("GatherV2").input(params).input(indices).input(scalar(-2)).run_one();
      expect_tensor_equal(columns, pick(params, {3, 2, 2, 2}, [&](const Index& at) {
                            return flat_index(
                                params.shape(),
                                {at[0], picked[static_cast<size_t>(2 * at[1] + at[2])], at[3]});
                          }));
    }
  }
}

TEST(Gather, Batches) {
  const Tensor params = random_tensor(DType::kFloat, {2, 3, 5}, 1);
  const Tensor indices = Tensor::of<int32_t>({2, 2}, {4, 0, 1, 1});
  const Tensor y = *OpTester("GatherV2")
                        .attr("batch_dims", 1)
                        .input(params)
                        .input(indices)
                        .input(scalar(2))
                        .run_one();
  const auto index = indices.data<int32_t>();
  expect_tensor_equal(y, pick(params, {2, 3, 2}, [&](const Index& at) {
                        return flat_index(
                            params.shape(),
                            {at[0], at[1], index[static_cast<size_t>(2 * at[0] + at[2])]});
                      }));
}

TEST(Gather, ZeroSizes) {
  const Tensor none = random_tensor(DType::kFloat, {0, 3}, 1),
               some = random_tensor(DType::kFloat, {2, 0}, 1);
  EXPECT_EQ(OpTester("Gather").input(none).input(int_vector({})).run_one()->shape(), (Shape{0, 3}));
  EXPECT_EQ(OpTester("Gather").input(some).input(int_vector({1, 1, 0})).run_one()->shape(),
            (Shape{3, 0}));
  EXPECT_EQ(OpTester("GatherV2")
                .input(none)
                .input(int_vector({2, 1}))
                .input(scalar(1))
                .run_one()
                ->shape(),
            (Shape{0, 2}));
}

TEST(Gather, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {3, 2}, 1);
  expect_invalid(OpTester("Gather").input(x).input(Tensor::of<int32_t>({2, 2}, {0, 1, 3, -1})),
                 "indices[1,0] = 3 is not in [0, 3)");
  expect_invalid(OpTester("Gather").input(x).input(Tensor::scalar<int64_t>(INT64_MIN)),
                 "is not in [0, 3)");
  expect_invalid(OpTester("Gather").input(random_tensor(DType::kFloat, {0}, 1)).input(scalar(0)),
                 "[0, 0)");
  expect_invalid(OpTester("Gather").input(random_tensor(DType::kFloat, {}, 1)).input(scalar(0)),
                 "rank 1");
  expect_invalid(OpTester("GatherV2").input(x).input(scalar(0)).input(scalar(2)), "axis");
  expect_invalid(
      OpTester("GatherV2").attr("batch_dims", 1).input(x).input(scalar(0)).input(scalar(1)),
      "batch_dims");
  EXPECT_EQ(*shapes("Gather", "[5,?];[2,3]"), "[2,3,?]");
  EXPECT_EQ(*shapes("Gather", "?;[2]"), "?");
  EXPECT_EQ(*shapes("GatherV2", "[5,?,7];[2,3];=-1"), "[5,?,2,3]");
  EXPECT_EQ(*shapes("GatherV2", "[5,7];[2];[]"), "[?,?]");
  EXPECT_FALSE(shapes("Gather", "[];[2]").ok());
  const AttrMap ints = {{"Tparams", DType::kInt32}};
  EXPECT_EQ(*values("Gather", "=[4,?,6];=[2,1]", ints), "[6,?]");
  EXPECT_EQ(*values("Gather", "=[4,?,6];=0", ints), "4");
  // No tensor has so many dimensions, whatever the ranks will be.
  for (const int64_t many : {int64_t{255}, int64_t{1} << 32, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(shapes("GatherV2", "?;?;=0", {{"batch_dims", many}}).status().code(),
              Code::kInvalidArgument);
  }
}

// Rows by number, more of them than are asked for ahead.
TEST(GatherNd, AgreesWithGatherAboutManyRows) {
  Index numbers;
  for (int64_t i = 0; i < 100; ++i) numbers.push_back(i * 37 % 50);
  const Tensor rows = int_vector(numbers, DType::kInt64);
  for (DType dtype : moved_types()) {
    for (int64_t run : {1, 3, 40}) {
      const Tensor params = random_tensor(dtype, {50, run}, 1);
      expect_tensor_equal(
          *OpTester("GatherNd").input(params).input(*rows.reshaped({100, 1})).run_one(),
          *OpTester("Gather").input(params).input(rows).run_one());
    }
  }
}

TEST(GatherNd, EveryType) {
  for (DType dtype : moved_types()) {
    const Tensor params = random_tensor(dtype, {3, 4, 2}, 1);
    const Tensor pairs = Tensor::of<int32_t>({3, 2}, {2, 3, 0, 0, 2, 3});
    expect_tensor_equal(
        *OpTester("GatherNd").input(params).input(pairs).run_one(),
        pick(params, {3, 2}, [](const Index& at) { return (at[0] == 1 ? 0 : 22) + at[1]; }));
    // Index vectors without elements name the whole tensor.
    const Tensor whole = *Tensor::zeros(DType::kInt64, {2, 0});
    expect_tensor_equal(*OpTester("GatherNd").input(params).input(whole).run_one(),
                        pick(params, {2, 3, 4, 2}, [&](const Index& at) {
                          return flat_index(params.shape(), {at[1], at[2], at[3]});
                        }));
  }
  const Tensor x = random_tensor(DType::kFloat, {3, 2}, 1);
  expect_invalid(OpTester("GatherNd").input(x).input(Tensor::of<int32_t>({1, 2}, {1, 2})),
                 "indices[0] = [1,2] does not index into shape [3,2]");
  expect_invalid(OpTester("GatherNd").input(x).input(Tensor::of<int32_t>({1, 3}, {0, 0, 0})),
                 "too long");
  expect_invalid(OpTester("GatherNd").input(x).input(scalar(0)), "rank 1");
  EXPECT_EQ(*shapes("GatherNd", "[3,?,5];[7,1]"), "[7,?,5]");
  EXPECT_FALSE(shapes("GatherNd", "[3];[7,2]").ok());
}

template <class T>
void test_scatter_nd() {
  const Tensor indices = Tensor::of<int32_t>({3, 1}, {2, 0, 2});
  const Tensor updates = Tensor::of<T>({3, 2}, {T(1), T(2), T(3), T(4), T(5), T(6)});
  expect_tensor_equal(
      *OpTester("ScatterNd").input(indices).input(updates).input(int_vector({4, 2})).run_one(),
      Tensor::of<T>({4, 2}, {T(3), T(4), T(0), T(0), T(6), T(8), T(0), T(0)}));
}

TEST(ScatterNd, AddsUp) {
  test_scatter_nd<float>();
  test_scatter_nd<double>();
  test_scatter_nd<int32_t>();
  test_scatter_nd<uint8_t>();
  test_scatter_nd<Half>();
  test_scatter_nd<BFloat16>();
  const Tensor indices = Tensor::of<int32_t>({1, 1}, {4});
  const Tensor update = Tensor::of<float>({1}, {1});
  expect_invalid(OpTester("ScatterNd").input(indices).input(update).input(int_vector({4})),
                 "does not index into");
  expect_invalid(OpTester("ScatterNd").input(indices).input(update).input(int_vector({4, 2})),
                 "shape [1,2]");
  expect_invalid(OpTester("ScatterNd").input(indices).input(update).input(int_vector({-1})),
                 "shape");
  EXPECT_EQ(*shapes("ScatterNd", "[3,1];[3,2];=[4,2]"), "[4,2]");
  EXPECT_FALSE(shapes("ScatterNd", "[3,1];[3,3];=[4,2]").ok());
}

TEST(OneHot, EveryAxisAndType) {
  const Tensor indices = Tensor::of<int64_t>({2, 2}, {0, 2, -1, 3});
  for (DType dtype : moved_types()) {
    const Tensor on_off = random_tensor(dtype, {2}, 3);
    for (int axis : {-1, 0, 1}) {
      const Shape shape = axis == -1 ? Shape{2, 2, 3} : axis == 0 ? Shape{3, 2, 2} : Shape{2, 3, 2};
      const Result<Tensor> y = OpTester("OneHot")
                                   .attr("axis", axis)
                                   .input(indices)
                                   .input(scalar(3))
                                   .input(on_off.row(0))
                                   .input(on_off.row(1))
                                   .run_one();
      ASSERT_TRUE(y.ok()) << y.status().to_string();
      expect_tensor_equal(*y, pick(on_off, shape, [&](Index at) {
        const auto where = axis == -1 ? at.end() - 1 : at.begin() + axis;
        const int64_t column = *where;
        at.erase(where);
        return indices.data<int64_t>()[static_cast<size_t>(2 * at[0] + at[1])] == column ? 0 : 1;
      }));
    }
  }
  const Tensor v = random_tensor(DType::kFloat, {}, 1);
  expect_invalid(OpTester("OneHot").input(indices).input(scalar(-1)).input(v).input(v), "depth");
  expect_invalid(
      OpTester("OneHot").attr("axis", 3).input(indices).input(scalar(1)).input(v).input(v), "axis");
  EXPECT_EQ(*shapes("OneHot", "[2,?];=4;[];[]"), "[2,?,4]");
  EXPECT_EQ(*shapes("OneHot", "[2,?];[];[];[]", {{"axis", 0}}), "[?,2,?]");
}

TEST(DynamicPartition, AndStitch) {
  for (DType dtype : moved_types()) {
    const Tensor data = random_tensor(dtype, {5, 2}, 1);
    const Index part = {1, 0, 1, 1, 0};
    const auto parts = OpTester("DynamicPartition")
                           .attr("num_partitions", 3)
                           .input(data)
                           .input(int_vector(part))
                           .run();
    ASSERT_TRUE(parts.ok()) << parts.status().to_string();
    const Index rows[] = {{1, 4}, {0, 2, 3}, {}};
    std::vector<Tensor> indices;
    for (size_t i = 0; i < 3; ++i) {
      const Shape shape{static_cast<int64_t>(rows[i].size()), 2};
      expect_tensor_equal((*parts)[i], pick(data, shape, [&](const Index& at) {
                            return 2 * rows[i][static_cast<size_t>(at[0])] + at[1];
                          }));
      indices.push_back(int_vector(rows[i]));
    }
    expect_tensor_equal(*OpTester("DynamicStitch").input_list(indices).input_list(*parts).run_one(),
                        data);
  }
}

TEST(DynamicPartition, ErrorsAndRules) {
  const Tensor data = random_tensor(DType::kFloat, {2, 2}, 1);
  OpTester tester("DynamicPartition");
  tester.attr("num_partitions", 2);
  expect_invalid(tester.input(data).input(int_vector({0, 2})),
                 "partitions[1] = 2 is not in [0, 2)");
  expect_invalid(tester.clear_inputs().input(data).input(int_vector({0})), "begin with");
  EXPECT_EQ(*shapes("DynamicPartition", "[?,3];[4]", {{"num_partitions", 2}}), "[?,3];[?,3]");
  EXPECT_FALSE(shapes("DynamicPartition", "[2,3];[4]", {{"num_partitions", 2}}).ok());
}

TEST(DynamicStitch, LaterRowsWinAndGapsAreZero) {
  expect_tensor_equal(*OpTester("DynamicStitch")
                           .input_list({int_vector({0, 3}), scalar(0)})
                           .input_list({Tensor::vector<float>({1, 2}), Tensor::scalar<float>(5)})
                           .run_one(),
                      Tensor::vector<float>({5, 0, 0, 2}));
  expect_invalid(
      OpTester("DynamicStitch").input_list({int_vector({-1})}).input_list({int_vector({1})}),
      "negative");
  expect_invalid(
      OpTester("DynamicStitch").input_list({int_vector({1, 2})}).input_list({int_vector({1})}),
      "begin with");
  EXPECT_EQ(*shapes("DynamicStitch", "=[0,4];[1];[2,3];[?,3]", {{"N", 2}}), "[?,3]");
  EXPECT_EQ(*shapes("DynamicStitch", "=[0,4];=1;[2,3];[3]", {{"N", 2}}), "[5,3]");
  EXPECT_EQ(*values("DynamicStitch", "=[0,2];=1;=[7,8];=9", {{"N", 2}, {"T", DType::kInt32}}),
            "[7,9,8]");
}

OpTester& sparse(OpTester& tester, const Tensor& indices, const Index& shape) {
  return tester.input(indices).input(int_vector(shape));
}

TEST(SparseToDense, ScalarVectorAndMatrix) {
  for (DType dtype : moved_types()) {
    const Tensor v = random_tensor(dtype, {3}, 1);
    OpTester matrix("SparseToDense"), single("SparseToDense");
    const Tensor dense = *sparse(matrix, Tensor::of<int32_t>({2, 2}, {0, 1, 1, 2}), {2, 3})
                              .input(v.rows(0, 2))
                              .input(v.row(2))
                              .run_one();
    expect_tensor_equal(dense, pick(v, {2, 3}, [](const Index& at) {
                          return at == Index{0, 1} ? 0 : at == Index{1, 2} ? 1 : 2;
                        }));
    expect_tensor_equal(*sparse(single, scalar(1), {3}).input(v.row(0)).input(v.row(2)).run_one(),
                        pick(v, {3}, [](const Index& at) { return at[0] == 1 ? 0 : 2; }));
  }
}

TEST(SparseToDense, Errors) {
  const Tensor one = Tensor::scalar<float>(1);
  const struct {
    Tensor indices;
    Index shape;
    const char* part;
  } rows[] = {{int_vector({1, 0}), {3}, "out of order"}, {int_vector({1, 1}), {3}, "repeated"},
              {int_vector({3}), {3}, "out of bounds"},   {int_vector({-1}), {3}, "out of bounds"},
              {int_vector({0}), {3, 3}, "do not fit"},   {int_vector({0}), {-1}, "output_shape"}};
  for (const auto& row : rows) {
    OpTester tester("SparseToDense");
    expect_invalid(sparse(tester, row.indices, row.shape).input(one).input(one), row.part);
  }
  OpTester free("SparseToDense");
  free.attr("validate_indices", false);
  EXPECT_TRUE(sparse(free, int_vector({1, 0}), {3}).input(one).input(one).run().ok());
  EXPECT_EQ(*shapes("SparseToDense", "[?,2];=[4,?];[?];[]"), "[4,?]");
}

TEST(Where, FindsWhatIsTrue) {
  expect_tensor_equal(
      *OpTester("Where").input(Tensor::of<bool>({2, 2}, {false, true, true, false})).run_one(),
      Tensor::of<int64_t>({2, 2}, {0, 1, 1, 0}));
  expect_tensor_equal(*OpTester("Where").input(Tensor::vector<float>({0, -0.0F, NAN, 2})).run_one(),
                      Tensor::of<int64_t>({2, 1}, {2, 3}));
  EXPECT_EQ(OpTester("Where").input(Tensor::scalar<bool>(true)).run_one()->shape(), (Shape{1, 0}));
  EXPECT_EQ(OpTester("Where").input(*Tensor::zeros(DType::kBool, {0, 3})).run_one()->shape(),
            (Shape{0, 2}));
  EXPECT_EQ(*shapes("Where", "[2,?]"), "[?,2]");
}

TEST(Unique, EveryType) {
  for (int n = 1; n < kNumDTypes; ++n) {
    const DType dtype = static_cast<DType>(n);
    if (!kRealNumbers.contains(dtype) && dtype != DType::kString) continue;
    Tensor different = random_tensor(dtype, {4}, 11);
    const Tensor x = pick(different, {7}, [](const Index& at) { return (at[0] * at[0]) % 4; });
    const auto y = OpTester("UniqueWithCounts").attr("out_idx", DType::kInt64).input(x).run();
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    // 0 1 0 1 0 1 0
    expect_tensor_equal((*y)[0], different.rows(0, 2));
    expect_tensor_equal((*y)[1], Tensor::vector<int64_t>({0, 1, 0, 1, 0, 1, 0}));
    expect_tensor_equal((*y)[2], Tensor::vector<int64_t>({4, 3}));
  }
  const auto floats =
      OpTester("Unique").input(Tensor::vector<float>({0, -0.0F, NAN, NAN, 1})).run();
  expect_tensor_equal((*floats)[1], int_vector({0, 0, 1, 2, 3}));
  EXPECT_EQ((*OpTester("Unique").input(*Tensor::zeros(DType::kInt32, {0})).run())[0].num_elements(),
            0);
  expect_invalid(OpTester("Unique").input(*Tensor::zeros(DType::kInt32, {2, 2})),
                 "must be a vector");
}

TEST(UniqueV2, Slices) {
  const Tensor x = Tensor::of<int32_t>(Shape{2, 4}, {1, 2, 1, 3, 4, 5, 4, 5});
  const auto columns =
      OpTester("UniqueWithCountsV2").input(x).input(Tensor::scalar<int32_t>(-1)).run();
  ASSERT_TRUE(columns.ok()) << columns.status().to_string();
  expect_tensor_equal((*columns)[0], Tensor::of<int32_t>(Shape{2, 3}, {1, 2, 3, 4, 5, 5}));
  expect_tensor_equal((*columns)[1], int_vector({0, 1, 0, 2}));
  expect_tensor_equal((*columns)[2], int_vector({2, 1, 1}));
  const auto rows = OpTester("UniqueV2").input(x).input(Tensor::vector<int64_t>({0})).run();
  expect_tensor_equal((*rows)[0], x);
  const Tensor words = Tensor::vector<std::string>({"b", "a", "b"});
  const auto all = OpTester("UniqueV2").input(words).input(Tensor::vector<int64_t>({})).run();
  expect_tensor_equal((*all)[0], Tensor::vector<std::string>({"b", "a"}));
  // Slices without elements are all the same.
  const auto none = OpTester("UniqueV2")
                        .input(*Tensor::zeros(DType::kFloat, {3, 0}))
                        .input(int_vector({0}))
                        .run();
  EXPECT_EQ((*none)[0].shape(), (Shape{1, 0}));
  expect_invalid(OpTester("UniqueV2").input(x).input(int_vector({})), "rank 1");
  expect_invalid(OpTester("UniqueV2").input(x).input(int_vector({2})), "[-2, 2)");
  expect_invalid(OpTester("UniqueV2").input(x).input(int_vector({0, 1})), "got 0,1");
}

TEST(ListDiff, KeepsOrderAndRepeats) {
  const auto out =
      OpTester("ListDiff").input(int_vector({5, 3, 5, 1, 2})).input(int_vector({3, 2, 9})).run();
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  expect_tensor_equal((*out)[0], int_vector({5, 5, 1}));
  expect_tensor_equal((*out)[1], int_vector({0, 2, 3}));
  const auto strings = OpTester("ListDiff")
                           .input(Tensor::vector<std::string>({"a", "b", ""}))
                           .input(Tensor::vector<std::string>({"b"}))
                           .run();
  expect_tensor_equal((*strings)[0], Tensor::vector<std::string>({"a", ""}));
  expect_invalid(OpTester("ListDiff").input(scalar(1)).input(int_vector({1})), "must be a vector");
}

}  // namespace
}  // namespace millrace
