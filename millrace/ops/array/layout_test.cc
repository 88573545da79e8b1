#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/tensor_testing.h"

// Transpose ConjugateTranspose InvertPermutation ReverseV2 Reverse Tile BroadcastTo Bitcast.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}
Result<std::string> values(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_values(OpRegistry::global(), op, std::move(attrs), inputs);
}

TEST(Transpose, RandomShapesAndTypes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  const std::vector<DType> types = moved_types();
  for (int round = 0; round < 300; ++round) {
    const DType dtype = types[static_cast<size_t>(round) % types.size()];
    const int rank = static_cast<int>(random() % 6);
    // Two large sizes now and then, so that whole tiles and their edges are seen.
    std::vector<int64_t> dims(static_cast<size_t>(rank)), perm(static_cast<size_t>(rank)), out;
    for (int64_t& d : dims)
      d = static_cast<int64_t>(rank > 0 && rank < 4 ? random() % 70 : random() % 5);
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random);
    for (int64_t p : perm) out.push_back(dims[static_cast<size_t>(p)]);
    const Shape shape = *Shape::make(dims);
    if (shape.num_elements() > 30000) continue;
    SCOPED_TRACE(str_cat(dtype, " ", shape, " perm ", AttrValue(perm)));
    const Tensor x = random_tensor(dtype, shape, 1);
    const Result<Tensor> y = OpTester("Transpose").input(x).input(int_vector(perm)).run_one();
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    expect_tensor_equal(*y, pick(x, *Shape::make(out), [&](const Index& index) {
      Index at(index.size());
      for (size_t i = 0; i < index.size(); ++i) at[static_cast<size_t>(perm[i])] = index[i];
      return flat_index(shape, at);
    }));
    if (HasFailure()) return;
  }
}

// Several blocks both ways, with edges, and a result that goes around the caches.
TEST(Transpose, LargeTensors) {
  struct Row {
    Shape shape;
    std::vector<int64_t> perm;
  };
  for (const Row& row :
       {Row{{2, 300, 515}, {0, 2, 1}}, Row{{515, 3, 200}, {2, 1, 0}}, Row{{2112, 1088}, {1, 0}}}) {
    SCOPED_TRACE(str_cat(row.shape));
    const Tensor x = random_tensor(DType::kFloat, row.shape, 1);
    std::vector<int64_t> dims;
    for (const int64_t p : row.perm) dims.push_back(row.shape.dim(static_cast<int>(p)));
    const Shape out = *Shape::make(dims);
    OpTester four("Transpose");
    four.threads(4).input(x).input(int_vector(row.perm));
    const Tensor y = *four.run_one();
    ASSERT_EQ(y.shape(), out);
    int64_t step[3] = {0, 0, 0};
    for (size_t k = 0; k < row.perm.size(); ++k) {
      step[k] = 1;
      for (int d = static_cast<int>(row.perm[k]) + 1; d < row.shape.rank(); ++d)
        step[k] *= row.shape.dim(d);
    }
    const bool flat = row.perm.size() == 2;
    const int64_t n = flat ? 1 : dims[2];
    const float* from = x.data<float>().data();
    const float* at = y.data<float>().data();
    for (int64_t i = 0; i < dims[0]; ++i) {
      for (int64_t j = 0; j < dims[1]; ++j) {
        for (int64_t k = 0; k < n; ++k) {
          ASSERT_EQ(*at++, from[i * step[0] + j * step[1] + k * step[2]]) << i << ' ' << j;
        }
      }
    }
  }
}

TEST(Transpose, SharesWhereNothingMoves) {
  const Tensor x = random_tensor(DType::kFloat, {1, 5, 1, 3}, 1);
  const Tensor y = *OpTester("Transpose").input(x).input(int_vector({1, 0, 3, 2})).run_one();
  EXPECT_TRUE(y.shares_buffer_with(x));
  EXPECT_EQ(y.shape(), (Shape{5, 1, 3, 1}));
}

TEST(Transpose, Conjugate) {
  const Tensor x = Tensor::of<Complex64>({1, 2}, {{1, 2}, {3, -4}});
  expect_tensor_equal(*OpTester("ConjugateTranspose").input(x).input(int_vector({1, 0})).run_one(),
                      Tensor::of<Complex64>({2, 1}, {{1, -2}, {3, 4}}));
  expect_tensor_equal(x, Tensor::of<Complex64>({1, 2}, {{1, 2}, {3, -4}}));
}

TEST(Transpose, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1);
  expect_invalid(OpTester("Transpose").input(x).input(int_vector({0})), "vector of 2");
  expect_invalid(OpTester("Transpose").input(x).input(int_vector({0, 2})), "in [0, 2)");
  expect_invalid(OpTester("Transpose").input(x).input(int_vector({0, -1})), "in [0, 2)");
  expect_invalid(OpTester("Transpose").input(x).input(int_vector({1, 1})), "twice");
  EXPECT_EQ(*shapes("Transpose", "[2,?,4];=[2,0,1]"), "[4,2,?]");
  EXPECT_EQ(*shapes("Transpose", "?;[2]"), "[?,?]");
  EXPECT_FALSE(shapes("Transpose", "[2,3];[3]").ok());
  expect_tensor_equal(*OpTester("InvertPermutation").input(int_vector({2, 0, 1})).run_one(),
                      int_vector({1, 2, 0}));
  expect_invalid(OpTester("InvertPermutation").input(int_vector({0, 0})), "twice");
  expect_invalid(OpTester("InvertPermutation").input(int_vector({0, 2})), "in [0, 2)");
  EXPECT_EQ(*values("InvertPermutation", "=[2,0,1]"), "[1,2,0]");
}

TEST(Reverse, EveryType) {
  for (DType dtype : {DType::kUInt8, DType::kHalf, DType::kFloat, DType::kDouble, DType::kString,
                      DType::kComplex128}) {
    for (const Shape& shape : {Shape{3, 4, 5}, Shape{3, 0, 5}}) {
      const Tensor x = random_tensor(dtype, shape, 1);
      const Tensor expected = pick(x, shape, [&](Index at) {
        at[0] = 2 - at[0];
        at[2] = 4 - at[2];
        return flat_index(shape, at);
      });
      expect_tensor_equal(*OpTester("ReverseV2").input(x).input(int_vector({0, -1})).run_one(),
                          expected);
      expect_tensor_equal(
          *OpTester("Reverse").input(x).input(Tensor::vector<bool>({true, false, true})).run_one(),
          expected);
    }
  }
  const Tensor x = random_tensor(DType::kFloat, {3, 4}, 1);
  expect_invalid(OpTester("ReverseV2").input(x).input(int_vector({0, -2})), "twice");
  expect_invalid(OpTester("ReverseV2").input(x).input(int_vector({2})), "axis");
  expect_invalid(OpTester("Reverse").input(x).input(Tensor::vector<bool>({true})),
                 "one element per");
  EXPECT_EQ(*values("ReverseV2", "=[1,?,3];=[0]", {{"T", DType::kInt32}}), "[3,?,1]");
}

TEST(Tile, EveryType) {
  for (DType dtype : moved_types()) {
    for (const Shape& shape : {Shape{2, 3}, Shape{1, 1}, Shape{0, 3}}) {
      for (const Index& m : {Index{2, 3}, Index{1, 4}, Index{3, 1}, Index{0, 2}}) {
        const Tensor x = random_tensor(dtype, shape, 1);
        const Shape out{shape.dim(0) * m[0], shape.dim(1) * m[1]};
        expect_tensor_equal(*OpTester("Tile").input(x).input(int_vector(m)).run_one(),
                            pick(x, out, [&](Index at) {
                              for (size_t i = 0; i < 2; ++i)
                                at[i] %= shape.dim(static_cast<int>(i));
                              return flat_index(shape, at);
                            }));
      }
    }
    const Tensor row = random_tensor(dtype, {1, 3}, 1);
    expect_tensor_equal(*OpTester("BroadcastTo").input(row).input(int_vector({2, 4, 3})).run_one(),
                        pick(row, {2, 4, 3}, [](const Index& at) { return at[2]; }));
  }
}

TEST(Tile, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1);
  expect_invalid(OpTester("Tile").input(x).input(int_vector({1, -1})), "multiples[1]");
  expect_invalid(OpTester("Tile").input(x).input(int_vector({1, INT64_MAX}, DType::kInt64)),
                 "multiples[1]");
  expect_invalid(OpTester("Tile").input(x).input(int_vector({1})), "1-D, of size 2");
  EXPECT_EQ(*shapes("Tile", "[2,?];=[3,2]"), "[6,?]");
  EXPECT_EQ(*shapes("Tile", "?;[2]"), "[?,?]");
  EXPECT_EQ(*values("Tile", "=[1,?];=[2]", {{"T", DType::kInt32}}), "[1,?,1,?]");
  expect_invalid(OpTester("BroadcastTo").input(x).input(int_vector({2, 4})), "cannot be broadcast");
  expect_invalid(OpTester("BroadcastTo").input(x).input(int_vector({3})), "cannot be broadcast");
  EXPECT_EQ(*shapes("BroadcastTo", "[1,3];=[2,3]"), "[2,3]");
  EXPECT_FALSE(shapes("BroadcastTo", "[2,3];=[4,3]").ok());
}

TEST(Bitcast, ChangesSizes) {
  const Tensor x = Tensor::of<uint8_t>({2, 4}, {0, 0, 128, 63, 0, 0, 0, 64});
  const Tensor y = *OpTester("Bitcast").attr("type", DType::kFloat).input(x).run_one();
  expect_tensor_equal(y, Tensor::vector<float>({1, 2}));
  EXPECT_TRUE(y.shares_buffer_with(x));
  expect_tensor_equal(*OpTester("Bitcast").attr("type", DType::kUInt8).input(y).run_one(), x);
  // Rows of bytes that do not begin where a float may.
  const Tensor odd = random_tensor(DType::kUInt8, {3, 5}, 1).reshaped({15})->rows(1, 5);
  EXPECT_TRUE(OpTester("Bitcast").attr("type", DType::kInt32).input(odd).run().ok());
  expect_invalid(OpTester("Bitcast").attr("type", DType::kDouble).input(x), "size 8");
  EXPECT_EQ(*shapes("Bitcast", "[?,2]", {{"T", DType::kFloat}, {"type", DType::kDouble}}), "[?]");
  EXPECT_EQ(*shapes("Bitcast", "[3]", {{"T", DType::kFloat}, {"type", DType::kInt16}}), "[3,2]");
}

TEST(CheckNumerics, FindsNanAndInf) {
  OpTester tester("CheckNumerics");
  tester.attr("message", "loss");
  const Tensor good = Tensor::vector<float>({1, -2});
  expect_tensor_equal(*tester.input(good).run_one(), good);
  expect_invalid(tester.clear_inputs().input(Tensor::vector<float>({1, NAN})),
                 "loss : Tensor had NaN");
  expect_invalid(tester.clear_inputs().input(Tensor::vector<double>({-INFINITY, NAN})),
                 "Inf and NaN");
}

}  // namespace
}  // namespace millrace
