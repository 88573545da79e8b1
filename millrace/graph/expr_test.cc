#include "millrace/graph/expr.h"

#include <gtest/gtest.h>

#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/sample_ops_testing.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

class ExprTest : public testing::Test {
 protected:
  ExprTest() { register_sample_ops(registry_); }

  Expr placeholder(PartialShape shape, DType dtype = DType::kFloat) {
    return builder_.emit("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}})[0];
  }
  const Node& node(Expr e) { return graph_->node(GraphBuilder::output(e).node); }
  // The ops added after the first `begin` nodes, in order.
  std::string ops_since(int begin) {
    std::vector<std::string> ops;
    for (int i = begin; i < graph_->num_nodes(); ++i) ops.push_back(graph_->node(i).op_name());
    return str_join(ops, " ");
  }
  // What sum_to_shape_of adds.
  std::string summing(PartialShape gradient, PartialShape input) {
    const Expr g = placeholder(std::move(gradient));
    const Expr x = placeholder(std::move(input));
    const int begin = graph_->num_nodes();
    EXPECT_TRUE(sum_to_shape_of(g, x).valid()) << builder_.status().to_string();
    return ops_since(begin);
  }

  OpRegistry registry_;
  Ref<Graph> graph_ = make_ref<Graph>(registry_);
  GraphBuilder builder_{*graph_};
};

TEST_F(ExprTest, ConstantsTakeTheDtypeOfTheirNeighbour) {
  auto value = [this](DType dtype, double v) {
    return node(constant_like(placeholder({}, dtype), v)).attr<Tensor>("value").value();
  };
  EXPECT_EQ(value(DType::kFloat, 1.5).item<float>(), 1.5f);
  EXPECT_EQ(static_cast<float>(value(DType::kHalf, 1.5).item<Half>()), 1.5f);
  EXPECT_EQ(static_cast<float>(value(DType::kBFloat16, -2).item<BFloat16>()), -2.0f);
  EXPECT_EQ(value(DType::kUInt8, 300).item<uint8_t>(), 255);
  EXPECT_EQ(value(DType::kInt64, -1e300).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(value(DType::kInt32, 7.9).item<int32_t>(), 7);
  EXPECT_EQ(value(DType::kComplex64, 2).item<Complex64>(), Complex64(2, 0));
  EXPECT_EQ(value(DType::kBool, 1).item<bool>(), true);
  ASSERT_TRUE(builder_.status().ok());
  EXPECT_FALSE(constant_like(placeholder({}, DType::kString), 1).valid());
  EXPECT_FALSE(builder_.status().ok());
}

TEST_F(ExprTest, Arithmetic) {
  const Expr x = placeholder({2, 3});
  const Expr y = -(x * 2.0 + x);
  ASSERT_TRUE(y.valid()) << builder_.status().to_string();
  EXPECT_EQ(node(y).op_name(), "Neg");
  EXPECT_EQ(y.shape(), (PartialShape{2, 3}));
  EXPECT_EQ(cast(x, DType::kFloat).id(), x.id());
  EXPECT_EQ(cast(x, DType::kInt32).dtype(), DType::kInt32);
  EXPECT_EQ(concat({x}, 0).id(), x.id());
  EXPECT_EQ(*node(concat({x, x}, 1)).attr<int64_t>("N"), 2);
  EXPECT_EQ(*node(sum(x, int32_vector(builder_, {0}), true)).attr<bool>("keep_dims"), true);
}

TEST_F(ExprTest, InvalidInputsMakeInvalidOutputs) {
  const Expr none;
  EXPECT_FALSE((none + none).valid());
  EXPECT_FALSE((none * 2.0).valid());
  EXPECT_EQ(none.dtype(), DType::kInvalid);
  EXPECT_TRUE(builder_.status().ok());
  EXPECT_FALSE((placeholder({}) + none).valid());
  EXPECT_EQ(builder_.status().message(), "Add: input 1: there is no tensor");
}

TEST_F(ExprTest, SumsOnlyWhatWasBroadcast) {
  EXPECT_EQ(summing({2, 3}, {2, 3}), "");
  EXPECT_EQ(summing({2, 3}, {3}), "Const Sum");
  EXPECT_EQ(summing({-1, 3}, {3}), "Const Sum");
  EXPECT_EQ(summing({2, 3}, {2, 1}), "Const Sum");
  EXPECT_EQ(summing({2, 3}, {1}), "Const Sum Const Reshape");
  EXPECT_EQ(summing({2, 1}, {1}), "Const Sum");
  EXPECT_EQ(summing({2, 3}, PartialShape::scalar()), "Const Sum");
  EXPECT_EQ(summing({1, 3}, {-1, 3}), "");
  EXPECT_EQ(summing({-1, 3}, {-1, 3}), "Shape Shape BroadcastGradientArgs Sum Reshape");
  EXPECT_EQ(summing(PartialShape(), {3}), "Shape Shape BroadcastGradientArgs Sum Reshape");
}

TEST_F(ExprTest, UnbroadcastUsesBothShapes) {
  const Expr a = placeholder({-1, 10});
  const Expr b = placeholder({10});
  const Expr g = placeholder({-1, 10});
  int begin = graph_->num_nodes();
  const ExprPair sums = unbroadcast(g, g, a, b);
  EXPECT_EQ(sums.first.id(), g.id());
  EXPECT_EQ(ops_since(begin), "Const Sum");

  begin = graph_->num_nodes();
  const ExprPair dynamic = unbroadcast(g, g, a, placeholder({-1, 1}));
  EXPECT_TRUE(dynamic.first.valid() && dynamic.second.valid()) << builder_.status().to_string();
  EXPECT_EQ(ops_since(begin),
            "Placeholder Shape Shape BroadcastGradientArgs Sum Reshape Sum Reshape");
}

TEST_F(ExprTest, GradientContext) {
  const Expr x = placeholder({2});
  const Expr y = -x;
  const AttrMap attrs = {{"T", DType::kFloat}};
  GradientContext c(builder_, {x}, {y, y}, {x, Expr()}, attrs, {DType::kFloat});
  EXPECT_EQ(c.gradient(0).id(), x.id());
  EXPECT_FALSE(c.has_gradient(1));
  EXPECT_EQ(node(c.gradient(1)).op_name(), "ZerosLike");
  EXPECT_EQ(c.attr_value("T"), AttrValue(DType::kFloat));
  c.set(0, y);
  EXPECT_EQ(c.input_gradients()[0].values.id(), y.id());
  EXPECT_FALSE(c.input_gradients()[0].indices.valid());
  EXPECT_TRUE(c.attr_value("none").empty());
  EXPECT_FALSE(builder_.status().ok());
}

}  // namespace
}  // namespace millrace
