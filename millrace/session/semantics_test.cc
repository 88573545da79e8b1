// What other programs expect of graphs and state, seen through a session: one suite per section of
// the compatibility notes that no other test file carries.

#include <gtest/gtest.h>

#include "millrace/graph/graph_def.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/session/session_testing.h"

namespace millrace {
namespace {

using SemanticsOfNamesAndEdges = SessionTest;

TEST_F(SemanticsOfNamesAndEdges, OutputsAreNumberedOverAllArguments) {
  Expr x = builder_->constant(Tensor::vector<float>({1, 2, 3, 4}));
  Expr axis = builder_->constant(Tensor::scalar<int32_t>(0));
  add("Split", "parts", {axis, x}, {{"num_split", 4}});
  auto s = session();
  std::vector<Tensor> out = s->run({}, {"parts", "parts:0", "parts:3"}).value();
  EXPECT_EQ(out[0].item<float>(), 1);
  EXPECT_EQ(out[1].item<float>(), 1);
  EXPECT_EQ(out[2].item<float>(), 4);
  EXPECT_EQ(code_of(s->run({}, {"parts:4"})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->run({}, {"parts:01"})), Code::kInvalidArgument);
}

TEST_F(SemanticsOfNamesAndEdges, NodesMayStandInAnyOrderAndWritersOmitZero) {
  constexpr char kText[] = R"(
    node { name: "y" op: "Neg" input: "x:0" input: "^z" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "z" op: "NoOp" }
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } })";
  ASSERT_TRUE(import_graph_def_text(kText, {}, *graph_).ok());
  EXPECT_EQ(session()->run({{"x", f32(3)}}, {"y"}).value()[0].item<float>(), -3);
}

TEST_F(SemanticsOfNamesAndEdges, ControlInputsComeLast) {
  constexpr char kText[] = R"(
    node { name: "z" op: "NoOp" }
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Neg" input: "^z" input: "x" attr { key: "T" value { type: DT_FLOAT } } })";
  EXPECT_EQ(import_graph_def_text(kText, {}, *graph_).status().code(), Code::kInvalidArgument);
}

TEST_F(SemanticsOfNamesAndEdges, AReferenceIsReadWhereAValueIsWanted) {
  Expr v = add("VariableV2", "v", {}, {{"shape", Shape{}}, {"dtype", DType::kFloat}});
  add("Assign", "init", {v, constant(5)});
  add("Neg", "y", {v});
  Expr x = placeholder("x");
  Result<NodeId> bad =
      builder_->add("Assign", "bad", {GraphBuilder::output(x), GraphBuilder::output(constant(1))});
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  auto s = session();
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  EXPECT_EQ(s->run({}, {"y"}).value()[0].item<float>(), -5);
}

using SemanticsOfState = SessionTest;

TEST_F(SemanticsOfState, AnUninitialisedVariableNamesItself) {
  Expr v = add("VariableV2", "weights", {}, {{"shape", Shape{}}, {"dtype", DType::kFloat}});
  add("Neg", "y", {v});
  add("IsVariableInitialized", "ready", {v});
  add("Assign", "init", {v, constant(5)});
  auto s = session();
  EXPECT_EQ(code_of(s->run({}, {"y"})), Code::kFailedPrecondition);
  EXPECT_TRUE(said("Attempting to use uninitialized value weights")) << message_;
  EXPECT_EQ(code_of(s->run({}, {"weights"})), Code::kFailedPrecondition);
  EXPECT_FALSE(s->run({}, {"ready"}).value()[0].item<bool>());
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  EXPECT_TRUE(s->run({}, {"ready"}).value()[0].item<bool>());
  EXPECT_EQ(s->run({}, {"weights"}).value()[0].item<float>(), 5);
}

// Not what carries it to the caller or to another device.
TEST_F(SemanticsOfState, AnErrorOnTheWayToTheCallerNamesTheUsersNode) {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    for (const Gear gear : {Gear::kStraight, Gear::kParallel}) {
      graph_ = make_ref<Graph>();
      builder_ = std::make_unique<GraphBuilder>(*graph_);
      builder_->context().device = device;
      add("VariableV2", "weights", {}, {{"shape", Shape{}}, {"dtype", DType::kFloat}});
      auto s = session({.cpu_devices = 2, .gear = gear});
      EXPECT_EQ(code_of(s->run({}, {"weights"})), Code::kFailedPrecondition);
      EXPECT_TRUE(said("VariableV2 \"weights\": Attempting")) << message_;
      EXPECT_TRUE(said("[[{{node weights}}]]")) << message_;
    }
  }
}

TEST_F(SemanticsOfState, StateIsSharedByAllSignaturesAndEndsWithTheSession) {
  Expr v = add("VariableV2", "v", {}, {{"shape", Shape{}}, {"dtype", DType::kFloat}});
  add("Assign", "init", {v, constant(0)});
  add("AssignAdd", "step", {v, constant(1)});
  auto s = session();
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(s->run({}, {}, {"step"}).ok());
  EXPECT_EQ(s->run({}, {"v"}).value()[0].item<float>(), 3);
  auto other = session();
  EXPECT_EQ(code_of(other->run({}, {"v"})), Code::kFailedPrecondition);
}

TEST_F(SemanticsOfState, FetchedVariablesDoNotChangeAfterwards) {
  Expr v = add("VariableV2", "v", {}, {{"shape", Shape{}}, {"dtype", DType::kFloat}});
  add("Assign", "init", {v, constant(1)});
  add("AssignAdd", "step", {v, constant(1)});
  auto s = session();
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  Tensor before = s->run({}, {"v"}).value()[0];
  ASSERT_TRUE(s->run({}, {}, {"step"}).ok());
  EXPECT_EQ(before.item<float>(), 1);
}

TEST_F(SemanticsOfState, SharedNamesAndContainers) {
  AttrMap attrs = {{"shape", Shape{}}, {"dtype", DType::kFloat}, {"shared_name", "both"}};
  Expr a = add("VariableV2", "a", {}, attrs);
  add("VariableV2", "b", {}, attrs);
  add("Assign", "init", {a, constant(4)});
  attrs.set("container", "elsewhere");
  Expr c = add("VariableV2", "c", {}, attrs);
  add("Assign", "init_c", {c, constant(6)});
  auto s = session();
  ASSERT_TRUE(s->run({}, {}, {"init", "init_c"}).ok());
  EXPECT_EQ(s->run({}, {"b"}).value()[0].item<float>(), 4);
  EXPECT_EQ(s->run({}, {"c"}).value()[0].item<float>(), 6);
  // Reset drops the containers named, or the default one.
  ASSERT_TRUE(s->reset(std::vector<std::string>{"elsewhere"}).ok());
  EXPECT_EQ(code_of(s->run({}, {"c"})), Code::kFailedPrecondition);
  EXPECT_TRUE(s->run({}, {"b"}).ok());
  ASSERT_TRUE(s->reset().ok());
  EXPECT_EQ(code_of(s->run({}, {"b"})), Code::kFailedPrecondition);
}

TEST_F(SemanticsOfState, ARandomOpGoesOnOverSignatures) {
  Expr shape = builder_->constant(Tensor::vector<int32_t>({6}));
  Expr u = add("RandomUniform", "u", {shape},
               {{"dtype", DType::kFloat}, {"seed", 87654321}, {"seed2", 1234}});
  add("Neg", "n", {u});
  auto s = session();
  EXPECT_FLOAT_EQ(s->run({}, {"u"}).value()[0].data<float>()[0], 0.8483070f);
  EXPECT_FLOAT_EQ(s->run({}, {"n"}).value()[0].data<float>()[0], -0.59211946f);
}

TEST_F(SemanticsOfState, AResourceVariable) {
  Expr h = add("VarHandleOp", "h", {},
               {{"dtype", DType::kFloat}, {"shape", Shape{}}, {"shared_name", "h"}});
  add("ReadVariableOp", "read", {h}, {{"dtype", DType::kFloat}});
  builder_
      ->add("AssignVariableOp", "init",
            {GraphBuilder::output(h), GraphBuilder::output(constant(2))})
      .value();
  auto s = session();
  EXPECT_EQ(code_of(s->run({}, {"read"})), Code::kFailedPrecondition);
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  EXPECT_EQ(s->run({}, {"read"}).value()[0].item<float>(), 2);
}

TEST_F(SemanticsOfState, WhatAStepMakesEndsWithIt) {
  Expr size = builder_->constant(Tensor::scalar<int32_t>(1));
  std::vector<Expr> array = call_multi("TensorArrayV3", {size}, {{"dtype", DType::kFloat}});
  Expr index = builder_->constant(Tensor::scalar<int32_t>(0));
  Expr flow = call("TensorArrayWriteV3", {array[0], index, constant(7), array[1]});
  add("TensorArrayReadV3", "read", {array[0], index, flow}, {{"dtype", DType::kFloat}});
  auto s = session();
  for (int i = 0; i < 3; ++i) {
    Result<std::vector<Tensor>> out = s->run({}, {"read"});
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    EXPECT_EQ((*out)[0].item<float>(), 7);
  }
}

using SemanticsOfCodes = SessionTest;

TEST_F(SemanticsOfCodes, AnUnknownOpIsKeptAndOnlyAnErrorWhenNeeded) {
  constexpr char kText[] = R"(
    node { name: "a" op: "NobodyKnowsThis" }
    node { name: "b" op: "NorThat" input: "a" }
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } })";
  ImportResult imported = import_graph_def_text(kText, {}, *graph_).value();
  EXPECT_EQ(imported.unknown_ops.size(), 2u);
  auto s = session();
  EXPECT_TRUE(s->run({{"x", f32(1)}}, {"y"}).ok());
  EXPECT_EQ(code_of(s->run({}, {}, {"b"})), Code::kNotFound);
  EXPECT_TRUE(said("NobodyKnowsThis") && said("NorThat")) << message_;
  EXPECT_EQ(builder_->add("NobodyKnowsThis", "c", {}).status().code(), Code::kNotFound);
}

TEST_F(SemanticsOfCodes, MistakesInNodes) {
  Expr x = placeholder("x");
  Output out = GraphBuilder::output(x);
  EXPECT_EQ(graph_->add({.name = "x", .op = "NoOp"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(graph_->add({.name = "bad name", .op = "NoOp"}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(graph_->add({.name = "n", .op = "Neg", .inputs = {out}}).status().code(),
            Code::kInvalidArgument);  // no T
  EXPECT_EQ(builder_->add("Neg", "n", {out, out}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(builder_->add("Neg", "n", {out}, {{"colour", "blue"}}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(SemanticsOfCodes, MistakesInValues) {
  Expr a = add("Placeholder", "a", {}, {{"dtype", DType::kFloat}});
  add("MatMul", "m", {a, a});
  Expr i = add("Placeholder", "i", {}, {{"dtype", DType::kInt32}});
  add("Gather", "g", {a, i});
  auto s = session();
  Tensor matrix = Tensor::zeros(DType::kFloat, {2, 3}).value();
  EXPECT_EQ(code_of(s->run({{"a", matrix}}, {"m"})), Code::kInvalidArgument);
  EXPECT_TRUE(said("MatMul \"m\"") && said("[2,3]")) << message_;
  EXPECT_EQ(code_of(s->run({{"a", matrix}, {"i", Tensor::scalar<int32_t>(2)}}, {"g"})),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(s->run({{"a", matrix}, {"i", Tensor::scalar<int32_t>(-1)}}, {"g"})),
            Code::kInvalidArgument);
  EXPECT_TRUE(s->run({{"a", matrix}, {"i", Tensor::scalar<int32_t>(1)}}, {"g"}).ok());
}

TEST_F(SemanticsOfCodes, QueuesAndCounters) {
  Expr v = add("VariableV2", "v", {}, {{"shape", Shape{}}, {"dtype", DType::kInt32}});
  add("Assign", "init", {v, builder_->constant(Tensor::scalar<int32_t>(0))});
  add("CountUpTo", "count", {v}, {{"limit", 2}});
  Expr q = add("FIFOQueueV2", "q", {},
               {{"component_types", std::vector<DType>{DType::kFloat}}, {"capacity", 4}});
  add("QueueDequeueV2", "dequeue", {q}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  builder_->add("QueueCloseV2", "close", {GraphBuilder::output(q)}).value();
  auto s = session();
  ASSERT_TRUE(s->run({}, {}, {"init"}).ok());
  EXPECT_EQ(s->run({}, {"count"}).value()[0].item<int32_t>(), 0);
  EXPECT_EQ(s->run({}, {"count"}).value()[0].item<int32_t>(), 1);
  EXPECT_EQ(code_of(s->run({}, {"count"})), Code::kOutOfRange);
  // An empty queue makes a run wait; a deadline ends it and leaves the queue usable.
  const Status late = s->run({}, {"dequeue"}, {}, {.timeout_ms = 20}).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_NE(late.message().find("it waits for QueueDequeueV2 \"dequeue\""), std::string_view::npos)
      << late.to_string();
  ASSERT_TRUE(s->run({}, {}, {"close"}).ok());
  EXPECT_EQ(code_of(s->run({}, {"dequeue"})), Code::kOutOfRange);
}

TEST_F(SemanticsOfCodes, MemoryThatIsNotThere) {
  Expr dims = add("Placeholder", "dims", {}, {{"dtype", DType::kInt64}});
  add("Fill", "f", {dims, constant(1)});
  auto s = session();
  Tensor huge = Tensor::vector<int64_t>({int64_t{1} << 40, 1 << 10});
  EXPECT_EQ(code_of(s->run({{"dims", huge}}, {"f"})), Code::kResourceExhausted);
  EXPECT_TRUE(said("OOM when allocating tensor with shape")) << message_;
  Tensor overflowing = Tensor::vector<int64_t>({int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_EQ(code_of(s->run({{"dims", overflowing}}, {"f"})), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
