#include "millrace/graph/shape_testing.h"
#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

class ResourceVariables : public StateTest {};

TEST_F(ResourceVariables, HandleNamesDeviceContainerAndName) {
  const Tensor tensor = op("VarHandleOp")
                            .name("node")
                            .attr("dtype", DType::kInt32)
                            .attr("shape", PartialShape({2, -1}))
                            .attr("container", "box")
                            .attr("shared_name", "v")
                            .run_one()
                            .value();
  const ResourceHandle& handle = tensor.item<ResourceHandle>();
  EXPECT_EQ(handle.device, env_.device().name());
  EXPECT_EQ(handle.container, "box");
  EXPECT_EQ(handle.name, "v");
  ASSERT_EQ(handle.contents.size(), 1u);
  EXPECT_EQ(handle.contents[0].dtype, DType::kInt32);
  EXPECT_EQ(handle.contents[0].shape, PartialShape({2, -1}));
  // Nothing is made before the first assignment.
  EXPECT_TRUE(env_.resources().list().empty());
}

TEST_F(ResourceVariables, SameNameSameVariable) {
  variable("v", Tensor::scalar(1.0f));
  expect_equal(read(handle("v")), Tensor::scalar(1.0f));
  EXPECT_EQ(env_.resources().list()[0].container, ResourceManager::kDefaultContainer);
  EXPECT_EQ(env_.resources().list()[0].description, "Variable float []");
  env_.resources().clear_container(ResourceManager::kDefaultContainer);
  EXPECT_FALSE(read(handle("v")).ok());
}

TEST_F(ResourceVariables, AnonymousVariablesAreNotShared) {
  const char* anonymous = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";
  const Tensor a = variable(anonymous, Tensor::scalar(1.0f));
  const Tensor b = variable(anonymous, Tensor::scalar(2.0f));
  expect_equal(read(a), Tensor::scalar(1.0f));
  expect_equal(read(b), Tensor::scalar(2.0f));
}

TEST_F(ResourceVariables, WithoutAValue) {
  const Tensor v = handle("v");
  expect_error(read(v), Code::kFailedPrecondition, "Error while reading resource variable v");
  expect_equal(op("VarIsInitializedOp").input(v).run_one(), Tensor::scalar(false));
  expect_error(op("VariableShape").input(v).run(), Code::kFailedPrecondition, "variable v");
  expect_error(op("ResourceGather")
                   .attr("dtype", DType::kFloat)
                   .input(v)
                   .input(Tensor::vector<int32_t>({0}))
                   .run(),
               Code::kFailedPrecondition, "variable v");
  ASSERT_TRUE(assign(v, Tensor::scalar(1.0f)).ok());
  expect_equal(op("VarIsInitializedOp").input(v).run_one(), Tensor::scalar(true));
}

TEST_F(ResourceVariables, SharingNeedsOneTypeAndShape) {
  ASSERT_TRUE(assign(handle("v", DType::kFloat, {2}), Tensor::vector<float>({1, 2})).ok());
  expect_error(assign(handle("v", DType::kDouble), Tensor::vector<double>({1, 2})),
               Code::kInvalidArgument, "holds float, this op expects double");
  expect_error(assign(handle("v", DType::kFloat, {3}), Tensor::vector<float>({1, 2, 3})),
               Code::kInvalidArgument, "made with shape [2]");
  expect_error(assign(handle("v", DType::kFloat), Tensor::vector<float>({1, 2, 3})),
               Code::kInvalidArgument, "lhs shape= [2] rhs shape= [3]");
  expect_error(read(handle("v"), DType::kInt32), Code::kInvalidArgument,
               "holds float, this op expects int32");
}

TEST_F(ResourceVariables, BadHandles) {
  expect_error(op("ReadVariableOp")
                   .attr("dtype", DType::kFloat)
                   .input(Tensor::zeros(DType::kResource, {2}).value())
                   .run(),
               Code::kInvalidArgument, "must be one resource handle, got resource [2]");
  ResourceHandle other = handle("v").item<ResourceHandle>();
  other.type_name = "Queue";
  expect_error(read(Tensor::scalar(other)), Code::kInvalidArgument, "got that of a Queue");
  other.device = "/job:localhost/replica:0/task:0/device:CPU:1";
  expect_error(read(Tensor::scalar(other)), Code::kInvalidArgument, "CPU:1', this op runs on");
  expect_error(read(Tensor::scalar(ResourceHandle())), Code::kInvalidArgument, "device ''");
  ResourceHandle old_name = variable("v", Tensor::scalar(1.0f)).item<ResourceHandle>();
  old_name.device = "/job:localhost/replica:0/task:0/cpu:0";
  EXPECT_TRUE(read(Tensor::scalar(old_name)).ok());
}

TEST_F(ResourceVariables, CountUpTo) {
  const Tensor v = variable("v", Tensor::scalar<int64_t>(3));
  const auto count = [&](DType dtype) {
    return op("ResourceCountUpTo").attr("T", dtype).attr("limit", 4).input(v).run_one();
  };
  expect_equal(count(DType::kInt64), Tensor::scalar<int64_t>(3));
  expect_error(count(DType::kInt64), Code::kOutOfRange, "Reached limit of 4");
  expect_equal(read(v, DType::kInt64), Tensor::scalar<int64_t>(4));
  expect_error(count(DType::kInt32), Code::kInvalidArgument, "must be of type int32");
}

TEST_F(ResourceVariables, Destroy) {
  const Tensor v = variable("v", Tensor::scalar(1.0f));
  const Tensor value = read(v).value();
  ASSERT_TRUE(op("DestroyResourceOp").input(v).run().ok());
  EXPECT_FALSE(read(v).ok());
  expect_equal(value, Tensor::scalar(1.0f));
  EXPECT_TRUE(op("DestroyResourceOp").input(v).run().ok());
  expect_error(op("DestroyResourceOp").attr("ignore_lookup_error", false).input(v).run(),
               Code::kNotFound, "v");
}

TEST_F(ResourceVariables, VariableShape) {
  const Tensor v = variable("v", Tensor::zeros(DType::kFloat, {2, 0, 3}).value());
  expect_equal(op("VariableShape").input(v).run_one(), Tensor::vector<int32_t>({2, 0, 3}));
  expect_equal(op("VariableShape").attr("out_type", DType::kInt64).input(v).run_one(),
               Tensor::vector<int64_t>({2, 0, 3}));
}

TEST_F(ResourceVariables, Gather) {
  const Tensor v = variable("v", Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  auto gather = [&](Tensor indices) {
    return op("ResourceGather").attr("dtype", DType::kFloat).input(v).input(indices).run_one();
  };
  expect_equal(gather(Tensor::vector<int32_t>({2, 0, 2})),
               Tensor::of<float>({3, 2}, {5, 6, 1, 2, 5, 6}));
  expect_equal(gather(Tensor::scalar<int64_t>(1)), Tensor::vector<float>({3, 4}));
  expect_equal(gather(Tensor::of<int64_t>({1, 2}, {1, 0})),
               Tensor::of<float>({1, 2, 2}, {3, 4, 1, 2}));
  expect_equal(gather(Tensor::vector<int32_t>({})), Tensor::zeros(DType::kFloat, {0, 2}).value());
  expect_error(gather(Tensor::of<int32_t>({1, 2}, {0, 3})), Code::kInvalidArgument,
               "indices[0,1] = 3 is not in [0, 3)");
  expect_error(gather(Tensor::scalar<int64_t>(-1)), Code::kInvalidArgument,
               "indices = -1 is not in [0, 3)");
}

TEST_F(ResourceVariables, GatherOfOtherTypesAndEmptyVariables) {
  const Tensor words = variable("words", Tensor::vector<std::string>({"a", "b", "c"}));
  expect_equal(op("ResourceGather")
                   .attr("dtype", DType::kString)
                   .input(words)
                   .input(Tensor::vector<int32_t>({2, 1}))
                   .run_one(),
               Tensor::vector<std::string>({"c", "b"}));
  const Tensor no_rows = variable("no_rows", Tensor::zeros(DType::kFloat, {0, 2}).value());
  const Tensor no_columns = variable("no_columns", Tensor::zeros(DType::kFloat, {2, 0}).value());
  auto gather = [&](const Tensor& v) {
    return op("ResourceGather")
        .attr("dtype", DType::kFloat)
        .input(v)
        .input(Tensor::vector<int32_t>({1}))
        .run_one();
  };
  expect_error(gather(no_rows), Code::kInvalidArgument, "= 1 is not in [0, 0)");
  expect_equal(gather(no_columns), Tensor::zeros(DType::kFloat, {1, 0}).value());
  expect_error(gather(variable("scalar", Tensor::scalar(1.0f))), Code::kInvalidArgument,
               "batch_dims");
}

TEST_F(ResourceVariables, GatherInBatches) {
  const Tensor v = variable("v", Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  auto gather = [&](Tensor indices) {
    return op("ResourceGather")
        .attr("dtype", DType::kFloat)
        .attr("batch_dims", 1)
        .input(v)
        .input(std::move(indices))
        .run_one();
  };
  expect_equal(gather(Tensor::of<int32_t>({2, 2}, {2, 0, 1, 1})),
               Tensor::of<float>({2, 2}, {3, 1, 5, 5}));
  expect_error(gather(Tensor::of<int32_t>({1, 2}, {2, 0})), Code::kInvalidArgument,
               "must be equal");
  for (const int64_t many : {int64_t{-1}, int64_t{255}, INT64_MAX}) {
    expect_error(infer_shapes(OpRegistry::global(), "ResourceGather",
                              {{"dtype", DType::kFloat}, {"batch_dims", many}}, "[];?"),
                 Code::kInvalidArgument, "batch_dims must be from 0");
  }
}

TEST_F(ResourceVariables, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "VarHandleOp", {{"shape", PartialShape({2})}}, ""), "[]");
  EXPECT_EQ(*infer_shapes(ops, "ReadVariableOp", {}, "[]"), "?");
  EXPECT_FALSE(infer_shapes(ops, "ReadVariableOp", {}, "[2]").ok());
  EXPECT_EQ(*infer_shapes(ops, "VarIsInitializedOp", {}, "[]"), "[]");
  EXPECT_EQ(*infer_shapes(ops, "VariableShape", {}, "[]"), "[?]");
  EXPECT_EQ(*infer_shapes(ops, "ResourceGather", {}, "[];[2]"), "?");

  const OpDef* gather = ops.find("ResourceGather");
  const OpDef* shape = ops.find("VariableShape");
  TensorFacts handle, indices;
  handle.shape = PartialShape::scalar();
  handle.resource = {{DType::kFloat, PartialShape({5, -1})}};
  indices.shape = PartialShape({2, -1});
  AttrMap attrs = {{"dtype", DType::kFloat}, {"Tindices", DType::kInt32}};
  ASSERT_TRUE(check_attrs(*gather, attrs).ok());
  ShapeContext gathered(*gather, attrs, {&handle, &indices}, {DType::kResource, DType::kInt32},
                        {DType::kFloat});
  EXPECT_EQ((*infer(gathered))[0].shape.to_string(), "[2,?,?]");
  AttrMap none;
  ASSERT_TRUE(check_attrs(*shape, none).ok());
  ShapeContext shaped(*shape, none, {&handle}, {DType::kResource}, {DType::kInt32});
  const TensorFacts facts = (*infer(shaped))[0];
  EXPECT_EQ(facts.shape.to_string(), "[2]");
  ASSERT_TRUE(facts.value.has_value());
  EXPECT_EQ(facts.value->elements[0], 5);
  EXPECT_EQ(facts.value->elements[1], std::nullopt);
}

}  // namespace
}  // namespace millrace
