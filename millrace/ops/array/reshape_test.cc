#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Tensor some(const Shape& shape, DType dtype = DType::kFloat) {
  return random_tensor(dtype, shape, 1);
}

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {},
                           const TestConstants& constants = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs, constants);
}
Result<std::string> values(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_values(OpRegistry::global(), op, std::move(attrs), inputs);
}

TEST(ShapeOf, Kernels) {
  for (DType out : {DType::kInt32, DType::kInt64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 0, 3}, Shape{4, 5}}) {
      const Index dims(shape.dims().begin(), shape.dims().end());
      const Tensor x = some(shape);
      expect_tensor_equal(*OpTester("Shape").attr("out_type", out).input(x).run_one(),
                          int_vector(dims, out));
      EXPECT_EQ(OpTester("Rank").input(x).run_one()->item<int32_t>(), shape.rank());
      const Tensor size = *OpTester("Size").attr("out_type", out).input(x).run_one();
      EXPECT_EQ(out == DType::kInt32 ? size.item<int32_t>() : size.item<int64_t>(),
                shape.num_elements());
      const auto many = OpTester("ShapeN").attr("out_type", out).input_list({x, some({7})}).run();
      ASSERT_TRUE(many.ok());
      expect_tensor_equal((*many)[0], int_vector(dims, out));
      expect_tensor_equal((*many)[1], int_vector({7}, out));
    }
  }
}

TEST(ShapeOf, Rules) {
  EXPECT_EQ(*shapes("Shape", "[2,?,3]"), "[3]");
  EXPECT_EQ(*shapes("Shape", "?"), "[?]");
  EXPECT_EQ(*values("Shape", "[2,?,3]"), "[2,?,3]");
  EXPECT_EQ(*values("Size", "[2,3]"), "6");
  EXPECT_EQ(*values("Size", "[2,?]"), "?");
  EXPECT_EQ(*values("Rank", "[2,?]"), "2");
  EXPECT_EQ(*values("ShapeN", "[2];[?,4]"), "[2];[?,4]");
}

TEST(Reshape, SharesTheBuffer) {
  for (DType dtype : moved_types()) {
    const Tensor x = some({2, 6}, dtype);
    const Tensor y = *OpTester("Reshape").input(x).input(int_vector({3, -1})).run_one();
    expect_tensor_equal(y, *x.reshaped({3, 4}));
    EXPECT_TRUE(y.shares_buffer_with(x));
  }
  EXPECT_EQ(OpTester("Reshape").input(some({1})).input(int_vector({})).run_one()->rank(), 0);
  EXPECT_EQ(OpTester("Reshape").input(some({0, 3})).input(int_vector({-1, 5})).run_one()->shape(),
            (Shape{0, 5}));
  EXPECT_EQ(OpTester("Reshape")
                .input(some({4}))
                .input(int_vector({2, 2}, DType::kInt64))
                .run_one()
                ->shape(),
            (Shape{2, 2}));
}

TEST(Reshape, Errors) {
  const struct {
    Tensor shape;
    const char* part;
  } rows[] = {{int_vector({-1, -1}), "only one size"},
              {int_vector({5, -1}), "divisible by 5"},
              {int_vector({0, -1}), "missing size"},
              {int_vector({7}), "(7 elements)"},
              {int_vector({-2, 3}), "-2"},
              {int_vector({INT64_MAX, 4}, DType::kInt64), ""},
              {Tensor::scalar<int32_t>(12), "vector"}};
  for (const auto& row : rows) {
    expect_invalid(OpTester("Reshape").input(some({3, 4})).input(row.shape), row.part);
  }
}

TEST(Reshape, Rules) {
  EXPECT_EQ(*shapes("Reshape", "[6];=[2,-1]"), "[2,3]");
  EXPECT_EQ(*shapes("Reshape", "[?];=[2,-1]"), "[2,?]");
  EXPECT_EQ(*shapes("Reshape", "[?];[3]"), "[?,?,?]");
  EXPECT_EQ(*shapes("Reshape", "?;?"), "?");
  EXPECT_FALSE(shapes("Reshape", "[6];=[4]").ok());
  EXPECT_FALSE(shapes("Reshape", "[6];=[4,-1]").ok());
  EXPECT_EQ(*values("Reshape", "=5;=[1]"), "[5]");
  EXPECT_EQ(*values("Reshape", "=[5];=[]"), "5");
}

TEST(ExpandDims, KernelAndRules) {
  const Tensor x = some({2, 3});
  const std::pair<int, Shape> rows[] = {
      {0, {1, 2, 3}}, {1, {2, 1, 3}}, {2, {2, 3, 1}}, {-1, {2, 3, 1}}, {-3, {1, 2, 3}}};
  for (const auto& [dim, shape] : rows) {
    const Tensor y = *OpTester("ExpandDims").input(x).input(Tensor::scalar<int32_t>(dim)).run_one();
    expect_tensor_equal(y, *x.reshaped(shape));
    EXPECT_TRUE(y.shares_buffer_with(x));
  }
  expect_invalid(OpTester("ExpandDims").input(x).input(Tensor::scalar<int32_t>(3)), "dim");
  expect_invalid(OpTester("ExpandDims").input(x).input(int_vector({1, 2})), "scalar");
  EXPECT_EQ(*shapes("ExpandDims", "[2,?];=-2"), "[2,1,?]");
  EXPECT_EQ(*shapes("ExpandDims", "[2,?];[]"), "[?,?,?]");
  EXPECT_EQ(*values("ExpandDims", "=4;=0"), "[4]");
}

TEST(Squeeze, KernelAndRules) {
  const Tensor x = some({1, 2, 1, 3, 1});
  expect_tensor_equal(*OpTester("Squeeze").input(x).run_one(), *x.reshaped({2, 3}));
  expect_tensor_equal(*OpTester("Squeeze").attr("squeeze_dims", Index{0, -1}).input(x).run_one(),
                      *x.reshaped({2, 1, 3}));
  expect_invalid(OpTester("Squeeze").attr("squeeze_dims", Index{1}).input(x), "its size is 2");
  expect_invalid(OpTester("Squeeze").attr("squeeze_dims", Index{5}).input(x), "squeeze_dims");
  EXPECT_EQ(*shapes("Squeeze", "[1,2,1]"), "[2]");
  EXPECT_EQ(*shapes("Squeeze", "[1,?]"), "?");
  EXPECT_EQ(*shapes("Squeeze", "[?,?,3]", {{"squeeze_dims", Index{0}}}), "[?,3]");
  EXPECT_EQ(*values("Squeeze", "=[7]"), "7");
}

TEST(Fill, Kernel) {
  for (DType dtype : moved_types()) {
    const Tensor value = some({}, dtype);
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3, 2}}) {
      const Tensor dims = int_vector(Index(shape.dims().begin(), shape.dims().end()));
      expect_tensor_equal(*OpTester("Fill").input(dims).input(value).run_one(),
                          pick(value, shape, [](const Index&) { return 0; }));
    }
  }
  expect_invalid(OpTester("Fill").input(int_vector({-1})).input(some({})), "dims");
  expect_invalid(OpTester("Fill").input(int_vector({2})).input(some({1})), "must be a scalar");
  expect_invalid(OpTester("Fill").input(Tensor::scalar<int32_t>(2)).input(some({})), "dims");
  EXPECT_EQ(*shapes("Fill", "=[2,3];[]"), "[2,3]");
  EXPECT_EQ(*shapes("Fill", "[2];[]"), "[?,?]");
  EXPECT_FALSE(shapes("Fill", "=[2,-1];[]").ok());
  EXPECT_EQ(*values("Fill", "=[3];=7", {{"T", DType::kInt32}}), "[7,7,7]");
}

TEST(Fill, ZerosAndOnesLike) {
  for (int n = 1; n < kNumDTypes; ++n) {
    const DType dtype = static_cast<DType>(n);
    if (!is_plain(dtype)) continue;
    const Tensor x = some({2, 3}, dtype);
    expect_tensor_equal(*OpTester("ZerosLike").input(x).run_one(), *Tensor::zeros(dtype, {2, 3}));
  }
  expect_tensor_equal(*OpTester("ZerosLike").input(some({2}, DType::kString)).run_one(),
                      *Tensor::zeros(DType::kString, {2}));
  expect_error(OpTester("ZerosLike").input(some({2}, DType::kVariant)).run().status(),
               Code::kUnimplemented, "variant");
  expect_tensor_equal(*OpTester("OnesLike").input(some({3})).run_one(),
                      Tensor::vector<float>({1, 1, 1}));
  expect_tensor_equal(*OpTester("OnesLike").input(some({2}, DType::kBool)).run_one(),
                      Tensor::vector<bool>({true, true}));
  expect_tensor_equal(*OpTester("OnesLike").input(some({0, 2}, DType::kInt64)).run_one(),
                      *Tensor::zeros(DType::kInt64, {0, 2}));
  Tensor movable = *some({64}).clone();
  const void* memory = movable.raw();
  EXPECT_EQ(OpTester("ZerosLike").movable(true).input(std::move(movable)).run_one()->raw(), memory);
}

template <class T>
Result<Tensor> range_of(double start, double limit, double delta) {
  return OpTester("Range")
      .input(Tensor::scalar<T>(static_cast<T>(start)))
      .input(Tensor::scalar<T>(static_cast<T>(limit)))
      .input(Tensor::scalar<T>(static_cast<T>(delta)))
      .run_one();
}

// Products of position and delta that are more than the type holds, though no element is.
TEST(Range, ReachesFromEndToEnd) {
  const auto range = []<class T>(T start, T limit, T delta) {
    return *OpTester("Range")
                .input(Tensor::scalar(start))
                .input(Tensor::scalar(limit))
                .input(Tensor::scalar(delta))
                .run_one();
  };
  constexpr int32_t kLeast = INT32_MIN, kMost = INT32_MAX, kStep = 1 << 30;
  expect_tensor_equal(range(kLeast, kMost, kStep),
                      Tensor::vector<int32_t>({kLeast, -kStep, 0, kStep}));
  expect_tensor_equal(range(kMost, kLeast, kLeast), Tensor::vector<int32_t>({kMost, -1}));
  constexpr int64_t kWide = int64_t{1} << 62;
  expect_tensor_equal(range(INT64_MIN, INT64_MAX, kWide),
                      Tensor::vector<int64_t>({INT64_MIN, -kWide, 0, kWide}));
}

TEST(Range, Kernel) {
  expect_tensor_equal(*range_of<int32_t>(2, 9, 3), Tensor::vector<int32_t>({2, 5, 8}));
  expect_tensor_equal(*range_of<int64_t>(5, 0, -2), Tensor::vector<int64_t>({5, 3, 1}));
  expect_tensor_equal(*range_of<float>(0, 1, 0.25), Tensor::vector<float>({0, 0.25, 0.5, 0.75}));
  expect_tensor_equal(*range_of<double>(1, 1, 1), *Tensor::zeros(DType::kDouble, {0}));
  expect_error(range_of<int32_t>(0, 5, 0).status(), Code::kInvalidArgument, "delta");
  expect_error(range_of<int32_t>(0, 5, -1).status(), Code::kInvalidArgument, "cannot reach");
  expect_error(range_of<float>(0, INFINITY, 1).status(), Code::kInvalidArgument, "finite");
  EXPECT_EQ(*shapes("Range", "=0;=10;=3"), "[4]");
  EXPECT_EQ(*values("Range", "=0;=3;=1"), "[0,1,2]");
  EXPECT_FALSE(shapes("Range", "=0;=10;=0").ok());
  // The distance of the two does not fit in int64.
  expect_error(OpTester("Range")
                   .input(Tensor::scalar<int64_t>(INT64_MIN))
                   .input(Tensor::scalar<int64_t>(INT64_MAX))
                   .input(Tensor::scalar<int64_t>(1))
                   .run()
                   .status(),
               Code::kInvalidArgument, "too long");
}

TEST(Identity, HandsOn) {
  for (const char* op : {"Identity", "StopGradient", "PreventGradient"}) {
    for (DType dtype : moved_types()) {
      const Tensor x = some({0, 2}, dtype);
      expect_tensor_equal(*OpTester(op).input(x).run_one(), x);
    }
    const Tensor x = some({2});
    EXPECT_TRUE(OpTester(op).input(x).run_one()->shares_buffer_with(x));
  }
  const auto two = OpTester("IdentityN").input_list({some({2}), some({3}, DType::kInt64)}).run();
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  expect_tensor_equal((*two)[1], some({3}, DType::kInt64));
  const auto ref = OpTester("RefIdentity").input_ref(make_ref_cell(some({2}))).run_values();
  ASSERT_TRUE(ref.ok());
  EXPECT_TRUE((*ref)[0].is_ref());
  EXPECT_EQ(*values("Identity", "=[1,?]"), "[1,?]");
}

TEST(Constant, IsItsAttribute) {
  const Tensor value = some({2, 2});
  expect_tensor_equal(
      *OpTester("Const").attr("value", value).attr("dtype", DType::kFloat).run_one(), value);
  expect_invalid(OpTester("Const").attr("value", value).attr("dtype", DType::kInt32), "dtype says");
}

TEST(Placeholder, MustBeFed) {
  for (const char* op : {"Placeholder", "PlaceholderV2"}) {
    expect_invalid(
        OpTester(op).attr("dtype", DType::kFloat).attr("shape", PartialShape({-1, 3})).name("x"),
        "placeholder tensor 'x' with dtype float and shape [?,3]");
  }
  EXPECT_EQ(*shapes("Placeholder", "", {{"dtype", DType::kFloat}}), "?");
  EXPECT_EQ(
      *shapes("PlaceholderV2", "", {{"dtype", DType::kFloat}, {"shape", PartialShape::scalar()}}),
      "[]");
  OpTester with_default("PlaceholderWithDefault");
  with_default.attr("shape", PartialShape({-1}));
  expect_tensor_equal(*with_default.input(some({2})).run_one(), some({2}));
  expect_invalid(with_default.clear_inputs().input(some({2, 2})), "expected [?]");
}

}  // namespace
}  // namespace millrace
