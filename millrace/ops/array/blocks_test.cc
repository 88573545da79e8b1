// SpaceToBatchND BatchToSpaceND SpaceToBatch BatchToSpace SpaceToDepth DepthToSpace MirrorPad
// MirrorPadGrad.

#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}
Tensor pairs(const Index& values, DType dtype = DType::kInt32) {
  return *int_vector(values, dtype).reshaped({static_cast<int64_t>(values.size()) / 2, 2});
}
void refused(const Result<Tensor>& result, std::string_view part) {
  expect_error(result.status(), Code::kInvalidArgument, part);
}

Result<Tensor> blocks(const char* op, const Tensor& x, const Index& sizes, const Index& margins) {
  return OpTester(op).input(x).input(int_vector(sizes)).input(pairs(margins)).run_one();
}

TEST(SpaceToBatch, EveryTypeAndBack) {
  const Shape shape = {2, 3, 4, 2}, blocked = {12, 3, 2, 2};
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, shape, 1);
    const Tensor y = *blocks("SpaceToBatchND", x, {2, 3}, {1, 2, 0, 2});
    expect_tensor_equal(y, pick(x, blocked, [&](const Index& at) {
                          const int64_t row = at[0] / 2;
                          const Index from = {at[0] % 2, at[1] * 2 + row / 3 - 1,
                                              at[2] * 3 + row % 3, at[3]};
                          const bool inside = from[1] >= 0 && from[1] < 3 && from[2] < 4;
                          return inside ? flat_index(shape, from) : -1;
                        }));
    expect_tensor_equal(*blocks("BatchToSpaceND", y, {2, 3}, {1, 2, 0, 2}), x);
  }
}

TEST(SpaceToBatch, Images) {
  const Tensor x = random_tensor(DType::kFloat, {1, 3, 4, 2}, 1);
  const Tensor margins = pairs({1, 0, 0, 2});
  const Tensor y =
      *OpTester("SpaceToBatch").attr("block_size", 2).input(x).input(margins).run_one();
  expect_tensor_equal(y, *blocks("SpaceToBatchND", x, {2, 2}, {1, 0, 0, 2}));
  expect_tensor_equal(
      *OpTester("BatchToSpace").attr("block_size", 2).input(y).input(margins).run_one(), x);
}

TEST(SpaceToBatch, EdgesAndMistakes) {
  const Tensor x = random_tensor(DType::kInt32, {1, 6, 1}, 1);
  expect_tensor_equal(*blocks("SpaceToBatchND", x, {}, {}), x);
  expect_tensor_equal(*blocks("SpaceToBatchND", x, {1}, {0, 0}), x);
  EXPECT_EQ(blocks("SpaceToBatchND", random_tensor(DType::kFloat, {0, 6}, 1), {3}, {0, 0})->shape(),
            (Shape{0, 2}));
  // Nothing but padding, and all cut off.
  const Tensor zeros =
      *blocks("SpaceToBatchND", random_tensor(DType::kFloat, {1, 0}, 1), {2}, {2, 0});
  expect_tensor_equal(zeros, Tensor::of<float>({2, 1}, {0, 0}));
  EXPECT_EQ(blocks("BatchToSpaceND", zeros, {2}, {1, 1})->shape(), (Shape{1, 0}));
  refused(blocks("SpaceToBatchND", x, {4}, {1, 2}),
          "padded_shape[0]=9 is not divisible by block_shape[0]=4");
  refused(blocks("SpaceToBatchND", x, {0}, {1, 2}), "must be positive");
  refused(blocks("SpaceToBatchND", x, {3}, {-1, 1}), "non-negative");
  refused(blocks("SpaceToBatchND", x, {3, 1, 1}, {0, 0, 0, 0, 0, 0}), "rank 4 or more");
  refused(blocks("SpaceToBatchND", x, {3}, {0, 0, 0, 0}), "shape [1,2]");
  const Tensor y = random_tensor(DType::kFloat, {3, 3, 1}, 1);
  refused(blocks("BatchToSpaceND", y, {3}, {6, 4}), "must be non-negative");
  refused(blocks("BatchToSpaceND", y, {2}, {0, 0}), "is not divisible by product of block sizes");
  const int64_t huge = int64_t{1} << 62;
  EXPECT_FALSE(OpTester("SpaceToBatchND")
                   .input(x)
                   .input(int_vector({huge}, DType::kInt64))
                   .input(pairs({huge, huge}, DType::kInt64))
                   .run_one()
                   .ok());
  EXPECT_EQ(*shapes("SpaceToBatchND", "[?,?,?,2];[2];?"), "[?,?,?,2]");
  EXPECT_EQ(*shapes("SpaceToBatchND", "[2,3,4];[1];[1,2]"), "[?,?,4]");
  EXPECT_EQ(*shapes("SpaceToBatch", "[2,?,4,1];[2,2]", {{"block_size", 2}}), "[8,?,?,1]");
  EXPECT_EQ(*shapes("BatchToSpace", "?;?", {{"block_size", 2}}), "[?,?,?,?]");
  EXPECT_FALSE(shapes("BatchToSpace", "[3,1,1,1];?", {{"block_size", 2}}).ok());
}

TEST(SpaceToDepth, EveryTypeAndLayout) {
  for (DType dtype : moved_types()) {
    for (bool last : {true, false}) {
      const Shape shape = last ? Shape{2, 4, 6, 3} : Shape{2, 3, 4, 6};
      const Shape deep = last ? Shape{2, 2, 3, 12} : Shape{2, 12, 2, 3};
      const int h = last ? 1 : 2, w = last ? 2 : 3, c = last ? 3 : 1;
      const Tensor x = random_tensor(dtype, shape, 1);
      const auto run = [&](const char* op, const Tensor& in) {
        return *OpTester(op)
                    .attr("block_size", 2)
                    .attr("data_format", last ? "NHWC" : "NCHW")
                    .input(in)
                    .run_one();
      };
      const Tensor y = run("SpaceToDepth", x);
      expect_tensor_equal(y, pick(x, deep, [&](const Index& at) {
                            const auto i = [&](int d) { return at[static_cast<size_t>(d)]; };
                            Index from = at;
                            const int64_t place = i(c) / 3;
                            from[static_cast<size_t>(h)] = 2 * i(h) + place / 2;
                            from[static_cast<size_t>(w)] = 2 * i(w) + place % 2;
                            from[static_cast<size_t>(c)] = i(c) % 3;
                            return flat_index(shape, from);
                          }));
      expect_tensor_equal(run("DepthToSpace", y), x);
    }
  }
}

TEST(SpaceToDepth, EdgesAndMistakes) {
  const auto run = [](const char* op, Shape shape, int64_t block) {
    return OpTester(op)
        .attr("block_size", block)
        .input(random_tensor(DType::kFloat, shape, 1))
        .run_one();
  };
  EXPECT_EQ(run("SpaceToDepth", {0, 2, 2, 1}, 2)->shape(), (Shape{0, 1, 1, 4}));
  EXPECT_EQ(run("DepthToSpace", {1, 0, 2, 4}, 2)->shape(), (Shape{1, 0, 4, 1}));
  refused(run("SpaceToDepth", {1, 3, 2, 1}, 2), "not divisible by 2");
  refused(run("DepthToSpace", {1, 3, 2, 3}, 2), "not divisible by 4");
  refused(run("SpaceToDepth", {2, 2, 1}, 2), "rank");
  EXPECT_FALSE(run("SpaceToDepth", {1, 2, 2, 1}, 1).ok());
  EXPECT_FALSE(run("DepthToSpace", {1, 2, 2, 1}, int64_t{1} << 40).ok());
  EXPECT_EQ(*shapes("SpaceToDepth", "?", {{"block_size", 4}}), "[?,?,?,?]");
  EXPECT_EQ(*shapes("DepthToSpace", "[1,?,2,8]", {{"block_size", 2}}), "[1,?,4,2]");
}

Result<Tensor> mirror(const char* op, const Tensor& x, const Index& paddings, const char* mode) {
  return OpTester(op).attr("mode", mode).input(x).input(pairs(paddings)).run_one();
}

TEST(MirrorPad, EveryType) {
  const Shape shape = {3, 2, 4};
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, shape, 1);
    for (bool reflect : {true, false}) {
      const Index before = {2, 0, 1}, after = {1, 1, 3};
      const Tensor y =
          *mirror("MirrorPad", x, {2, 1, 0, 1, 1, 3}, reflect ? "REFLECT" : "SYMMETRIC");
      expect_tensor_equal(y, pick(x, {6, 3, 8}, [&](const Index& at) {
                            Index from;
                            for (size_t d = 0; d < 3; ++d) {
                              const int64_t size = shape.dim(static_cast<int>(d)), edge = !reflect;
                              int64_t i = at[d] - before[d];
                              if (i < 0) i = -i - edge;
                              if (i >= size) i = 2 * (size - 1) - i + edge;
                              from.push_back(i);
                            }
                            return flat_index(shape, from);
                          }));
    }
  }
}

TEST(MirrorPad, GradientSumsWhatCameFromOneElement) {
  for (DType dtype : kernel_types("MirrorPadGrad")) {
    const Tensor dy = make_tensor(dtype, {7}, {1, 2, 3, 4, 5, 6, 7});
    expect_tensor_equal(*mirror("MirrorPadGrad", dy, {2, 2}, "REFLECT"),
                        make_tensor(dtype, {3}, {10, 12, 6}));
    expect_tensor_equal(*mirror("MirrorPadGrad", dy, {2, 2}, "SYMMETRIC"),
                        make_tensor(dtype, {3}, {5, 12, 11}));
  }
}

TEST(MirrorPad, EdgesAndMistakes) {
  const Tensor x = random_tensor(DType::kFloat, {3}, 1);
  const Tensor scalar = Tensor::scalar(3.0F);
  expect_tensor_equal(*OpTester("MirrorPad")
                           .attr("mode", "REFLECT")
                           .input(scalar)
                           .input(Tensor::allocate(DType::kInt32, {0, 2}).value())
                           .run_one(),
                      scalar);
  const Tensor none = random_tensor(DType::kFloat, {0, 2}, 1);
  EXPECT_EQ(mirror("MirrorPad", none, {0, 0, 1, 0}, "REFLECT")->shape(), (Shape{0, 3}));
  refused(mirror("MirrorPad", x, {3, 0}, "REFLECT"), "less than the dimension size");
  refused(mirror("MirrorPad", x, {0, 4}, "SYMMETRIC"), "no greater than the dimension size");
  refused(mirror("MirrorPad", none, {1, 0, 0, 0}, "SYMMETRIC"), "no greater than");
  refused(mirror("MirrorPad", x, {-1, 0}, "REFLECT"), "must be non-negative");
  refused(mirror("MirrorPad", x, {1, 0, 0, 0}, "REFLECT"), "shape [1,2]");
  refused(mirror("MirrorPadGrad", x, {2, 2}, "REFLECT"), "less than");
  EXPECT_EQ(*shapes("MirrorPad", "?;[2,2]", {{"mode", "REFLECT"}}), "[?,?]");
  EXPECT_FALSE(shapes("MirrorPad", "[3];[2,2]", {{"mode", "REFLECT"}}).ok());
}

}  // namespace
}  // namespace millrace
