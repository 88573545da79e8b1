#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

// Ops that join and cut tensors: ConcatV2 Concat ConcatOffset Pack Split SplitV Unpack.

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

// Part `part` of what was joined along `axis`, found element by element.
Tensor part_of(const Tensor& whole, const Shape& shape, int axis, int64_t begin) {
  return pick(whole, shape, [&](const Index& index) {
    Index at = index;
    at[static_cast<size_t>(axis)] += begin;
    return flat_index(whole.shape(), at);
  });
}

const Shape kShapes[] = {{4}, {0}, {2, 3}, {3, 0, 2}, {2, 3, 4}, {40, 50, 30}};

TEST(Concat, EveryTypeAxisAndSize) {
  for (DType dtype : moved_types()) {
    for (const Shape& shape : kShapes) {
      if (!is_plain(dtype) && shape.num_elements() > 1000) continue;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        std::vector<Tensor> parts;
        for (int64_t size : {shape.dim(axis), int64_t{0}, int64_t{5}}) {
          parts.push_back(random_tensor(dtype, *shape.with_dim(axis, size), parts.size()));
        }
        const Result<Tensor> v2 =
            OpTester("ConcatV2").input_list(parts).input(scalar(axis - shape.rank())).run_one();
        const Result<Tensor> v1 =
            OpTester("Concat").input(scalar(axis)).input_list(parts).run_one();
        ASSERT_TRUE(v2.ok() && v1.ok()) << v2.status().to_string();
        expect_tensor_equal(*v1, *v2);
        EXPECT_EQ(v2->dim(axis), shape.dim(axis) + 5);
        int64_t begin = 0;
        for (const Tensor& part : parts) {
          expect_tensor_equal(part_of(*v2, part.shape(), axis, begin), part);
          begin += part.dim(axis);
        }
      }
    }
  }
}

// Written around the caches, rows that begin anywhere in a line.
TEST(Concat, LargeResults) {
  constexpr int64_t kRows = 4097, kFirst = 1021, kSecond = 1300;
  const Tensor x = random_tensor(DType::kFloat, {kRows, kFirst}, 1);
  const Tensor y = random_tensor(DType::kFloat, {kRows, kSecond}, 2);
  const Tensor out = OpTester("ConcatV2").input_list({x, y}).input(scalar(1)).run_one().value();
  const float* row = out.data<float>().data();
  for (int64_t r = 0; r < kRows; ++r, row += kFirst + kSecond) {
    const float* const a = x.data<float>().data() + r * kFirst;
    const float* const b = y.data<float>().data() + r * kSecond;
    ASSERT_TRUE(std::equal(a, a + kFirst, row) && std::equal(b, b + kSecond, row + kFirst)) << r;
  }
}

TEST(Concat, OneFilledValueIsShared) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1),
               none = random_tensor(DType::kFloat, {2, 0}, 1);
  EXPECT_TRUE(OpTester("ConcatV2")
                  .input_list({none, x, none})
                  .input(scalar(1))
                  .run_one()
                  ->shares_buffer_with(x));
}

TEST(Concat, Errors) {
  const Tensor a = random_tensor(DType::kFloat, {2, 3}, 1),
               b = random_tensor(DType::kFloat, {2, 4}, 1);
  const Tensor s = random_tensor(DType::kFloat, {}, 1);
  expect_invalid(OpTester("ConcatV2").input_list({a, b}).input(scalar(0)), "input 1 is [2,4]");
  expect_invalid(OpTester("ConcatV2").input_list({a, a}).input(scalar(2)), "axis");
  expect_invalid(OpTester("ConcatV2").input_list({a, a}).input(scalar(-3)), "axis");
  expect_invalid(OpTester("ConcatV2").input_list({s, s}).input(scalar(0)), "concatenate scalars");
  expect_invalid(OpTester("ConcatV2").input_list({a, a}).input(int_vector({0})),
                 "must be a scalar");
}

TEST(Concat, Rules) {
  EXPECT_EQ(*shapes("ConcatV2", "[2,3];[2,?];=1"), "[2,?]");
  EXPECT_EQ(*shapes("ConcatV2", "[?,3];[2,4];=-1"), "[2,7]");
  EXPECT_EQ(*shapes("ConcatV2", "[2,3];?;[]"), "[?,?]");
  EXPECT_EQ(*shapes("ConcatV2", "?;?;=0"), "?");
  EXPECT_EQ(*shapes("Concat", "=0;[2];[3]"), "[5]");
  EXPECT_FALSE(shapes("ConcatV2", "[2,3];[3,3];=1").ok());
  EXPECT_FALSE(shapes("ConcatV2", "[2,3];[2];=0").ok());
  EXPECT_EQ(*values("ConcatV2", "=[1,?];[1];=[4];=0", {{"T", DType::kInt32}}), "[1,?,?,4]");
}

TEST(ConcatOffset, KernelAndRules) {
  const auto offsets = OpTester("ConcatOffset")
                           .input(scalar(1))
                           .input_list({int_vector({2, 3}), int_vector({2, 5}), int_vector({2, 1})})
                           .run();
  ASSERT_TRUE(offsets.ok()) << offsets.status().to_string();
  expect_tensor_equal((*offsets)[0], int_vector({0, 0}));
  expect_tensor_equal((*offsets)[1], int_vector({0, 3}));
  expect_tensor_equal((*offsets)[2], int_vector({0, 8}));
  expect_invalid(OpTester("ConcatOffset")
                     .input(scalar(1))
                     .input_list({int_vector({2, 3}), int_vector({3, 3})}),
                 "All dimensions except 1");
  expect_invalid(OpTester("ConcatOffset")
                     .input(scalar(0))
                     .input_list({int_vector({INT32_MAX}), int_vector({1})}),
                 "int32");
  expect_invalid(
      OpTester("ConcatOffset").input(scalar(0)).input_list({int_vector({}), int_vector({})}),
      "out of range");
  EXPECT_EQ(*values("ConcatOffset", "=0;=[2,3];=[?,3];=[1,3]"), "[0,0];[2,0];[?,0]");
}

TEST(Pack, AndUnpack) {
  for (DType dtype : moved_types()) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 2}, Shape{2, 3, 4}}) {
      for (int axis = 0; axis <= shape.rank(); ++axis) {
        std::vector<Tensor> parts;
        for (uint64_t i = 0; i < 3; ++i) parts.push_back(random_tensor(dtype, shape, i));
        const Result<Tensor> packed =
            OpTester("Pack").attr("axis", axis - shape.rank() - 1).input_list(parts).run_one();
        ASSERT_TRUE(packed.ok()) << packed.status().to_string();
        for (int64_t i = 0; i < 3; ++i) {
          expect_tensor_equal(pick(*packed, shape,
                                   [&](Index index) {
                                     index.insert(index.begin() + axis, i);
                                     return flat_index(packed->shape(), index);
                                   }),
                              parts[static_cast<size_t>(i)]);
        }
        const auto unpacked =
            OpTester("Unpack").attr("num", 3).attr("axis", axis).input(*packed).run();
        ASSERT_TRUE(unpacked.ok()) << unpacked.status().to_string();
        for (size_t i = 0; i < 3; ++i) expect_tensor_equal((*unpacked)[i], parts[i]);
      }
    }
  }
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1);
  EXPECT_TRUE(OpTester("Pack").input_list({x}).run_one()->shares_buffer_with(x));
  EXPECT_TRUE((*OpTester("Unpack").attr("num", 2).input(x).run())[1].shares_buffer_with(x));
}

TEST(Pack, ErrorsAndRules) {
  const Tensor a = random_tensor(DType::kFloat, {2}, 1), b = random_tensor(DType::kFloat, {3}, 1);
  expect_invalid(OpTester("Pack").input_list({a, b}), "input 1 is [3]");
  expect_invalid(OpTester("Pack").attr("axis", 2).input_list({a, a}), "axis");
  expect_invalid(OpTester("Unpack").attr("num", 3).input(a), "size 3");
  expect_invalid(OpTester("Unpack").attr("num", 1).input(random_tensor(DType::kFloat, {}, 1)),
                 "axis");
  EXPECT_EQ(*shapes("Pack", "[2,?];[?,3]", {{"axis", 1}}), "[2,2,3]");
  EXPECT_EQ(*shapes("Unpack", "[?,3]", {{"num", 2}}), "[3];[3]");
  EXPECT_FALSE(shapes("Unpack", "[4,3]", {{"num", 2}}).ok());
  EXPECT_EQ(*values("Pack", "=1;[];=3", {{"T", DType::kInt32}}), "[1,?,3]");
  EXPECT_EQ(*values("Unpack", "=[1,?]", {{"num", 2}}), "1;?");
}

TEST(Split, EveryTypeAxisAndSize) {
  for (DType dtype : moved_types()) {
    for (const Shape& base : kShapes) {
      if (!is_plain(dtype) && base.num_elements() > 1000) continue;
      for (int axis = 0; axis < base.rank(); ++axis) {
        const Shape shape = *base.with_dim(axis, 6);
        const Tensor x = random_tensor(dtype, shape, 1);
        const auto equal =
            OpTester("Split").attr("num_split", 3).input(scalar(axis)).input(x).run();
        const auto sized = OpTester("SplitV")
                               .attr("num_split", 3)
                               .input(x)
                               .input(int_vector({1, -1, 0}, DType::kInt64))
                               .input(scalar(axis - shape.rank()))
                               .run();
        ASSERT_TRUE(equal.ok() && sized.ok()) << sized.status().to_string();
        const int64_t sizes[] = {1, 5, 0}, begins[] = {0, 1, 6};
        for (size_t i = 0; i < 3; ++i) {
          const int64_t n = static_cast<int64_t>(i);
          expect_tensor_equal((*equal)[i], part_of(x, *shape.with_dim(axis, 2), axis, 2 * n));
          expect_tensor_equal((*sized)[i],
                              part_of(x, *shape.with_dim(axis, sizes[i]), axis, begins[i]));
          if (axis == 0) {
            EXPECT_TRUE((*equal)[i].shares_buffer_with(x));
          }
        }
      }
    }
  }
}

TEST(Split, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {6, 2}, 1);
  expect_invalid(OpTester("Split").attr("num_split", 4).input(scalar(0)).input(x), "4 equal parts");
  expect_invalid(OpTester("Split").attr("num_split", 2).input(scalar(2)).input(x), "split_dim");
  const std::pair<Index, const char*> rows[] = {{{1, 2}, "add up to 3"},
                                                {{7, -1}, "add up to 7"},
                                                {{-1, -1}, "one -1"},
                                                {{-2, 8}, "got -2"},
                                                {{2, 2, 2}, "2 elements"}};
  for (const auto& [sizes, part] : rows) {
    expect_invalid(
        OpTester("SplitV").attr("num_split", 2).input(x).input(int_vector(sizes)).input(scalar(0)),
        part);
  }
  EXPECT_EQ(*shapes("Split", "=1;[2,6]", {{"num_split", 2}}), "[2,3];[2,3]");
  EXPECT_EQ(*shapes("Split", "[];[2,6]", {{"num_split", 2}}), "[?,?];[?,?]");
  EXPECT_FALSE(shapes("Split", "=1;[2,5]", {{"num_split", 2}}).ok());
  EXPECT_EQ(*shapes("SplitV", "[?,6];=[2,-1];=1", {{"num_split", 2}}), "[?,2];[?,4]");
  EXPECT_EQ(*shapes("SplitV", "[?,6];[2];=1", {{"num_split", 2}}), "[?,?];[?,?]");
  EXPECT_EQ(*values("Split", "=0;=[1,2,?,4]", {{"num_split", 2}, {"T", DType::kInt32}}),
            "[1,2];[?,4]");
}

}  // namespace
}  // namespace millrace
