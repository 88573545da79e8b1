// Graphs that no client would write: each is refused or runs, in both gears, and every fetch of a
// run that went well has a value.

#include <gtest/gtest.h>

#include <string>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/session/session_testing.h"

namespace millrace {
namespace {

// for (i = start; i < 3; ++i); out = i.
constexpr char kLoop[] = R"(
  node { name: "start" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
    attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 0 } } } }
  node { name: "one" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
    attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 } } } }
  node { name: "three" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
    attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 3 } } } }
  node { name: "enter" op: "Enter" input: "start" attr { key: "T" value { type: DT_INT32 } }
    attr { key: "frame_name" value { s: "loop" } } }
  node { name: "step" op: "Enter" input: "one" attr { key: "T" value { type: DT_INT32 } }
    attr { key: "frame_name" value { s: "loop" } } attr { key: "is_constant" value { b: true } } }
  node { name: "limit" op: "Enter" input: "three" attr { key: "T" value { type: DT_INT32 } }
    attr { key: "frame_name" value { s: "loop" } } attr { key: "is_constant" value { b: true } } }
  node { name: "merge" op: "Merge" input: "enter" input: "next"
    attr { key: "T" value { type: DT_INT32 } } attr { key: "N" value { i: 2 } } }
  node { name: "less" op: "Less" input: "merge" input: "limit"
    attr { key: "T" value { type: DT_INT32 } } }
  node { name: "cond" op: "LoopCond" input: "less" }
  node { name: "switch" op: "Switch" input: "merge" input: "cond"
    attr { key: "T" value { type: DT_INT32 } } }
  node { name: "add" op: "Add" input: "switch:1" input: "step"
    attr { key: "T" value { type: DT_INT32 } } }
  node { name: "next" op: "NextIteration" input: "add" attr { key: "T" value { type: DT_INT32 } } }
  node { name: "out" op: "Exit" input: "switch" attr { key: "T" value { type: DT_INT32 } } }
  node { name: "bad_out" op: "Exit" input: "merge" attr { key: "T" value { type: DT_INT32 } } })";

constexpr Gear kGears[] = {Gear::kStraight, Gear::kParallel};

Tensor i32(int32_t v) { return Tensor::scalar<int32_t>(v); }

class HostileGraphs : public SessionTest {
 protected:
  Status import(const std::string& text) {
    Status status = import_graph_def_text(text, {}, *graph_).status();
    message_ = status.to_string();
    return status;
  }
  // The code of a run in both gears, which agree.
  Code run(const Session::Feeds& feeds, const std::vector<std::string>& fetches) {
    Code codes[2];
    for (int i = 0; i < 2; ++i) {
      Result<std::vector<Tensor>> out = session({.gear = kGears[i]})->run(feeds, fetches);
      codes[i] = out.status().code();
      message_ = out.status().to_string();
      if (!out.ok()) continue;
      EXPECT_EQ(out->size(), fetches.size());
      for (const Tensor& t : *out) EXPECT_TRUE(t.valid());
      fetched_ = out.value();
    }
    EXPECT_EQ(codes[0], codes[1]) << message_;
    return codes[1];
  }

  std::vector<Tensor> fetched_;
};

TEST_F(HostileGraphs, OpsOfTheRuntimeAreRefusedAtImport) {
  const std::string type = "attr { key: \"T\" value { type: DT_FLOAT } } ";
  const std::string index = "attr { key: \"index\" value { i: 1000000 } } ";
  const std::string arg = "node { name: \"x\" op: \"_Arg\" " + type + index + "}";
  EXPECT_EQ(import(arg).code(), Code::kInvalidArgument);
  EXPECT_TRUE(said("_Arg \"x\"")) << message_;
  EXPECT_EQ(import("library { function { signature { name: \"f\" } node_" + arg.substr(0, 4) +
                   "_def" + arg.substr(4) + "} }")
                .code(),
            Code::kInvalidArgument);
  for (const char* op :
       {"_Retval", "_Send", "_Recv", "_SwitchN", "_FusedElementwise", "_SumOfMatMul"}) {
    EXPECT_EQ(import(str_cat("node { name: \"x\" op: \"", op, "\" }")).code(),
              Code::kInvalidArgument);
    EXPECT_TRUE(said(op) && said("only the runtime")) << message_;
  }
  EXPECT_EQ(graph_->num_nodes(), 0);
}

TEST_F(HostileGraphs, FunctionsMayHaveNamesThatBeginWithAnUnderscore) {
  ASSERT_TRUE(import(R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "__negate" input: "x" }
    library { function {
      signature { name: "__negate" input_arg { name: "a" type: DT_FLOAT }
                  output_arg { name: "b" type: DT_FLOAT } }
      node_def { name: "n" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
      ret { key: "b" value: "n:y:0" } } })")
                  .ok())
      << message_;
  EXPECT_EQ(run({{"x", f32(2)}}, {"y"}), Code::kOk) << message_;
  EXPECT_EQ(fetched_[0].item<float>(), -2);
}

TEST_F(HostileGraphs, SessionsAndFunctionsRefuseThemToo) {
  Expr arg = add("_Arg", "arg", {}, {{"T", DType::kFloat}, {"index", 1000000}});
  Expr y = add("Neg", "y", {arg});
  Status status = Session::create(graph_).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("_Arg \"arg\""), std::string::npos) << status.to_string();
  const Output result = GraphBuilder::output(y);
  status = function_from_graph(*graph_, "f", {}, {&result, 1}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.to_string().find("_Arg \"arg\""), std::string::npos) << status.to_string();
}

TEST_F(HostileGraphs, ABodyOfTheirsIsRefusedWhenItIsCalled) {
  auto function = make_ref<Function>();
  function->signature.name = "f";
  function->signature.outputs.push_back({.name = "y", .dtype = DType::kFloat});
  function->nodes.push_back(
      {.name = "x", .op = "_Arg", .attrs = {{"T", DType::kFloat}, {"index", 7}}});
  function->returns.emplace_back("y", "x:output:0");
  ASSERT_TRUE(graph_->functions().add(function).ok());
  Result<NodeId> call = builder_->add("f", "call", {});
  EXPECT_EQ(call.ok() ? run({}, {"call"}) : call.status().code(), Code::kInvalidArgument);
}

TEST_F(HostileGraphs, ALoopRuns) {
  ASSERT_TRUE(import(kLoop).ok()) << message_;
  EXPECT_EQ(run({}, {"out"}), Code::kOk) << message_;
  EXPECT_EQ(fetched_[0].item<int32_t>(), 3);
  EXPECT_EQ(run({{"start", i32(7)}}, {"out"}), Code::kOk) << message_;
  EXPECT_EQ(fetched_[0].item<int32_t>(), 7);
}

TEST_F(HostileGraphs, FeedsAndFetchesInTheMiddleOfALoop) {
  ASSERT_TRUE(import(kLoop).ok()) << message_;
  // Both loop variables fed, nothing of the loop is left but plain steps.
  EXPECT_EQ(run({{"merge", i32(1)}, {"limit", i32(2)}}, {"cond", "less"}), Code::kOk) << message_;
  EXPECT_TRUE(fetched_[0].item<bool>());
  EXPECT_EQ(run({{"merge", i32(1)}}, {"cond"}), Code::kInvalidArgument);
  EXPECT_TRUE(said("Enter")) << message_;
  for (const char* inside : {"merge", "enter", "step", "cond", "switch:1", "add", "next"}) {
    EXPECT_EQ(run({}, {inside}), Code::kInvalidArgument) << inside;
    EXPECT_TRUE(said("loop") && said("Exit")) << message_;
  }
  const Tensor yes = Tensor::scalar<bool>(true);
  EXPECT_EQ(run({{"cond", yes}}, {"out"}), Code::kInvalidArgument);
  EXPECT_EQ(run({{"enter", i32(0)}}, {"out"}), Code::kInvalidArgument);
  EXPECT_EQ(run({{"next", i32(0)}}, {"out"}), Code::kInvalidArgument);
  EXPECT_EQ(run({{"merge", i32(0)}, {"cond", yes}}, {"out"}), Code::kInvalidArgument);
  EXPECT_EQ(run({{"add", i32(0)}}, {"next"}), Code::kInvalidArgument);
  EXPECT_TRUE(said("not inside any frame")) << message_;
  EXPECT_EQ(run({{"merge", i32(0)}, {"cond", yes}}, {"switch:1"}), Code::kOk) << message_;
}

TEST_F(HostileGraphs, AnExitThatIsLiveInEveryIteration) {
  ASSERT_TRUE(import(kLoop).ok()) << message_;
  add("Neg", "y", {builder_->expr({graph_->find("bad_out"), 0})});
  EXPECT_EQ(run({}, {"y"}), Code::kInvalidArgument);
  EXPECT_TRUE(said("more than one iteration")) << message_;
  EXPECT_EQ(run({{"start", i32(3)}}, {"y"}), Code::kOk) << message_;
  EXPECT_EQ(fetched_[0].item<int32_t>(), -3);
}

TEST_F(HostileGraphs, PartialRunsFetchNothingInsideALoop) {
  ASSERT_TRUE(import(kLoop).ok()) << message_;
  auto s = session();
  EXPECT_EQ(s->partial_run_setup({{"start"}, {"cond"}, {}}).status().code(),
            Code::kInvalidArgument);
  std::string handle = s->partial_run_setup({{"start"}, {"out"}, {}}).value();
  EXPECT_EQ(s->partial_run(handle, {{"start", i32(1)}}, {"out"}).value()[0].item<int32_t>(), 3);
}

TEST_F(HostileGraphs, ManyDeadEntersOfOneMerge) {
  constexpr int kEnters = 3000;
  Expr x = builder_->constant(i32(5));
  Expr pred = add("Placeholder", "p", {}, {{"dtype", DType::kBool}});
  Expr branch = add("Switch", "switch", {x, pred});
  std::vector<Output> enters;
  for (int i = 0; i < kEnters; ++i) {
    enters.push_back(GraphBuilder::output(
        add("Enter", str_cat("enter", i).c_str(), {branch}, {{"frame_name", "loop"}})));
  }
  NodeId merge = builder_->add("Merge", "merge", enters).value();
  add("Exit", "out", {builder_->expr({merge, 0})});
  EXPECT_EQ(run({{"p", Tensor::scalar<bool>(true)}}, {"out"}), Code::kInvalidArgument);
  EXPECT_TRUE(said("not taken")) << message_;
}

}  // namespace
}  // namespace millrace
