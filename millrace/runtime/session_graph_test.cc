#include "millrace/runtime/session_graph.h"

#include <gtest/gtest.h>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

const char kCpu0[] = "/job:localhost/replica:0/task:0/device:CPU:0";
const char kCpu1[] = "/job:localhost/replica:0/task:0/device:CPU:1";

class SemanticsOfPruning : public testing::Test {
 protected:
  SemanticsOfPruning()
      : devices_(named_devices({kCpu0, kCpu1})),
        graph_(make_ref<Graph>(ToyOps::get().ops)),
        session_(graph_, devices_, options()) {}

  static PlaceOptions options() {
    PlaceOptions out;
    out.kernels = &ToyOps::get().kernels;
    return out;
  }

  Output add(NodeSpec spec) {
    if (!spec.inputs.empty() && spec.op != "KeepAndFlip" && spec.op != "UseHandle") {
      spec.attrs.set("T", base_type(graph_->output_type(spec.inputs[0])));
    }
    return {graph_->add(std::move(spec)).value(), 0};
  }
  Output constant(std::string name, int32_t value = 1) {
    return add({.name = std::move(name),
                .op = "Const",
                .attrs = {{"dtype", DType::kInt32}, {"value", Tensor::scalar(value)}}});
  }
  Result<Subgraph> prune(Signature signature) {
    MR_TRY(session_.extend());
    return session_.prune(signature);
  }
  void expect_error(Signature signature, Code code, std::string_view part) {
    Status status = prune(std::move(signature)).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
  }

  DeviceSet devices_;
  Ref<Graph> graph_;
  SessionGraph session_;
};

TEST_F(SemanticsOfPruning, OnlyWhatIsNeeded) {
  Output x = constant("x"), unused = constant("unused"), waited = constant("waited");
  add({.name = "y", .op = "Add", .inputs = {x, x}, .control_inputs = {waited.node}});
  add({.name = "z", .op = "Add", .inputs = {unused, x}});
  Subgraph pruned = prune({.fetches = {"y:0"}}).value();
  EXPECT_EQ(pruned.size(), 4);
  const SubNode& fetch = node_named(pruned, "_send_y_0_0");
  EXPECT_EQ(fetch.op->name, "_Retval");
  EXPECT_EQ(pruned.device_name(fetch), kCpu0);
  EXPECT_EQ(node_named(pruned, "y").control_inputs.size(), 1u);
}

TEST_F(SemanticsOfPruning, AFeedReplacesATensorNotItsNode) {
  Output both = add({.name = "both", .op = "KeepAndFlip", .inputs = {constant("x")}});
  Output second{both.node, 1};
  add({.name = "y", .op = "Add", .inputs = {both, second}, .control_inputs = {both.node}});
  Subgraph pruned = prune({.feeds = {"both"}, .fetches = {"y"}}).value();
  const SubNode& y = node_named(pruned, "y");
  EXPECT_EQ(pruned.node(y.inputs[0].node).op->name, "_Arg");
  EXPECT_EQ(pruned.node(y.inputs[1].node).name, "both");
  EXPECT_EQ(pruned.node(y.control_inputs[0]).name, "both");
  EXPECT_EQ(fetch_dependencies(pruned, {.feeds = {"both"}, .fetches = {"y"}}),
            std::vector<std::vector<int>>{{0}});
}

TEST_F(SemanticsOfPruning, TargetsAreMarked) {
  Output x = constant("x");
  add({.name = "t", .op = "Identity", .inputs = {x}});
  Subgraph pruned = prune({.targets = {"t"}}).value();
  EXPECT_NE(node_named(pruned, "t").attrs->find(kTargetAttr), nullptr);
  EXPECT_EQ(node_named(pruned, "x").attrs->find(kTargetAttr), nullptr);
  OptimizeOptions options;
  EXPECT_FALSE(remove_dead_nodes(pruned, options).value());
}

TEST_F(SemanticsOfPruning, Mistakes) {
  Output x = constant("x");
  graph_->add({.name = "nothing", .op = "NoOp"}).value();
  add({.name = "y", .op = "Add", .inputs = {x, x}});
  expect_error({}, Code::kInvalidArgument, "nothing to run");
  expect_error({.fetches = {"nobody"}}, Code::kNotFound, "nobody");
  expect_error({.targets = {"nobody"}}, Code::kNotFound, "nobody");
  expect_error({.targets = {"x:0"}}, Code::kNotFound, "x:0");
  expect_error({.fetches = {"x:1"}}, Code::kInvalidArgument, "x:1");
  expect_error({.fetches = {"nothing"}}, Code::kInvalidArgument, "no outputs");
  expect_error({.feeds = {"x", "x:0"}, .fetches = {"y"}}, Code::kInvalidArgument, "fed twice");
  expect_error({.feeds = {"x"}, .fetches = {"x"}}, Code::kInvalidArgument, "both fed and fetched");
}

TEST_F(SemanticsOfPruning, StateIsPinnedAcrossExtensions) {
  Output v = add({.name = "v", .op = "Var", .attrs = {{"T", DType::kInt32}}, .device = "/cpu:1"});
  ASSERT_TRUE(session_.extend().ok());
  EXPECT_FALSE(session_.behind());
  add({.name = "read", .op = "Identity", .inputs = {v}});
  EXPECT_TRUE(session_.behind());
  Subgraph pruned = prune({.fetches = {"read"}}).value();
  EXPECT_EQ(pruned.device_name(node_named(pruned, "v")), kCpu1);
  EXPECT_EQ(pruned.device_name(node_named(pruned, "read")), "");
}

TEST_F(SemanticsOfPruning, ColocationOutlivesTheNodeThatIsGone) {
  Output x = constant("x");
  graph_->set_device(x.node, "/cpu:1").code();
  AttrMap with_x = {{"_class", std::vector<std::string>{"loc:@x"}}};
  Output y = constant("y");
  add({.name = "a", .op = "Identity", .inputs = {y}, .attrs = with_x});
  add({.name = "b", .op = "Identity", .inputs = {y}, .attrs = with_x});
  Subgraph pruned = prune({.fetches = {"a", "b"}}).value();
  ASSERT_TRUE(place(pruned, devices_, options()).ok());
  EXPECT_EQ(pruned.device_name(node_named(pruned, "a")), kCpu1);
  EXPECT_EQ(pruned.device_name(node_named(pruned, "b")), kCpu1);
}

TEST_F(SemanticsOfPruning, ColocationWithNobodyIsAnError) {
  add({.name = "a",
       .op = "Identity",
       .inputs = {constant("y")},
       .attrs = {{"_class", std::vector<std::string>{"loc:@nobody"}}}});
  Subgraph pruned = prune({.fetches = {"a"}}).value();
  Status status = place(pruned, devices_, options());
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("nobody"), std::string_view::npos);
}

TEST_F(SemanticsOfPruning, AVariableFedByValueCannotBeAssigned) {
  Output v = add({.name = "v", .op = "Var", .attrs = {{"T", DType::kInt32}}});
  add({.name = "set", .op = "Assign", .inputs = {v, constant("x")}});
  add({.name = "read", .op = "Identity", .inputs = {v}});
  EXPECT_TRUE(prune({.feeds = {"v"}, .fetches = {"read"}}).ok());
  expect_error({.feeds = {"v"}, .targets = {"set"}}, Code::kInvalidArgument, "\"set\"");
}

}  // namespace
}  // namespace millrace
