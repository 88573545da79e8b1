#include "millrace/graph/gradient.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/op_registry.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

// All ops here are linear in their data, so <A x, w> = <x, A' w> for every x and w says that the
// rule A' is right.

namespace millrace {
namespace {

const bool registered =
    register_for_tests({register_array_ops, register_math_ops, register_reduce_ops});

double dot(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double sum = 0;
  for (size_t i = 0; i < a.data<double>().size() && a.shape() == b.shape(); ++i) {
    sum += a.data<double>()[i] * b.data<double>()[i];
  }
  return sum;
}

Tensor doubles(const Shape& shape) {
  static uint64_t seed = 0;
  return random_tensor(DType::kDouble, shape, ++seed);
}

// Checks the rule of `op` at these inputs; those of type double are data.
void check(std::string_view op, const std::vector<Tensor>& inputs, AttrMap attrs = {}) {
  for (bool shapes_known : {true, false}) {
    SCOPED_TRACE(str_cat(op, shapes_known ? "" : ", shapes unknown"));
    EagerBuilder b;
    if (!shapes_known) b.shapes = EagerBuilder::Shapes::kUnknown;
    std::vector<Expr> in;
    std::vector<DType> types;
    for (const Tensor& tensor : inputs) {
      in.push_back(b.constant(tensor));
      types.push_back(tensor.dtype());
    }
    const std::vector<Expr> out = b.emit(op, in, attrs);
    ASSERT_FALSE(out.empty());
    const OpDef* def = OpRegistry::global().lookup(op).value();
    AttrMap all = attrs;
    for (const AttrDef& attr : def->attrs) {
      if (all.find(attr.name) == nullptr && !attr.default_value.empty()) {
        all.set(attr.name, attr.default_value);
      }
    }
    std::vector<Expr> weights;
    double forward = 0;
    for (Expr y : out) {
      weights.push_back(b.constant(doubles(b.tensor(y).shape())));
      forward += dot(b.tensor(y), b.tensor(weights.back()));
    }
    GradientContext g(b, in, out, weights, all, types);
    ASSERT_NE(def->gradient, nullptr);
    const Status status = def->gradient(g);
    ASSERT_TRUE(status.ok() && b.status().ok()) << status.to_string() << b.status().to_string();
    double backward = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const Gradient& d = g.input_gradients()[i];
      EXPECT_EQ(d.values.valid(), types[i] == DType::kDouble) << "input " << i;
      if (!d.values.valid()) continue;
      const Expr dense = !d.indices.valid()
                             ? d.values
                             : call("ScatterNd", {expand_dims(d.indices, int32_scalar(b, 1)),
                                                  d.values, d.dense_shape});
      ASSERT_TRUE(dense.valid());
      backward += dot(inputs[i], b.tensor(dense));
    }
    EXPECT_NEAR(forward, backward, 1e-9 * (1 + std::abs(forward)));
  }
}

Tensor scalar(int32_t v) { return Tensor::scalar<int32_t>(v); }

TEST(ArrayGradient, Shapes) {
  check("Identity", {doubles({2})});
  check("Reshape", {doubles({2, 3}), int_vector({3, -1})});
  check("ExpandDims", {doubles({2, 3}), scalar(1)});
  check("Squeeze", {doubles({2, 1, 3})});
  check("Fill", {int_vector({2, 3}), doubles({})});
  check("Fill", {int_vector({}), doubles({})});
}

TEST(ArrayGradient, JoinsAndCuts) {
  check("ConcatV2", {doubles({2, 3}), doubles({2, 0}), doubles({2, 4}), scalar(-1)});
  check("ConcatV2", {doubles({2}), doubles({3}), Tensor::scalar<int64_t>(0)});
  check("Concat", {scalar(0), doubles({2, 3}), doubles({1, 3})});
  check("Pack", {doubles({2, 3}), doubles({2, 3})}, {{"axis", 1}});
  check("Unpack", {doubles({2, 3})}, {{"num", 3}, {"axis", 1}});
  check("Split", {scalar(1), doubles({2, 6})}, {{"num_split", 3}});
  check("Split", {scalar(1), doubles({2, 6})}, {{"num_split", 1}});
  check("SplitV", {doubles({2, 6}), int_vector({1, 5}), scalar(1)}, {{"num_split", 2}});
}

TEST(ArrayGradient, Slices) {
  check("Slice", {doubles({4, 5}), int_vector({1, 0}), int_vector({2, -1})});
  check("Slice", {doubles({4}), int_vector({1}, DType::kInt64), int_vector({3}, DType::kInt64)});
  check("StridedSlice",
        {doubles({4, 5}), int_vector({-1, 0}), int_vector({0, 9}), int_vector({-2, 3})});
  check("StridedSlice", {doubles({4, 5}), int_vector({2}), int_vector({3}), int_vector({1})},
        {{"shrink_axis_mask", 1}});
  check("StridedSliceGrad",
        {int_vector({4}), int_vector({3}), int_vector({0}), int_vector({-1}), doubles({3})});
  check("Pad", {doubles({2, 3}), Tensor::of<int32_t>({2, 2}, {1, 0, 2, 3})});
  check("Pad", {doubles({2}), Tensor::of<int64_t>({1, 2}, {1, 4})});
  check("PadV2", {doubles({2, 3}), Tensor::of<int32_t>({2, 2}, {1, 0, 2, 3}), doubles({})});
}

// The gradient of the constant is not what large numbers leave of it.
TEST(ArrayGradient, OfAPaddedConstantIsExact) {
  EagerBuilder b;
  const std::vector<Tensor> inputs = {Tensor::vector<float>({1, 2}),
                                      Tensor::of<int32_t>({1, 2}, {1, 1}), Tensor::scalar(3.0F)};
  std::vector<Expr> in;
  for (const Tensor& tensor : inputs) in.push_back(b.constant(tensor));
  const std::vector<Expr> out = b.emit("PadV2", in, {});
  const Expr dy = b.constant(Tensor::vector<float>({0.5F, 1e9F, INFINITY, 0.25F}));
  GradientContext g(b, in, out, {dy}, {}, {DType::kFloat, DType::kInt32, DType::kFloat});
  ASSERT_TRUE(OpRegistry::global().lookup("PadV2").value()->gradient(g).ok());
  EXPECT_EQ(b.tensor(g.input_gradients()[2].values).item<float>(), 0.75F);
}

TEST(ArrayGradient, Layout) {
  check("Tile", {doubles({2, 3}), int_vector({3, 2})});
  check("Tile", {doubles({2, 3}), int_vector({1, 2}, DType::kInt64)});
  check("BroadcastTo", {doubles({2, 1}), int_vector({3, 2, 4})});
  check("Transpose", {doubles({2, 3, 4}), int_vector({2, 0, 1})});
  check("ConjugateTranspose", {doubles({2, 3}), int_vector({1, 0})});
  check("ReverseV2", {doubles({2, 3}), int_vector({1})});
  check("Reverse", {doubles({2, 3}), Tensor::vector<bool>({true, false})});
  check("CheckNumerics", {doubles({2})}, {{"message", ""}});
}

TEST(ArrayGradient, Lookups) {
  check("Gather", {doubles({4, 3}), Tensor::of<int32_t>({2, 2}, {3, 0, 3, 3})});
  check("Gather", {doubles({4}), Tensor::scalar<int32_t>(2)});
  check("GatherV2", {doubles({2, 4, 3}), Tensor::of<int32_t>({2, 2}, {3, 0, 3, 3}), scalar(1)});
  check("GatherV2", {doubles({2, 4, 3}), int_vector({1, 1}), scalar(-1)});
  check("GatherNd", {doubles({3, 4, 2}), Tensor::of<int32_t>({2, 2}, {1, 2, 1, 2})});
  check("ScatterNd", {Tensor::of<int32_t>({2, 1}, {1, 1}), doubles({2, 3}), int_vector({4, 3})});
  check("DynamicPartition", {doubles({4, 2}), int_vector({1, 0, 1, 1})}, {{"num_partitions", 3}});
  check("DynamicStitch", {int_vector({0, 2}), int_vector({1}), doubles({2, 3}), doubles({1, 3})},
        {{"N", 2}});
}

}  // namespace
}  // namespace millrace
