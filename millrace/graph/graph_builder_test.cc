#include "millrace/graph/graph_builder.h"

#include <gtest/gtest.h>

#include "millrace/graph/sample_ops_testing.h"

namespace millrace {
namespace {

class GraphBuilderTest : public testing::Test {
 protected:
  GraphBuilderTest() { register_sample_ops(registry_); }

  Output placeholder(DType dtype) {
    return {builder_.add("Placeholder", "x", {}, {{"dtype", dtype}}).value(), 0};
  }
  const Node& node(NodeId id) { return graph_->node(id); }

  OpRegistry registry_;
  Ref<Graph> graph_ = make_ref<Graph>(registry_);
  GraphBuilder builder_{*graph_};
};

TEST_F(GraphBuilderTest, InfersTypeAndNumberAttributes) {
  const Output f = placeholder(DType::kFloat);
  const Output i = placeholder(DType::kInt32);
  const NodeId concat = builder_.add("Concat", "", {i, f, f, f}).value();
  EXPECT_EQ(*node(concat).attr<int64_t>("N"), 3);
  EXPECT_EQ(*node(concat).attr<DType>("T"), DType::kFloat);
  const NodeId v2 = builder_.add("ConcatV2", "", {f, f, i}).value();
  EXPECT_EQ(*node(v2).attr<int64_t>("N"), 2);
  const NodeId bundle = builder_.add("Bundle", "", {f, i}).value();
  EXPECT_EQ(*node(bundle).attr<std::vector<DType>>("Tin"),
            (std::vector<DType>{DType::kFloat, DType::kInt32}));
  EXPECT_EQ(node(builder_.add("Bundle", "", {}).value()).num_outputs(), 0);
}

TEST_F(GraphBuilderTest, ReferencesGiveTheirBaseType) {
  const NodeId v =
      builder_.add("Variable", "v", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape{2}}})
          .value();
  const NodeId sum = builder_.add("Add", "", {{v, 0}, {v, 0}}).value();
  EXPECT_EQ(*node(sum).attr<DType>("T"), DType::kFloat);
  EXPECT_EQ(builder_.expr({v, 0}).dtype(), DType::kFloat);
}

TEST_F(GraphBuilderTest, MismatchedTypesAreNamed) {
  const Output f = placeholder(DType::kFloat);
  const Output i = placeholder(DType::kInt32);
  EXPECT_EQ(builder_.add("Add", "sum", {f, i}).status().message(),
            "Add \"sum\": Input 'y' has type int32 that does not match type float of argument 'x'");
  EXPECT_FALSE(builder_.add("Add", "", {f}).ok());
  EXPECT_FALSE(builder_.add("Add", "", {f, f, f}).ok());
  EXPECT_FALSE(builder_.add("Add", "", {f, {99, 0}}).ok());
  EXPECT_EQ(builder_.add("Ad", "", {f, f}).status().code(), Code::kNotFound);
}

TEST_F(GraphBuilderTest, SeveralListsNeedTheirLengths) {
  const OpDef op = parse_op_spec({.name = "Two",
                                  .doc = "",
                                  .inputs = {{"a", "N*float"}, {"b", "M*T"}, {"c", "M*int32"}},
                                  .types = {{"T", {}}},
                                  .attrs = {{"N", "int >= 0"}, {"M", "int >= 0"}}})
                       .value();
  const std::vector<DType> types = {DType::kFloat, DType::kBool, DType::kBool, DType::kInt32,
                                    DType::kInt32};
  AttrMap attrs;
  EXPECT_EQ(infer_type_attrs(op, types, attrs).code(), Code::kInvalidArgument);
  attrs.set("N", 1);
  ASSERT_TRUE(infer_type_attrs(op, types, attrs).ok());
  EXPECT_EQ(*read_attr<int64_t>(attrs, "M"), 2);
  EXPECT_EQ(*read_attr<DType>(attrs, "T"), DType::kBool);
  AttrMap odd = {{"N", 2}};
  EXPECT_FALSE(infer_type_attrs(op, types, odd).ok());
  AttrMap huge = {{"N", int64_t{1} << 62}, {"M", int64_t{1} << 62}};
  EXPECT_FALSE(infer_type_attrs(op, types, huge).ok());
  AttrMap negative = {{"N", -5}};
  EXPECT_FALSE(infer_type_attrs(op, types, negative).ok());
}

TEST_F(GraphBuilderTest, ContextGoesIntoEveryNode) {
  const Output x = placeholder(DType::kFloat);
  const OriginId origin = intern_origin({"a.py", 3, "f", ""});
  builder_.context() = {.scope = "s/",
                        .device = "/cpu:0",
                        .control_inputs = {x.node},
                        .colocate_with = {"x", "x"},
                        .origin = origin,
                        .attrs = {{"_grad_of", "y"}}};
  const Node& n = node(builder_.add("NoOp", "", {}).value());
  EXPECT_EQ(n.name(), "s/NoOp");
  EXPECT_EQ(n.device(), "/cpu:0");
  EXPECT_EQ(n.control_inputs()[0], x.node);
  EXPECT_EQ(*n.attr<std::vector<std::string>>("_class"), (std::vector<std::string>{"loc:@x"}));
  EXPECT_EQ(*n.attr<std::string>("_grad_of"), "y");
  EXPECT_EQ(n.origin(), origin);
  EXPECT_EQ(node(builder_.add("NoOp", "", {}).value()).name(), "s/NoOp_1");
}

TEST_F(GraphBuilderTest, FirstErrorSticks) {
  const Expr f = builder_.expr(placeholder(DType::kFloat));
  const Expr i = builder_.expr(placeholder(DType::kInt32));
  const Expr bad = f + i;
  EXPECT_FALSE(bad.valid());
  const Status first = builder_.status();
  EXPECT_EQ(first.code(), Code::kInvalidArgument);
  const int nodes = graph_->num_nodes();
  EXPECT_FALSE((f + f * 2.0).valid());
  EXPECT_FALSE(builder_.constant(Tensor::scalar(1.0f)).valid());
  EXPECT_EQ(graph_->num_nodes(), nodes);
  EXPECT_EQ(builder_.status(), first);
}

}  // namespace
}  // namespace millrace
