// test-labels: threads
#include "millrace/graph/function.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/toy_ops.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

void expect_error(const Status& status, Code code, std::vector<std::string_view> says) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (std::string_view part : says) {
    EXPECT_NE(status.message().find(part), std::string_view::npos)
        << "no '" << part << "' in: " << status.message();
  }
}

// twice(x: T) -> (y: T): x + x, and a control result.
Ref<Function> twice() {
  Ref<Function> f = make_ref<Function>();
  f->signature.name = "twice";
  f->signature.attrs = {{.name = "T", .type = "type"}};
  f->signature.inputs = {{.name = "x", .type_attr = "T"}};
  f->signature.outputs = {{.name = "y", .type_attr = "T"}};
  f->nodes = {{"n", "Add", {"x", "x:0"}, "", {{"T", AttrPlaceholder{"T"}}}},
              {"k", "NoOp", {"^n"}, "", {}}};
  f->returns = {{"y", "n:z:0"}};
  f->control_returns = {{"done", "k"}};
  return f;
}

// A function of no attributes, float to float, whose body is `nodes`.
Ref<Function> plain(std::string name, std::vector<Function::BodyNode> nodes, std::string result) {
  Ref<Function> f = make_ref<Function>();
  f->signature.name = std::move(name);
  f->signature.inputs = {{.name = "x", .dtype = DType::kFloat}};
  f->signature.outputs = {{.name = "y", .dtype = DType::kFloat}};
  f->nodes = std::move(nodes);
  f->returns = {{"y", std::move(result)}};
  return f;
}

const AttrMap kFloatT = {{"T", DType::kFloat}};

class FunctionTest : public ::testing::Test {
 protected:
  void add(Ref<Function> function) { expect_ok(library_.add(std::move(function))); }
  Result<Ref<FunctionBody>> instantiate(std::string_view name, const AttrMap& attrs = {}) {
    return library_.instantiate(name, attrs, toy_registry());
  }
  FunctionLibrary library_;
};

TEST_F(FunctionTest, BodyBecomesAGraph) {
  add(twice());
  Ref<FunctionBody> body = instantiate("twice", kFloatT).value();
  ASSERT_EQ(body->args.size(), 1u);
  ASSERT_EQ(body->results.size(), 1u);
  ASSERT_EQ(body->control_results.size(), 1u);
  EXPECT_EQ(body->arg_types, std::vector{DType::kFloat});
  EXPECT_EQ(body->result_types, std::vector{DType::kFloat});
  const Node& arg = body->graph->node(body->args[0]);
  const Node& result = body->graph->node(body->results[0]);
  EXPECT_EQ(arg.op_name(), "_Arg");
  EXPECT_EQ(arg.name(), "x");
  EXPECT_EQ(result.op_name(), "_Retval");
  EXPECT_EQ(result.attr<int64_t>("index").value(), 0);
  const Node& sum = body->graph->node(result.input(0).node);
  EXPECT_EQ(sum.name(), "n");
  EXPECT_EQ(sum.input(1), (Output{arg.id(), 0}));
  EXPECT_EQ(body->graph->node(body->control_results[0]).control_inputs()[0], sum.id());
}

TEST_F(FunctionTest, BodiesAreBuiltOncePerAttributes) {
  add(twice());
  Ref<FunctionBody> one = instantiate("twice", kFloatT).value();
  AttrMap placed = kFloatT;
  placed.set("_class", std::vector<std::string>{"loc:@v"});
  EXPECT_EQ(instantiate("twice", placed).value(), one);
  Ref<FunctionBody> other = instantiate("twice", {{"T", DType::kInt32}}).value();
  EXPECT_NE(other, one);
  EXPECT_EQ(other->arg_types, std::vector{DType::kInt32});
}

TEST_F(FunctionTest, ListsAreNamedWholeOrByElement) {
  Ref<Function> f = make_ref<Function>();
  f->signature.name = "f";
  f->signature.attrs = {{.name = "N", .type = "int", .default_value = 2}};
  f->signature.inputs = {{.name = "xs", .dtype = DType::kFloat, .number_attr = "N"}};
  f->signature.outputs = {{.name = "sum", .dtype = DType::kFloat},
                          {.name = "all", .dtype = DType::kFloat, .number_attr = "N"}};
  f->nodes = {{"n", "AddN", {"xs"}, "", {{"T", DType::kFloat}, {"N", AttrPlaceholder{"N"}}}},
              {"m", "Add", {"xs:1", "n:sum"}, "", kFloatT}};
  f->returns = {{"sum", "m:z:0"}, {"all", "xs"}};
  add(f);
  Ref<FunctionBody> body = instantiate("f", {{"N", 3}}).value();
  EXPECT_EQ(body->args.size(), 3u);
  EXPECT_EQ(body->results.size(), 4u);
  const Node& m = body->graph->node(body->graph->lookup("m").value());
  EXPECT_EQ(m.input(0).node, body->args[1]);
  EXPECT_EQ(body->graph->node(body->results[3]).input(0).node, body->args[2]);
  EXPECT_EQ(instantiate("f").value()->args.size(), 2u);
  expect_error(instantiate("f", {{"N", int64_t{1} << 40}}).status(), Code::kInvalidArgument,
               {"f", "N"});
}

TEST_F(FunctionTest, MistakesInBodies) {
  auto fails = [&](Ref<Function> f, Code code, std::vector<std::string_view> says) {
    FunctionLibrary library;
    expect_ok(library.add(std::move(f)));
    expect_error(library.instantiate("f", {}, toy_registry()).status(), code, std::move(says));
  };
  constexpr Code kBad = Code::kInvalidArgument;
  fails(plain("f", {{"n", "Identity", {"nope"}, "", kFloatT}}, "n:output:0"), kBad,
        {"\"f\"", "Identity \"n\"", "input 0 \"nope\""});
  fails(plain("f", {{"n", "Identity", {"x"}, "", kFloatT}}, "n:z:0"), kBad,
        {"\"f\"", "result \"y\"", "n:z:0"});
  fails(plain("f", {{"n", "Identity", {"x"}, "", {{"T", DType::kInt32}}}}, "n:output:0"), kBad,
        {"\"f\"", "Identity \"n\"", "expected int32", "found float"});
  fails(plain("f", {{"n", "Identity", {"x"}, "", {}}}, "n:output:0"), kBad,
        {"Identity \"n\"", "'T'"});
  fails(plain("f", {{"n", "Identity", {"x"}, "", {{"T", AttrPlaceholder{"U"}}}}}, "n:output:0"),
        kBad, {"Identity \"n\"", "\"T\"", "\"U\""});
  fails(plain("f", {{"n", "Less", {"x", "x"}, "", kFloatT}}, "n:z:0"), kBad,
        {"_Retval", "expected float", "found bool"});
  fails(plain("f", {{"n", "NoOp", {"^nope"}, "", {}}}, "x"), kBad, {"NoOp \"n\"", "^nope"});
  fails(plain("f", {{"n", "Identity", {"^x", "x"}, "", kFloatT}}, "x"), kBad,
        {"Identity \"n\"", "control"});
  fails(plain("f",
              {{"n", "Identity", {"m:output:0"}, "", kFloatT},
               {"m", "Identity", {"n:output:0"}, "", kFloatT}},
              "x"),
        kBad, {"2 nodes in a cycle"});
  fails(plain("f", {{"x", "NoOp", {}, "", {}}}, "x"), kBad, {"\"x\"", "name of its own"});
  fails(plain("f", {{"n", "NoOp", {}, "", {}}, {"n", "NoOp", {}, "", {}}}, "x"), kBad,
        {"NoOp \"n\""});
  fails(plain("f", {{"n", "Mystery", {}, "", {}}, {"m", "Riddle", {}, "", {}}}, "x"),
        Code::kNotFound, {"\"f\"", "Mystery", "Riddle"});
  expect_error(instantiate("none").status(), Code::kNotFound, {"none"});
  add(twice());
  expect_error(instantiate("twice").status(), kBad, {"twice", "'T'"});
  expect_error(instantiate("twice", {{"T", 3}}).status(), kBad, {"twice", "'T'", "'int'"});
}

TEST_F(FunctionTest, LoopsInBodies) {
  add(plain("f",
            {{"next", "NextIteration", {"merge:output:0"}, "", kFloatT},
             {"enter", "Enter", {"x"}, "", {{"T", DType::kFloat}, {"frame_name", "w"}}},
             {"merge",
              "Merge",
              {"enter:output:0", "next:output:0"},
              "",
              {{"T", DType::kFloat}, {"N", 2}}},
             {"exit", "Exit", {"merge:output:0"}, "", kFloatT}},
            "exit:output:0"));
  Ref<FunctionBody> body = instantiate("f").value();
  const Node& merge = body->graph->node(body->graph->lookup("merge").value());
  EXPECT_EQ(body->graph->node(merge.input(1).node).name(), "next");
}

TEST_F(FunctionTest, CallsByNameAndByAttribute) {
  add(twice());
  AttrMap call = {{"Tin", std::vector{DType::kFloat}},
                  {"Tout", std::vector{DType::kFloat}},
                  {"f", FunctionAttr{"twice", kFloatT}}};
  add(plain("four",
            {{"a", "twice", {"x"}, "", kFloatT}, {"b", "PartitionedCall", {"a:y:0"}, "", call}},
            "b:output:0"));
  Ref<FunctionBody> body = instantiate("four").value();
  EXPECT_EQ(body->graph->node(body->graph->lookup("a").value()).op_name(), "twice");
  EXPECT_TRUE(body->graph->functions().find("twice"));
}

TEST_F(FunctionTest, ABodySharesTheFunctionsOfItsLibrary) {
  add(twice());
  add(plain("four", {{"a", "twice", {"x"}, "", kFloatT}}, "a:y:0"));
  Ref<FunctionBody> body = instantiate("four").value();
  add(plain("later", {{"a", "twice", {"x"}, "", kFloatT}}, "a:y:0"));
  EXPECT_TRUE(body->graph->functions().find("later"));
  EXPECT_EQ(body->graph->functions().names().size(), 3u);
}

// Each calls the next one twice: there are 2^60 ways through them.
TEST_F(FunctionTest, ReachableFunctionsAreFoundOnce) {
  Ref<Graph> graph = make_ref<Graph>(toy_registry());
  constexpr int kCount = 60;
  for (int i = 0; i < kCount; ++i) {
    const std::string next = str_cat("f", i + 1);
    std::vector<Function::BodyNode> calls = {{"a", next, {"x"}, "", {}},
                                             {"b", next, {"a:y:0"}, "", {}}};
    const bool last = i + 1 == kCount;
    if (last) calls = {{"b", "Add", {"x", "x"}, "", kFloatT}};
    expect_ok(
        graph->functions().add(plain(str_cat("f", i), std::move(calls), last ? "b:z:0" : "b:y:0")));
  }
  expect_ok(graph->functions().add(plain("other", {{"b", "f0", {"x"}, "", {}}}, "b:y:0")));
  GraphBuilder builder(*graph);
  Result<NodeId> x = builder.add("Placeholder", "x", {}, {{"dtype", DType::kFloat}});
  ASSERT_TRUE(x.ok()) << x.status().to_string();
  ASSERT_TRUE(builder.add("f0", "call", std::vector<Output>{{*x, 0}}, {}).ok());
  EXPECT_EQ(reachable_functions(*graph).value().size(), static_cast<size_t>(kCount));
}

TEST_F(FunctionTest, RecursionIsFoundWithoutRecursion) {
  constexpr int kCount = 5000;
  for (int i = 0; i < kCount; ++i) {
    add(plain(str_cat("f", i), {{"n", str_cat("f", i + 1), {"x"}, "", {}}}, "n:y:0"));
  }
  add(plain(str_cat("f", kCount), {{"n", "f7", {"x"}, "", {}}}, "n:y:0"));
  expect_error(instantiate("f3").status(), Code::kInvalidArgument,
               {"f3", "f7 -> f8", "reaches itself"});
}

TEST_F(FunctionTest, AFunctionHandedToItselfReachesItself) {
  AttrMap call = {{"Tin", std::vector{DType::kFloat}},
                  {"Tout", std::vector{DType::kFloat}},
                  {"f", AttrPlaceholder{"g"}}};
  Ref<Function> f = plain("f", {{"n", "PartitionedCall", {"x"}, "", call}}, "n:output:0");
  f->signature.attrs = {{.name = "g", .type = "func"}};
  add(f);
  add(twice());
  expect_ok(instantiate("f", {{"g", FunctionAttr{"twice", kFloatT}}}).status());
  expect_error(instantiate("f", {{"g", FunctionAttr{"f", {}}}}).status(), Code::kInvalidArgument,
               {"\"f\"", "reaches itself"});
}

TEST_F(FunctionTest, AttributesCannotGrowWithoutBound) {
  // Each call hands its value on twice: the value doubles with every level.
  AttrValue value = 1;
  for (int i = 0; i < 40; ++i) {
    AttrMap inner = {{"a", AttrPlaceholder{"v"}}, {"b", AttrPlaceholder{"v"}}};
    Ref<Function> f = plain("f", {{"n", "NoOp", {}, "", {{"_v", FunctionAttr{"g", inner}}}}}, "x");
    f->signature.attrs = {{.name = "v", .type = "func"}};
    FunctionLibrary library;
    expect_ok(library.add(f));
    Result<Ref<FunctionBody>> body = library.instantiate(
        "f", {{"v", i == 0 ? AttrValue(FunctionAttr{"g", {}}) : value}}, toy_registry());
    if (!body.ok()) {
      expect_error(body.status(), Code::kInvalidArgument, {"NoOp \"n\"", "\"_v\"", "values"});
      return;
    }
    for (NodeId id = 0; id < (*body)->graph->num_nodes(); ++id) {
      if (const AttrValue* v = (*body)->graph->node(id).attrs().find("_v")) value = *v;
    }
  }
  FAIL() << "forty doublings were accepted";
}

TEST_F(FunctionTest, TheSameFunctionTwiceIsFine) {
  add(twice());
  add(twice());
  Ref<Function> other = twice();
  other->nodes[0].op = "Less";
  expect_error(library_.add(other), Code::kInvalidArgument, {"twice"});
  EXPECT_EQ(library_.names(), std::vector<std::string>{"twice"});
}

TEST_F(FunctionTest, MessagesComeBack) {
  Ref<Function> f = twice();
  f->attrs.set("_noinline", true);
  f->arg_attrs = {{0, {{"_name", "input"}}}};
  f->nodes[0].origin = intern_origin({"net.py", 3, "g", "y = x + x"});
  f->nodes[0].device = "/cpu:1";
  tensorflow::FunctionDef proto, again;
  function_to_proto(*f, proto);
  Ref<Function> copy = function_from_proto(proto).value();
  EXPECT_EQ(copy->nodes, f->nodes);
  EXPECT_EQ(copy->returns, f->returns);
  EXPECT_EQ(copy->control_returns, f->control_returns);
  EXPECT_EQ(copy->attrs, f->attrs);
  EXPECT_EQ(copy->arg_attrs, f->arg_attrs);
  add(f);
  add(copy);  // equal in every way, so it may come twice
}

TEST_F(FunctionTest, AttributesOfTheRuntimeMayHaveNoValue) {
  tensorflow::FunctionDef proto;
  function_to_proto(*twice(), proto);
  (*proto.mutable_attr())["_input_shapes"];
  EXPECT_EQ(function_from_proto(proto).value()->attrs, twice()->attrs);
  (*proto.mutable_attr())["T"];
  expect_error(function_from_proto(proto).status(), Code::kInvalidArgument, {"\"T\"", "none"});
}

TEST_F(FunctionTest, GraphsCarryTheirFunctions) {
  Ref<Graph> graph = make_ref<Graph>(toy_registry());
  Ref<Function> f = twice();
  f->gradient = "twice_grad";
  expect_ok(graph->functions().add(f));
  NodeId a = graph
                 ->add({.name = "a",
                        .op = "Const",
                        .attrs = {{"dtype", DType::kFloat}, {"value", Tensor::scalar(1.f)}}})
                 .value();
  expect_ok(
      graph->add({.name = "c", .op = "twice", .inputs = {{a, 0}}, .attrs = kFloatT}).status());
  std::string bytes = export_graph_def_bytes(*graph).value();
  Ref<Graph> copy = make_ref<Graph>(toy_registry());
  expect_ok(import_graph_def_bytes(bytes, {}, *copy).status());
  EXPECT_EQ(export_graph_def_bytes(*copy).value(), bytes);
  EXPECT_EQ(copy->functions().find("twice")->gradient, "twice_grad");
  EXPECT_EQ(copy->node(copy->find("c")).output_type(0), DType::kFloat);
}

TEST_F(FunctionTest, GraphsBecomeFunctions) {
  Ref<Graph> graph = make_ref<Graph>(toy_registry());
  AttrMap placeholder = {{"dtype", DType::kFloat}};
  NodeId p = graph->add({.name = "in/P", .op = "Placeholder", .attrs = placeholder}).value();
  NodeId q = graph->add({.name = "q", .op = "Placeholder", .attrs = placeholder}).value();
  NodeId w = graph->add({.name = "w", .op = "NoOp", .control_inputs = {p}}).value();
  NodeId s = graph
                 ->add({.name = "s",
                        .op = "Add",
                        .inputs = {{p, 0}, {p, 0}},
                        .control_inputs = {w},
                        .attrs = kFloatT})
                 .value();
  NodeId t =
      graph->add({.name = "t", .op = "Add", .inputs = {{s, 0}, {q, 0}}, .attrs = kFloatT}).value();
  std::vector<Output> args = {{p, 0}}, results = {{s, 0}, {p, 0}};
  Ref<Function> f = function_from_graph(*graph, "f", args, results).value();
  EXPECT_EQ(f->nodes.size(), 2u);  // w and s
  add(f);
  Ref<FunctionBody> body = instantiate("f").value();
  EXPECT_EQ(body->graph->node(body->results[0]).input(0).node, body->graph->find("s"));
  EXPECT_EQ(body->graph->node(body->results[1]).input(0).node, body->args[0]);

  results = {{t, 0}};
  expect_error(function_from_graph(*graph, "g", args, results).status(), Code::kInvalidArgument,
               {"\"g\"", "Placeholder \"q\"", "arguments"});
  args = {{p, 0}, {p, 0}};
  expect_error(function_from_graph(*graph, "g", args, results).status(), Code::kInvalidArgument,
               {"in/P", "twice"});
  args = {{99, 0}};
  expect_error(function_from_graph(*graph, "g", args, results).status(), Code::kInvalidArgument,
               {"99"});
}

TEST_F(FunctionTest, ThreadsInstantiateAndAddAtOnce) {
  add(twice());
  std::vector<Ref<FunctionBody>> bodies(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      expect_ok(
          library_.add(plain(str_cat("f", i), {{"n", "twice", {"x"}, "", kFloatT}}, "n:y:0")));
      bodies[i] = instantiate("twice", kFloatT).value();
      expect_ok(instantiate(str_cat("f", i)).status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ref<FunctionBody>& body : bodies) EXPECT_EQ(body, bodies[0]);
  EXPECT_EQ(library_.names().size(), 9u);
}

}  // namespace
}  // namespace millrace
