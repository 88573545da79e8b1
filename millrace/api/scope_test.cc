#include "millrace/api/scope.h"

#include <gtest/gtest.h>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

namespace millrace {
namespace {

TEST(Scope, NamesAreUniqueUnderTheirScope) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root.with_name("x"), DType::kFloat);
  Scope layer = root.sub_scope("layer");
  EXPECT_EQ(root.name_of(x), "x:0");
  EXPECT_EQ(root.name_of(ops::neg(layer, x)), "layer/Neg:0");
  EXPECT_EQ(root.name_of(ops::neg(layer, x)), "layer/Neg_1:0");
  EXPECT_EQ(root.name_of(ops::neg(root.sub_scope("layer"), x)), "layer_1/Neg:0");
  EXPECT_TRUE(root.ok()) << root.status().to_string();
}

TEST(Scope, DeviceControlAndColocationReachTheNode) {
  Scope root = Scope::make_root();
  Operation first = ops::no_op(root.with_name("first"));
  Expr v = ops::variable_v2(root.with_name("v"), DType::kFloat, Shape{});
  Expr x = ops::neg(root.with_device("/cpu:1").with_control({first}).colocated_with(v), v);
  const Node& node = root.graph()->node(GraphBuilder::output(x).node);
  EXPECT_EQ(node.device(), "/cpu:1");
  ASSERT_EQ(node.control_inputs().size(), 1u);
  EXPECT_EQ(node.control_inputs()[0], first.node);
  EXPECT_EQ(node.attr<std::vector<std::string>>("_class").value()[0], "loc:@v");
}

TEST(Scope, TheFirstErrorSticksAndNamesTheCallersLine) {
  Scope root = Scope::make_root();
  Expr a = root.constant(Tensor::zeros(DType::kFloat, {2, 3}).value());
  int line = __LINE__ + 1;
  Expr bad = ops::mat_mul(root.with_name("product"), a, a);
  Expr after = ops::neg(root, bad);
  EXPECT_FALSE(bad.valid());
  EXPECT_FALSE(after.valid());
  EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
  std::string text = root.status().to_string();
  EXPECT_NE(text.find("MatMul \"product\""), std::string::npos) << text;
  EXPECT_NE(text.find(str_cat("scope_test.cc:", line)), std::string::npos) << text;
  EXPECT_EQ(ClientSession::create(root).status(), root.status());
}

TEST(Scope, TensorsOfAnotherGraphAreRefused) {
  Scope one = Scope::make_root(), other = Scope::make_root();
  Expr x = one.constant(1.0f);
  EXPECT_FALSE(ops::neg(other, x).valid());
  EXPECT_NE(other.status().message().find("another graph"), std::string_view::npos);
}

TEST(GeneratedOps, ListsSeveralOutputsAndAttributes) {
  Scope root = Scope::make_root();
  Expr a = root.constant(Tensor::vector<float>({1, 2}));
  Expr b = root.constant(Tensor::vector<float>({3, 4}));
  Expr joined = ops::pack(root, {a, b}, {.axis = 1});
  std::vector<Expr> parts = ops::unpack(root, joined, /*num=*/2);
  ASSERT_EQ(parts.size(), 2u);
  ops::TopKV2Result top = ops::top_kv2(root, parts[1], root.constant(int32_t{1}));
  ClientSession session = ClientSession::create(root).value();
  std::vector<Tensor> out = session.run({}, {joined, parts[1], top.values, top.indices}).value();
  EXPECT_TRUE(bit_equal(out[0], Tensor::of<float>({2, 2}, {1, 3, 2, 4})));
  EXPECT_TRUE(bit_equal(out[1], Tensor::vector<float>({2, 4})));
  EXPECT_EQ(out[2].item<float>(), 4);
  EXPECT_EQ(out[3].item<int32_t>(), 1);
}

TEST(ClientSession, FeedsTensorsAndRunsOperations) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  Expr v = ops::variable_v2(root, DType::kFloat, Shape{});
  Operation init = root.operation_of(ops::assign(root, v, root.constant(1.0f)));
  Expr sum = ops::assign_add(root, v, x);
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {init}).ok());
  auto step = session.make_callable({x}, {sum}).value();
  std::vector<Tensor> out;
  for (float expected : {3.0f, 5.0f}) {
    ASSERT_TRUE(step->run(std::vector<Tensor>{Tensor::scalar<float>(2)}, out).ok());
    EXPECT_EQ(out[0].item<float>(), expected);
  }
}

}  // namespace
}  // namespace millrace
