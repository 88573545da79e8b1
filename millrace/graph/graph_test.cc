#include "millrace/graph/graph.h"

#include <gtest/gtest.h>

#include "millrace/graph/function.h"
#include "millrace/graph/sample_ops_testing.h"

namespace millrace {
namespace {

class GraphTest : public testing::Test {
 protected:
  GraphTest() {
    register_sample_ops(registry_);
    graph_ = make_ref<Graph>(registry_);
  }

  NodeId must(NodeSpec spec) {
    Result<NodeId> id = graph_->add(std::move(spec));
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    return id.ok() ? *id : -1;
  }
  Status refused(NodeSpec spec) {
    const int before = graph_->num_nodes();
    const Status status = graph_->add(std::move(spec)).status();
    EXPECT_EQ(graph_->num_nodes(), before);
    return status;
  }
  NodeId placeholder(const char* name, PartialShape shape, DType dtype = DType::kFloat) {
    return must({.name = name, .op = "Placeholder", .attrs = {{"dtype", dtype}, {"shape", shape}}});
  }
  NodeId unary(const char* op, const char* name, Output input, DType type = DType::kFloat) {
    return must({.name = name, .op = op, .inputs = {input}, .attrs = {{"T", type}}});
  }

  OpRegistry registry_;
  Ref<Graph> graph_;
};

TEST_F(GraphTest, AddsNodesAndInfersShapes) {
  const NodeId x = placeholder("x", {32, 784});
  const NodeId w = placeholder("w", {784, 10});
  const NodeId y = must({.name = "y",
                         .op = "MatMul",
                         .inputs = {{x, 0}, {w, 0}},
                         .control_inputs = {x, w, x},
                         .attrs = {{"T", DType::kFloat}},
                         .device = "/cpu:0"});
  const Node& node = graph_->node(y);
  EXPECT_EQ(node.output_shape(0), (PartialShape{32, 10}));
  EXPECT_EQ(node.op_name(), "MatMul");
  EXPECT_EQ(*node.attr<bool>("transpose_a"), false);
  EXPECT_EQ(node.control_inputs().size(), 2u);
  EXPECT_EQ(node.device(), "/cpu:0");
  EXPECT_EQ(graph_->find("y"), y);
  EXPECT_EQ(graph_->find("z"), -1);
  EXPECT_EQ(graph_->output_name({y, 0}), "y:0");
}

TEST_F(GraphTest, ErrorsNameOpNodeAndOrigin) {
  const NodeId x = placeholder("x", {32, 784});
  const NodeId w = placeholder("w", {512, 10});
  const Status status = refused({.name = "layer1/matmul",
                                 .op = "MatMul",
                                 .inputs = {{x, 0}, {w, 0}},
                                 .attrs = {{"T", DType::kFloat}},
                                 .origin = intern_origin({"train.py", 14, "f", "h = x @ w"})});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "MatMul \"layer1/matmul\": inner dimensions differ: [32,784] x [512,10]\n"
            "defined at train.py:14  h = x @ w");
}

TEST_F(GraphTest, RefusesBadNodes) {
  const NodeId x = placeholder("x", {2});
  const AttrMap t = {{"T", DType::kFloat}};
  auto code = [this](NodeSpec spec) { return refused(std::move(spec)).code(); };
  const Code invalid = Code::kInvalidArgument;
  EXPECT_EQ(code({.name = "x", .op = "Neg", .inputs = {{x, 0}}, .attrs = t}), invalid);
  EXPECT_EQ(code({.name = "", .op = "NoOp"}), invalid);
  EXPECT_EQ(code({.name = "a b", .op = "NoOp"}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Nonsense"}), Code::kNotFound);
  EXPECT_EQ(code({.name = "a", .op = "Neg", .inputs = {}, .attrs = t}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Neg", .inputs = {{x, 1}}, .attrs = t}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Neg", .inputs = {{x, -1}}, .attrs = t}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Neg", .inputs = {{7, 0}}, .attrs = t}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "NoOp", .control_inputs = {7}}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Neg", .inputs = {{x, 0}}}), invalid);
  EXPECT_EQ(code({.name = "a", .op = "Old"}), Code::kUnimplemented);
  const Status type =
      refused({.name = "a", .op = "Neg", .inputs = {{x, 0}}, .attrs = {{"T", DType::kInt32}}});
  EXPECT_EQ(type.message(), "Neg \"a\": input 0 (\"x:0\") is float, expected int32");
}

TEST_F(GraphTest, OldGraphsMayUseDeprecatedOps) {
  graph_->set_producer_version(16);
  must({.name = "old", .op = "Old"});
}

TEST_F(GraphTest, ReferencesAreReadWhereValuesAreAskedFor) {
  const NodeId v = must({.name = "v",
                         .op = "Variable",
                         .attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape{2}}}});
  EXPECT_EQ(graph_->output_type({v, 0}), ref_type(DType::kFloat));
  const NodeId read = unary("Identity", "read", {v, 0});
  EXPECT_EQ(graph_->output_type({read, 0}), DType::kFloat);
  const AttrMap t = {{"T", DType::kFloat}};
  must({.name = "assign", .op = "Assign", .inputs = {{v, 0}, {read, 0}}, .attrs = t});
  EXPECT_EQ(
      refused({.name = "bad", .op = "Assign", .inputs = {{read, 0}, {v, 0}}, .attrs = t}).code(),
      Code::kInvalidArgument);
}

TEST_F(GraphTest, ConstantFactsSurviveChanges) {
  const NodeId c =
      must({.name = "c",
            .op = "Const",
            .attrs = {{"value", Tensor::vector<int32_t>({2, 3})}, {"dtype", DType::kInt32}}});
  const Tensor* before = graph_->facts({c, 0}).constant;
  ASSERT_TRUE(graph_->set_attr(c, "_class", std::vector<std::string>{"loc:@x"}).ok());
  EXPECT_EQ(graph_->facts({c, 0}).constant, before);
  EXPECT_EQ(before->data<int32_t>()[1], 3);
  EXPECT_FALSE(graph_->set_attr(c, "value", Tensor::vector<int32_t>({2, 4})).ok());
}

TEST_F(GraphTest, FunctionsAreOps) {
  auto function = make_ref<Function>();
  function->signature =
      parse_op_spec(
          {.name = "Twice", .doc = "", .inputs = {{"x", "float"}}, .outputs = {{"y", "float"}}})
          .value();
  ASSERT_TRUE(graph_->functions().add(function).ok());
  const NodeId x = placeholder("x", {2});
  const NodeId y = must({.name = "y", .op = "Twice", .inputs = {{x, 0}}});
  EXPECT_EQ(&graph_->node(y).op(), &function->signature);
  EXPECT_FALSE(graph_->node(y).output_shape(0).rank_known());
}

TEST_F(GraphTest, UnknownOpsHoldTheirPlace) {
  const NodeId x = placeholder("x", {2});
  const Result<NodeId> u = graph_->add_unknown(
      {.name = "u", .op = "Mystery", .inputs = {{x, 0}}, .attrs = {{"any", 1}}}, {DType::kInt32});
  ASSERT_TRUE(u.ok());
  EXPECT_TRUE(graph_->node(*u).op().unknown);
  EXPECT_EQ(graph_->node(*u).op_name(), "Mystery");
  unary("Neg", "n", {*u, 0}, DType::kInt32);
  EXPECT_FALSE(graph_->add_unknown({.name = "u", .op = "Mystery"}, {}).ok());
}

TEST_F(GraphTest, BackEdges) {
  const NodeId x = placeholder("x", {2});
  const NodeId enter = unary("Enter", "enter", {x, 0});
  const NodeId merge = must({.name = "merge",
                             .op = "Merge",
                             .inputs = {{enter, 0}, {enter, 0}},
                             .attrs = {{"T", DType::kFloat}, {"N", 2}}});
  const NodeId next = unary("NextIteration", "next", {merge, 0});
  EXPECT_EQ(graph_->set_back_edge(merge, 1, {enter, 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(graph_->set_back_edge(next, 0, {next, 0}).code(), Code::kInvalidArgument);
  EXPECT_EQ(graph_->set_back_edge(merge, 2, {next, 0}).code(), Code::kInvalidArgument);
  const NodeId other = placeholder("other", {3});
  const NodeId wrong = unary("NextIteration", "wrong", {other, 0});
  const Status shape = graph_->set_back_edge(merge, 1, {wrong, 0});
  EXPECT_NE(shape.message().find("enters as [2] and comes back as [3]"), std::string::npos);
  ASSERT_TRUE(graph_->set_back_edge(merge, 1, {next, 0}).ok());
  EXPECT_EQ(graph_->node(merge).input(1), (Output{next, 0}));
  // The back edge is no reason to see a cycle.
  EXPECT_TRUE(graph_->add_control_input(next, other).ok());
}

TEST_F(GraphTest, ControlInputsCloseNoCycle) {
  const NodeId a = must({.name = "a", .op = "NoOp"});
  const NodeId b = must({.name = "b", .op = "NoOp", .control_inputs = {a}});
  const NodeId c = must({.name = "c", .op = "NoOp"});
  EXPECT_FALSE(graph_->add_control_input(a, a).ok());
  EXPECT_FALSE(graph_->add_control_input(a, b).ok());
  ASSERT_TRUE(graph_->add_control_input(a, c).ok());
  EXPECT_FALSE(graph_->add_control_input(c, b).ok());
  ASSERT_TRUE(graph_->add_control_input(b, a).ok());
  EXPECT_EQ(graph_->node(b).control_inputs().size(), 1u);
}

TEST_F(GraphTest, FrozenNodesDoNotChange) {
  const NodeId x = placeholder("x", {-1, 3});
  const NodeId y = must({.name = "y", .op = "NoOp"});
  graph_->freeze(1);
  EXPECT_EQ(graph_->set_device(x, "/cpu:0").code(), Code::kFailedPrecondition);
  EXPECT_EQ(graph_->set_attr(x, "_a", 1).code(), Code::kFailedPrecondition);
  EXPECT_EQ(graph_->add_control_input(x, y).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(graph_->set_device(y, "/cpu:0").ok());
  EXPECT_TRUE(graph_->merge_shape({x, 0}, PartialShape{2, -1}).ok());
  EXPECT_EQ(graph_->facts({x, 0}).shape, (PartialShape{2, 3}));
  EXPECT_EQ(graph_->merge_shape({x, 0}, PartialShape{4, 3}).code(), Code::kInvalidArgument);
}

TEST_F(GraphTest, SetAttrKeepsWhatOthersRestOn) {
  const NodeId x = placeholder("x", {-1, 3});
  ASSERT_TRUE(graph_->merge_shape({x, 0}, PartialShape{2, 3}).ok());
  EXPECT_TRUE(graph_->set_attr(x, "_note", 1).ok());
  EXPECT_FALSE(graph_->set_attr(x, "dtype", DType::kInt32).ok());
  EXPECT_FALSE(graph_->set_attr(x, "shape", PartialShape{4}).ok());
  EXPECT_FALSE(graph_->set_attr(x, "unheard", 1).ok());
  EXPECT_EQ(graph_->set_attr(9, "_note", 1).code(), Code::kInvalidArgument);
}

TEST_F(GraphTest, UniqueNames) {
  EXPECT_EQ(graph_->unique_name("a"), "a");
  EXPECT_EQ(graph_->unique_name("a"), "a_1");
  must({.name = "a_2", .op = "NoOp"});
  EXPECT_EQ(graph_->unique_name("a"), "a_3");
  must({.name = "a", .op = "NoOp"});
  EXPECT_EQ(graph_->unique_name("a_1"), "a_1_1");
}

TEST_F(GraphTest, ParsesOutputs) {
  const NodeId x = placeholder("s/x", {2});
  EXPECT_EQ(*graph_->parse_output("s/x"), (Output{x, 0}));
  EXPECT_EQ(*graph_->parse_output("s/x:0"), (Output{x, 0}));
  EXPECT_EQ(graph_->parse_output("s/x:1").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(graph_->parse_output("y:0").status().code(), Code::kNotFound);
  EXPECT_EQ(graph_->parse_output("^s/x").status().code(), Code::kInvalidArgument);
}

TEST(TensorNameTest, Parses) {
  EXPECT_EQ(parse_tensor_name("a/b:12")->index, 12);
  EXPECT_EQ(parse_tensor_name("a/b:12")->node, "a/b");
  EXPECT_EQ(parse_tensor_name("^a")->index, -1);
  EXPECT_EQ(parse_tensor_name("_internal")->index, 0);
  for (const char* bad :
       {"", "^", ":0", "a:", "a:01", "a:-1", "a:x", "^a:0", "a:99999999999", "a b"}) {
    EXPECT_EQ(parse_tensor_name(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(NodeNameTest, Characters) {
  for (const char* good : {"a", ".a", "0", "A/b-c_d.e", "a>b"}) {
    EXPECT_TRUE(is_valid_node_name(good)) << good;
  }
  for (const char* bad : {"", "_a", "/a", "-a", "a b", "a:0", "^a"}) {
    EXPECT_FALSE(is_valid_node_name(bad)) << bad;
  }
  EXPECT_TRUE(is_valid_scope_name("_a/"));
  EXPECT_FALSE(is_valid_scope_name("a:"));
}

}  // namespace
}  // namespace millrace
