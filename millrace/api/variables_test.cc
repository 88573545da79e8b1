#include "millrace/api/variables.h"

#include <gtest/gtest.h>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

using initializers::constant;
using initializers::zeros;

TEST(Variables, KeepTheirFirstValueUntilAssigned) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& v = vars.get(root, "v", {2}, DType::kFloat, constant(3));
  Operation add = v.assign_add(root, root.constant(Tensor::vector<float>({1, 2})));
  Operation set = v.assign(root, root.constant(Tensor::vector<float>({8, 9})));
  Expr value = v.read(root);
  ClientSession session = ClientSession::create(root).value();
  EXPECT_EQ(session.run({}, {value}).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  ASSERT_TRUE(session.run({}, {}, {add}).ok());
  EXPECT_TRUE(bit_equal(session.run({}, {value}).value()[0], Tensor::vector<float>({4, 5})));
  ASSERT_TRUE(session.run({}, {}, {set}).ok());
  EXPECT_TRUE(bit_equal(session.run({}, {value}).value()[0], Tensor::vector<float>({8, 9})));
}

TEST(Variables, AreFoundByTheirWholeName) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Scope layer = root.sub_scope("layer");
  Variable& w = vars.get(layer, "w", {2}, DType::kFloat, zeros());
  EXPECT_EQ(w.name, "layer/w");
  EXPECT_EQ(root.name_of(w.handle), "layer/w:0");
  EXPECT_EQ(&vars.get(layer, "w", {2}, DType::kFloat, zeros()), &w);
  EXPECT_EQ(&vars.get(root, "layer/w", {2}, DType::kFloat, zeros()), &w);
  EXPECT_EQ(vars.find("layer/w"), &w);
  EXPECT_EQ(vars.find("w"), nullptr);
  Variable& other = vars.create(layer, "w", {3}, DType::kFloat, zeros(), {.trainable = false});
  EXPECT_EQ(other.name, "layer/w_1");
  EXPECT_EQ(vars.all(), (std::vector<Variable*>{&w, &other}));
  EXPECT_EQ(vars.trainable(), std::vector<Variable*>{&w});
  EXPECT_TRUE(root.ok()) << root.status().to_string();
}

TEST(Variables, OfAScopeWithinTheGraphKeepItsPrefixOnce) {
  Scope model = Scope::make_root().sub_scope("model");
  Variables vars(model);
  Variable& w = vars.get(model.sub_scope("layer"), "w", {2}, DType::kFloat, zeros());
  EXPECT_EQ(w.name, "model/layer/w");
  EXPECT_EQ(model.name_of(w.handle), "model/layer/w:0");
}

TEST(Variables, AskedForWithAnotherShapeOrTypeAreRefused) {
  for (bool other_shape : {true, false}) {
    Scope root = Scope::make_root();
    Variables vars(root);
    vars.get(root, "w", {2, 3}, DType::kFloat, zeros());
    Variable& w = other_shape ? vars.get(root, "w", {3, 2}, DType::kFloat, zeros())
                              : vars.get(root, "w", {2, 3}, DType::kDouble, zeros());
    EXPECT_FALSE(w.valid());
    EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
    std::string message = root.status().to_string();
    EXPECT_NE(message.find("\"w\" is float [2,3]"), std::string::npos) << message;
    EXPECT_NE(message.find(other_shape ? "[3,2]" : "double"), std::string::npos) << message;
    EXPECT_NE(message.find("variables_test.cc"), std::string::npos) << message;
    EXPECT_FALSE(vars.initialize().valid());
  }
}

TEST(Variables, AskedForInALoopBodyLiveOutside) {
  Scope root = Scope::make_root();
  Variables vars(root);
  std::vector<Expr> out = while_loop(
      root, {root.constant(int32_t{0}), root.constant(1.0)},
      [](const Scope& s, const std::vector<Expr>& v) { return less(v[0], s.constant(int32_t{3})); },
      [&](const Scope& s, const std::vector<Expr>& v) {
        Variable& w = vars.get(s, "w", {}, DType::kDouble, constant(2));
        return std::vector<Expr>{v[0] + 1.0, v[1] * w.read(s)};
      });
  ASSERT_TRUE(root.ok()) << root.status().to_string();
  ASSERT_EQ(vars.all().size(), 1u);
  Expr handle = vars.find("w")->handle;
  EXPECT_EQ(handle.builder(), &root.builder());
  auto found = gradients(root.builder(), std::span(&out[1], 1), std::span(&handle, 1));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  auto result = session.run({}, {out[1], (*found)[0].values});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ((*result)[0].item<double>(), 8);
  EXPECT_EQ((*result)[1].item<double>(), 12);
}

TEST(Variables, InitializeGrowsWithThem) {
  Scope root = Scope::make_root();
  Variables vars(root);
  vars.get(root, "a", {}, DType::kFloat, constant(1));
  Operation first = vars.initialize();
  EXPECT_EQ(vars.initialize().node, first.node);
  Variable& b = vars.get(root, "b", {}, DType::kFloat, constant(2));
  EXPECT_NE(vars.initialize().node, first.node);
  Expr value = b.read(root);
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  EXPECT_EQ(session.run({}, {value}).value()[0].item<float>(), 2);
}

TEST(Variables, FollowTheDeviceOfTheScope) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& v = vars.get(root.with_device("/device:CPU:1"), "v", {}, DType::kFloat, zeros());
  EXPECT_EQ(root.graph()->node(GraphBuilder::output(v.handle).node).device(), "/device:CPU:1");
}

TEST(Variables, GlobalStepIsOneCounter) {
  Scope root = Scope::make_root();
  Variables vars(root);
  EXPECT_EQ(&global_step(vars), &global_step(vars));
  EXPECT_EQ(global_step(vars).dtype, DType::kInt64);
  EXPECT_TRUE(vars.trainable().empty());
}

}  // namespace
}  // namespace millrace
