#include "millrace/ops/tensor_array/tensor_array.h"

#include <gtest/gtest.h>

#include <deque>
#include <list>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_tensor_array_ops});

Tensor f(float x) { return Tensor::scalar(x); }
Tensor i32(int32_t x) { return Tensor::scalar(x); }
Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
void expect_invalid(const Status& status, std::string_view part) {
  expect_error(status, Code::kInvalidArgument, part);
}

class TensorArrayOps : public testing::Test {
 protected:
  Tensor make(int size, AttrMap attrs = {}) {
    OpTester& tester = op("TensorArrayV3").input(i32(size));
    if (attrs.find("dtype") == nullptr) attrs.set("dtype", DType::kFloat);
    for (const auto& [name, value] : attrs) tester.attr(name, value);
    return tester.run().value()[0];
  }
  Status write(const Tensor& array, int index, Tensor value) {
    return op("TensorArrayWriteV3")
        .input(array)
        .input(i32(index))
        .input(std::move(value))
        .input(f(0))
        .run()
        .status();
  }
  Result<Tensor> read(const Tensor& array, int index, DType dtype = DType::kFloat) {
    return op("TensorArrayReadV3")
        .input(array)
        .input(i32(index))
        .input(f(0))
        .attr("dtype", dtype)
        .run_one();
  }
  Result<Tensor> gather(const Tensor& array, std::initializer_list<int32_t> indices,
                        DType dtype = DType::kFloat, PartialShape shape = {}) {
    return op("TensorArrayGatherV3")
        .input(array)
        .input(Tensor::vector(indices))
        .input(f(0))
        .attr("dtype", dtype)
        .attr("element_shape", std::move(shape))
        .run_one();
  }
  Status scatter(const Tensor& array, std::initializer_list<int32_t> indices, Tensor value) {
    return op("TensorArrayScatterV3")
        .input(array)
        .input(Tensor::vector(indices))
        .input(std::move(value))
        .input(f(0))
        .run()
        .status();
  }
  Result<std::vector<Tensor>> concat(const Tensor& array, PartialShape rest = {}) {
    return op("TensorArrayConcatV3")
        .input(array)
        .input(f(0))
        .attr("dtype", DType::kFloat)
        .attr("element_shape_except0", std::move(rest))
        .run();
  }
  Status split(const Tensor& array, Tensor value, std::initializer_list<int64_t> lengths) {
    return op("TensorArraySplitV3")
        .input(array)
        .input(std::move(value))
        .input(Tensor::vector(lengths))
        .input(f(0))
        .run()
        .status();
  }
  Result<Tensor> gradient(const Tensor& array, const char* source = "gradients") {
    MR_TRY_ASSIGN(std::vector<Tensor> made,
                  op("TensorArrayGradV3").input(array).input(f(0)).attr("source", source).run());
    return made[0];
  }
  Result<Tensor> size(const Tensor& array) {
    return op("TensorArraySizeV3").input(array).input(f(0)).run_one();
  }
  Status close(const Tensor& array) { return op("TensorArrayCloseV3").input(array).run().status(); }

  OpTester& op(std::string_view name) { return testers_.emplace_back(env_, name); }

  OpEnv env_;
  std::list<OpTester> testers_;
};

TEST_F(TensorArrayOps, WritesOnceReadsOnce) {
  const Tensor array = make(3);
  ASSERT_TRUE(write(array, 2, floats({1, 2})).ok());
  ASSERT_TRUE(write(array, 0, f(3)).ok());
  expect_invalid(write(array, 0, f(4)), "already been written");
  expect_tensor_equal(read(array, 2).value(), floats({1, 2}));
  expect_invalid(read(array, 2).status(), "clear_after_read");
  expect_invalid(write(array, 2, f(4)), "already been read");
  expect_invalid(read(array, 1).status(), "Could not read from TensorArray index 1");
  EXPECT_EQ(size(array).value().item<int32_t>(), 3);
}

TEST_F(TensorArrayOps, KeepsElementsWhenAsked) {
  const Tensor array = make(1, {{"clear_after_read", false}});
  ASSERT_TRUE(write(array, 0, f(3)).ok());
  EXPECT_EQ(read(array, 0).value().item<float>(), 3);
  EXPECT_EQ(read(array, 0).value().item<float>(), 3);
}

TEST_F(TensorArrayOps, HoldsAllTypes) {
  for (int t = 1; t < kNumDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    SCOPED_TRACE(dtype_name(dtype));
    for (const Shape& shape : {Shape{3}, Shape{3, 2}, Shape{3, 0}}) {
      const Tensor array = make(3, {{"dtype", dtype}});
      const Tensor value = random_tensor(dtype, shape, 5);
      ASSERT_TRUE(scatter(array, {2, 0, 1}, value).ok());
      expect_tensor_equal(gather(array, {2, 0, 1}, dtype).value(), value);
    }
  }
}

TEST_F(TensorArrayOps, GrowsOnlyWhenDynamic) {
  const Tensor fixed = make(1), dynamic = make(0, {{"dynamic_size", true}});
  expect_invalid(write(fixed, 1, f(1)), "not resizeable and size is: 1");
  expect_invalid(write(fixed, -1, f(1)), "negative");
  expect_invalid(read(fixed, 1).status(), "array size is: 1");
  ASSERT_TRUE(write(dynamic, 4, f(1)).ok());
  EXPECT_EQ(size(dynamic).value().item<int32_t>(), 5);
}

TEST_F(TensorArrayOps, HugeSizesCostNothing) {
  const Tensor array = make(2147483647, {{"dynamic_size", true}, {"element_shape", Shape{0}}});
  ASSERT_TRUE(write(array, 2147483647, floats({})).ok());
  expect_error(concat(array).status(), Code::kResourceExhausted, "only 1");
  expect_invalid(op("TensorArrayV3").input(i32(-1)).attr("dtype", DType::kFloat).run().status(),
                 "negative");
}

TEST_F(TensorArrayOps, ElementShapes) {
  const Tensor declared = make(2, {{"element_shape", PartialShape{-1, 2}}});
  expect_invalid(write(declared, 0, floats({1})), "[?,2]");
  ASSERT_TRUE(write(declared, 0, Tensor::of<float>({1, 2}, {1, 2})).ok());
  ASSERT_TRUE(write(declared, 1, Tensor::of<float>({0, 2}, {})).ok());
  const Tensor same = make(2, {{"identical_element_shapes", true}});
  ASSERT_TRUE(write(same, 0, floats({1, 2})).ok());
  expect_invalid(write(same, 1, floats({1, 2, 3})), "[2]");
  const Tensor known = make(2, {{"element_shape", Shape{2}}});
  ASSERT_TRUE(write(known, 0, floats({1, 2})).ok());
  expect_tensor_equal(gather(known, {0, 1}).value(), Tensor::of<float>({2, 2}, {1, 2, 0, 0}));
  expect_invalid(write(known, 0, i32(1)), "float");
  expect_invalid(read(known, 0, DType::kInt32).status(), "float");
}

TEST_F(TensorArrayOps, GatherAndScatter) {
  const Tensor array = make(3);
  expect_invalid(scatter(array, {0, 1}, floats({1})), "2 indices");
  expect_invalid(scatter(array, {0}, f(1)), "1 indices");
  expect_invalid(scatter(array, {3}, floats({1})), "size is: 3");
  ASSERT_TRUE(scatter(array, {}, floats({})).ok());
  ASSERT_TRUE(scatter(array, {1, 0}, floats({10, 20})).ok());
  ASSERT_TRUE(write(array, 2, floats({1})).ok());
  expect_invalid(gather(array, {0, 2}).status(), "inconsistent shapes");

  const Tensor other = make(1);
  expect_error(gather(other, {}).status(), Code::kUnimplemented, "not fully defined");
  EXPECT_EQ(gather(other, {}, DType::kFloat, {2}).value().shape(), (Shape{0, 2}));
  ASSERT_TRUE(write(other, 0, f(1)).ok());
  expect_invalid(gather(other, {0}, DType::kFloat, {2}).status(), "[2]");
}

TEST_F(TensorArrayOps, ConcatAndSplit) {
  const Tensor array = make(3);
  const Tensor value = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_invalid(split(array, value, {1, 1}), "sum");
  expect_invalid(split(array, value, {1, -1, 3}), "negative");
  expect_invalid(split(array, value, {4, -1, 0}), "sum");
  expect_invalid(split(array, value, {1, 2}), "size 3");
  expect_invalid(split(array, f(1), {1}), "vector");
  ASSERT_TRUE(split(array, value, {1, 0, 2}).ok());
  const std::vector<Tensor> joined = concat(array).value();
  expect_tensor_equal(joined[0], value);
  expect_tensor_equal(joined[1], Tensor::vector<int64_t>({1, 0, 2}));

  const Tensor empty = make(0);
  expect_error(concat(empty).status(), Code::kUnimplemented, "not fully defined");
  EXPECT_EQ(concat(empty, Shape{2}).value()[0].shape(), (Shape{0, 2}));
  const Tensor scalars = make(1);
  ASSERT_TRUE(write(scalars, 0, f(1)).ok());
  expect_invalid(concat(scalars).status(), "scalar at index 0");
  const Tensor mixed = make(2);
  ASSERT_TRUE(write(mixed, 0, floats({1})).ok());
  ASSERT_TRUE(write(mixed, 1, value).ok());
  expect_invalid(concat(mixed).status(), "inconsistent shapes");
}

TEST_F(TensorArrayOps, CloseAndStepEnd) {
  const Tensor array = make(1), other = make(1);
  ASSERT_TRUE(close(array).ok());
  expect_invalid(write(array, 0, f(1)), "already been closed");
  expect_invalid(read(array, 0).status(), "already been closed");
  expect_invalid(size(array).status(), "already been closed");
  expect_invalid(gradient(array).status(), "already been closed");
  env_.next_step();
  EXPECT_EQ(write(other, 0, f(1)).code(), Code::kNotFound);
}

TEST_F(TensorArrayOps, GradientArraysAddUp) {
  for (DType dtype : {DType::kFloat, DType::kHalf, DType::kBFloat16, DType::kDouble, DType::kInt32,
                      DType::kComplex64}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Tensor array = make(3, {{"dtype", dtype}, {"dynamic_size", true}});
    const Tensor value = random_tensor(dtype, Shape{2}, 1);
    ASSERT_TRUE(write(array, 0, value).ok());
    ASSERT_TRUE(write(array, 1, value).ok());
    const Tensor grad = gradient(array).value();
    EXPECT_EQ(size(grad).value().item<int32_t>(), 3);
    expect_invalid(write(array, 3, value), "not resizeable");
    const Tensor zero = Tensor::zeros(dtype, Shape{2}).value();
    ASSERT_TRUE(write(grad, 0, value).ok());
    ASSERT_TRUE(write(grad, 0, zero).ok());
    expect_invalid(write(grad, 0, random_tensor(dtype, Shape{3}, 1)), "existing shape is [2]");
    expect_tensor_equal(read(grad, 0, dtype).value(), value);
    expect_tensor_equal(read(grad, 1, dtype).value(), zero);
    expect_invalid(read(grad, 2, dtype).status(), "nothing was written");
    expect_invalid(gradient(grad).status(), "several times");
  }
}

TEST_F(TensorArrayOps, GradientArraysAreSharedByName) {
  const Tensor array = make(1);
  ASSERT_TRUE(write(array, 0, floats({1, 2})).ok());
  const Tensor value = floats({3, 4});
  ASSERT_TRUE(write(gradient(array).value(), 0, value).ok());
  ASSERT_TRUE(write(gradient(array).value(), 0, value).ok());
  expect_tensor_equal(value, floats({3, 4}));
  expect_tensor_equal(read(gradient(array).value(), 0).value(), floats({6, 8}));
  expect_tensor_equal(read(gradient(array, "gradients_1").value(), 0).value(), floats({0, 0}));
}

TEST(TensorArrayShapes, Rules) {
  const OpRegistry& ops = OpRegistry::global();
  const auto rule = [&](const char* op, const AttrMap& attrs, const char* inputs) {
    const Result<std::string> out = infer_shapes(ops, op, attrs, inputs);
    return out.ok() ? *out : std::string(code_name(out.status().code()));
  };
  const AttrMap dtype = {{"dtype", DType::kFloat}};
  EXPECT_EQ(rule("TensorArrayV3", dtype, "[]"), "[];[]");
  EXPECT_EQ(rule("TensorArrayV3", dtype, "[1]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArrayV3", dtype, "=-1"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArrayGradV3", {{"source", "g"}}, "[];[]"), "[];[]");
  EXPECT_EQ(rule("TensorArrayWriteV3", {}, "[];[];[2];[]"), "[]");
  EXPECT_EQ(rule("TensorArrayWriteV3", {}, "[];[1];[2];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArrayReadV3", dtype, "[];[];[]"), "?");
  EXPECT_EQ(rule("TensorArrayGatherV3", {{"dtype", DType::kFloat}, {"element_shape", Shape{2}}},
                 "[];[3];[]"),
            "[3,2]");
  EXPECT_EQ(rule("TensorArrayGatherV3", dtype, "[];[3,1];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArrayScatterV3", {}, "[];[3];[?,2];[]"), "[]");
  EXPECT_EQ(rule("TensorArrayScatterV3", {}, "[];[3];[];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArrayConcatV3",
                 {{"dtype", DType::kFloat}, {"element_shape_except0", Shape{2}}}, "[];[]"),
            "[?,2];[?]");
  EXPECT_EQ(rule("TensorArraySplitV3", {}, "[];[4,2];[3];[]"), "[]");
  EXPECT_EQ(rule("TensorArraySplitV3", {}, "[];[];[3];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorArraySizeV3", {}, "[];[]"), "[]");
}

class TensorArrayGradients : public TensorArrayOps {
 protected:
  // A node of the forward pass, and its rule.
  struct Node {
    const char* op;
    AttrMap attrs;
    std::vector<Expr> inputs, outputs;
  };
  Node run(const char* op, std::vector<Expr> inputs, AttrMap attrs = {}) {
    Node node{op, attrs, inputs, {}};
    node.outputs = builder_.emit(op, inputs, attrs);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status().to_string();
    return node;
  }
  std::vector<Expr> differentiate(const Node& node, std::vector<Expr> output_gradients) {
    std::vector<DType> types;
    for (Expr e : node.inputs) types.push_back(e.dtype());
    GradientContext g(builder_, node.inputs, node.outputs, output_gradients, node.attrs, types);
    EXPECT_TRUE(OpRegistry::global().find(node.op)->gradient(g).ok());
    EXPECT_TRUE(builder_.status().ok()) << builder_.status().to_string();
    std::vector<Expr> out;
    for (const auto& input : g.input_gradients()) out.push_back(input.values);
    return out;
  }
  const Tensor& value(Expr e) const { return builder_.tensor(e); }
  Expr constant(Tensor t) { return builder_.constant(t); }

  EagerBuilder builder_{env_};
  const AttrMap dtype_ = {{"dtype", DType::kFloat}};
};

// x is written, read twice; dx is the sum of both.
TEST_F(TensorArrayGradients, WriteThenRead) {
  const Expr array = constant(make(1, {{"clear_after_read", false}})), at = constant(i32(0));
  const Node write =
      run("TensorArrayWriteV3", {array, at, constant(floats({1, 2})), constant(f(0))});
  const Node a = run("TensorArrayReadV3", {array, at, write.outputs[0]}, dtype_);
  const Node b = run("TensorArrayReadV3", {array, at, write.outputs[0]}, dtype_);
  differentiate(a, {constant(floats({10, 20}))});
  const std::vector<Expr> after = differentiate(b, {constant(floats({1, 2}))});
  const std::vector<Expr> dx = differentiate(write, {after[2]});
  expect_tensor_equal(value(dx[2]), floats({11, 22}));
  EXPECT_TRUE(dx[3].valid());
  EXPECT_FALSE(dx[0].valid() || dx[1].valid());
}

TEST_F(TensorArrayGradients, ScatterThenGather) {
  const Expr array = constant(make(3));
  const Node scatter =
      run("TensorArrayScatterV3", {array, constant(Tensor::vector<int32_t>({2, 0, 1})),
                                   constant(floats({1, 2, 3})), constant(f(0))});
  const Node gather =
      run("TensorArrayGatherV3",
          {array, constant(Tensor::vector<int32_t>({1, 2})), scatter.outputs[0]}, dtype_);
  const std::vector<Expr> flow = differentiate(gather, {constant(floats({10, 20}))});
  const std::vector<Expr> dx = differentiate(scatter, {flow[2]});
  expect_tensor_equal(value(dx[2]), floats({20, 0, 10}));
}

TEST_F(TensorArrayGradients, SplitThenConcat) {
  const Expr array = constant(make(2));
  const Node split =
      run("TensorArraySplitV3", {array, constant(floats({1, 2, 3})),
                                 constant(Tensor::vector<int64_t>({2, 1})), constant(f(0))});
  const Node concat = run("TensorArrayConcatV3", {array, split.outputs[0]}, dtype_);
  const std::vector<Expr> flow = differentiate(concat, {constant(floats({10, 20, 30})), Expr()});
  const std::vector<Expr> dx = differentiate(split, {flow[1]});
  expect_tensor_equal(value(dx[1]), floats({10, 20, 30}));
}

// An array longer than what was split into it.
TEST_F(TensorArrayGradients, SplitOfADynamicArray) {
  const Expr array = constant(make(4, {{"dynamic_size", true}}));
  const Node split =
      run("TensorArraySplitV3", {array, constant(floats({1, 2, 3})),
                                 constant(Tensor::vector<int64_t>({2, 1})), constant(f(0))});
  const Node read = run("TensorArrayReadV3", {array, constant(i32(1)), split.outputs[0]}, dtype_);
  const std::vector<Expr> flow = differentiate(read, {constant(floats({7}))});
  const std::vector<Expr> dx = differentiate(split, {flow[2]});
  expect_tensor_equal(value(dx[1]), floats({0, 0, 7}));
}

}  // namespace
}  // namespace millrace
