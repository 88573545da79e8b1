#include "millrace/api/control_flow.h"

#include <gtest/gtest.h>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

class StructuredControlFlow : public testing::Test {
 protected:
  Expr f(float v) { return root_.constant(v); }
  Expr i(int32_t v) { return root_.constant(v); }

  ClientSession& session(SessionOptions options = {}) {
    if (!session_) {
      Result<ClientSession> made = ClientSession::create(root_, options);
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      session_ = std::make_unique<ClientSession>(std::move(made).value());
    }
    return *session_;
  }
  std::vector<Tensor> run(const Exprs& fetches, const ClientSession::Feeds& feeds = {},
                          const std::vector<Operation>& targets = {}) {
    auto out = session().run(feeds, fetches, targets);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? *out : std::vector<Tensor>(fetches.size());
  }
  template <class T>
  T value(Expr e, const ClientSession::Feeds& feeds = {}) {
    return run({e}, feeds)[0].item<T>();
  }
  void expect_error(std::initializer_list<std::string_view> parts) {
    EXPECT_EQ(root_.status().code(), Code::kInvalidArgument) << root_.status().to_string();
    for (std::string_view part : parts) {
      EXPECT_NE(root_.status().message().find(part), std::string_view::npos)
          << root_.status().to_string();
    }
  }
  // A loop that counts to n and carries `start`.
  Exprs count_to(Expr n, const Exprs& start, const LoopBody& body,
                 const LoopOptions& options = {}) {
    Exprs initial = {i(0)};
    initial.insert(initial.end(), start.begin(), start.end());
    return while_loop(
        root_, initial, [&](const Scope& s, const Exprs& v) { return ops::less(s, v[0], n); },
        [&](const Scope& s, const Exprs& v) {
          Exprs next = body(s, v);
          next.insert(next.begin(), v[0] + 1.0);
          return next;
        },
        options);
  }

  Scope root_ = Scope::make_root();
  std::unique_ptr<ClientSession> session_;
};

TEST_F(StructuredControlFlow, OnlyTheBranchTakenRuns) {
  Expr x = ops::placeholder(root_, DType::kInt32);
  auto fail = [&](const Scope& s, const char* what) {
    Operation never = ops::assert_(s, s.constant(false), {s.constant(std::string(what))});
    return ops::identity(s.with_control({never}), x);
  };
  Expr y = cond(
      root_, ops::less(root_, x, i(0)), [&](const Scope& s) { return ops::neg(s, x); },
      [&](const Scope& s) { return fail(s, "positive"); });
  EXPECT_EQ(value<int32_t>(y, {{x, Tensor::scalar<int32_t>(-3)}}), 3);
  auto out = session().run({{x, Tensor::scalar<int32_t>(3)}}, {y});
  EXPECT_EQ(out.status().code(), Code::kInvalidArgument);
  EXPECT_NE(out.status().message().find("control_flow_test.cc"), std::string_view::npos)
      << out.status().to_string();
}

TEST_F(StructuredControlFlow, BranchesAssignToReferenceVariables) {
  Expr v = ops::variable_v2(root_.with_name("v"), DType::kFloat, PartialShape({}));
  Operation init = root_.operation_of(ops::assign(root_, v, f(1)));
  Expr p = ops::placeholder(root_, DType::kBool, {.shape = PartialShape({})});
  Expr y = cond(
      root_, p,
      [&](const Scope& s) { return ops::identity(s, ops::assign_add(s, v, s.constant(10.0F))); },
      [&](const Scope& s) { return ops::identity(s, ops::assign_sub(s, v, s.constant(1.0F))); });
  run({}, {}, {init});
  EXPECT_EQ(value<float>(y, {{p, Tensor::scalar(true)}}), 11);
  EXPECT_EQ(value<float>(y, {{p, Tensor::scalar(false)}}), 10);
  EXPECT_EQ(value<float>(y, {{p, Tensor::scalar(false)}}), 9);
  EXPECT_EQ(value<float>(v), 9);
}

TEST_F(StructuredControlFlow, BodiesAssignToVariablesOfBothKinds) {
  Expr ref = ops::variable_v2(root_, DType::kFloat, PartialShape({}));
  Expr handle = ops::var_handle_op(root_, DType::kFloat, PartialShape({}));
  std::vector<Operation> init = {root_.operation_of(ops::assign(root_, ref, f(0))),
                                 ops::assign_variable_op(root_, handle, f(0))};
  Expr n = ops::placeholder(root_, DType::kInt32, {.shape = PartialShape({})});
  Exprs out = count_to(n, {f(0)}, [&](const Scope& s, const Exprs& v) {
    // What comes from the last iteration keeps the next one waiting.
    Expr a = ops::assign_add(s, ref, v[1] * 0.0 + 2.0);
    Operation b = ops::assign_add_variable_op(s, handle, s.constant(3.0F));
    return Exprs{ops::add(s.with_control({b}), v[1], ops::identity(s, a))};
  });
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  run({}, {}, init);
  EXPECT_EQ(value<float>(out[1], {{n, Tensor::scalar<int32_t>(4)}}), 2 + 4 + 6 + 8);
  EXPECT_EQ(value<float>(ref), 8);
  EXPECT_EQ(value<float>(ops::read_variable_op(root_, handle, DType::kFloat)), 12);
}

// A loop that carries nothing: only state changes.
TEST_F(StructuredControlFlow, ALoopMayHaveNoVariables) {
  Expr handle = ops::var_handle_op(root_, DType::kInt32, PartialShape({}));
  run({}, {}, {ops::assign_variable_op(root_, handle, i(0))});
  GraphBuilder& b = root_.builder();
  FunctionBuilder cond(b), body(b);
  Expr limit = less(call("ReadVariableOp", {cond.import(handle)}, {{"dtype", DType::kInt32}}),
                    cond.constant(Tensor::scalar<int32_t>(7)));
  body.emit("AssignAddVariableOp", {handle, body.constant(Tensor::scalar<int32_t>(1))}, {});
  Output cond_handle = GraphBuilder::output(cond.import(handle));
  Output body_handle = GraphBuilder::output(body.import(handle));
  Output result = GraphBuilder::output(limit);
  std::string test =
      cond.finish("go_on", std::span(&cond_handle, 1), std::span(&result, 1)).value();
  NodeId effect = body.graph().num_nodes() - 1;
  std::string step = body.finish("step", std::span(&body_handle, 1), std::span(&body_handle, 1),
                                 std::span(&effect, 1))
                         .value();
  Operation loop = root_.add("While", {handle},
                             {{"T", std::vector<DType>{DType::kResource}},
                              {"cond", FunctionAttr{test, {}}},
                              {"body", FunctionAttr{step, {}}}});
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  run({}, {}, {loop});
  EXPECT_EQ(value<int32_t>(ops::read_variable_op(root_, handle, DType::kInt32)), 7);
}

TEST_F(StructuredControlFlow, StateInsideBelongsToThePath) {
  Expr n = ops::placeholder(root_, DType::kInt32, {.shape = PartialShape({})});
  Exprs out = while_loop(
      root_.with_name("loop"), {i(0), f(0)},
      [&](const Scope& s, const Exprs& v) { return ops::less(s, v[0], n); },
      [&](const Scope& s, const Exprs& v) {
        Expr noise =
            ops::random_uniform(s.with_name("rng"), s.constant(Tensor::vector<int32_t>({})),
                                DType::kFloat, {.seed = 1, .seed2 = 2});
        return Exprs{v[0] + 1.0, noise};
      },
      {.parallel_iterations = 1});  // in order, so that the numbers are
  Expr twice = ops::mul(root_, out[1], f(2));
  ClientSession::Feeds two = {{n, Tensor::scalar<int32_t>(2)}};
  float a = value<float>(out[1], two);
  float b = value<float>(twice, two);  // another signature continues the same sequence
  EXPECT_NE(2 * a, b);
  session_.reset();
  float c = value<float>(out[1], {{n, Tensor::scalar<int32_t>(4)}});
  EXPECT_EQ(2 * c, b);
}

TEST_F(StructuredControlFlow, OutputsCanBeFedFetchedAndWaitedFor) {
  Exprs out =
      count_to(i(3), {f(1)}, [&](const Scope&, const Exprs& v) { return Exprs{v[1] * 2.0}; });
  Expr y = out[1] + 1.0;
  EXPECT_EQ(value<float>(y), 9);
  EXPECT_EQ(value<float>(y, {{out[1], Tensor::scalar(100.0F)}}), 101);
  EXPECT_EQ(value<int32_t>(out[0]), 3);
  Expr after = ops::identity(root_.with_control({root_.operation_of(out[0])}), f(5));
  EXPECT_EQ(value<float>(after), 5);
  run({}, {}, {root_.operation_of(out[0])});
}

TEST_F(StructuredControlFlow, PartsOnSeveralDevices) {
  SessionOptions options;
  options.cpu_devices = 3;
  session_.reset();
  Exprs out = count_to(i(5), {f(1)}, [&](const Scope& s, const Exprs& v) {
    Expr odd =
        ops::equal(s, ops::floor_mod(s, v[0], s.constant(int32_t{2})), s.constant(int32_t{1}));
    Expr y = cond(
        s, odd,
        [&](const Scope& t) { return ops::mul(t.with_device("/cpu:1"), v[1], t.constant(3.0F)); },
        [&](const Scope& t) { return ops::add(t.with_device("/cpu:2"), v[1], t.constant(1.0F)); });
    return Exprs{ops::neg(s.with_device("/cpu:1"), y)};
  });
  float expected = 1;
  for (int k = 0; k < 5; ++k) expected = -(k % 2 == 1 ? expected * 3 : expected + 1);
  session(options);
  EXPECT_EQ(value<float>(out[1]), expected);
}

TEST_F(StructuredControlFlow, LimitsAndInvariants) {
  LoopOptions limited;
  limited.maximum_iterations = 4;
  Exprs out = count_to(
      i(100), {f(1)}, [&](const Scope&, const Exprs& v) { return Exprs{v[1] * 2.0}; }, limited);
  EXPECT_EQ(value<float>(out[1]), 16);
  LoopOptions growing;
  growing.shape_invariants = {PartialShape({}), PartialShape({-1})};
  out = count_to(
      i(3), {root_.constant(Tensor::vector<float>({1}))},
      [&](const Scope& s, const Exprs& v) {
        return Exprs{ops::concat_v2(s, {v[1], v[1]}, s.constant(int32_t{0}))};
      },
      growing);
  EXPECT_EQ(run({out[1]})[0].shape(), Shape({8}));
}

TEST_F(StructuredControlFlow, ABodyThatChangesAShapeIsRefused) {
  count_to(i(3), {root_.constant(Tensor::vector<float>({1, 2}))},
           [&](const Scope& s, const Exprs& v) {
             return Exprs{ops::concat_v2(s, {v[1], v[1]}, s.constant(int32_t{0}))};
           });
  expect_error({"loop variable 1", "[2]", "[4]", "control_flow_test.cc"});
}

TEST_F(StructuredControlFlow, ABodyThatChangesATypeIsRefused) {
  count_to(i(3), {f(1)}, [&](const Scope& s, const Exprs& v) {
    return Exprs{ops::cast(s, v[1], DType::kDouble)};
  });
  expect_error({"loop variable 1", "float", "double", "control_flow_test.cc"});
}

TEST_F(StructuredControlFlow, ABodyWithOtherVariablesIsRefused) {
  count_to(i(3), {f(1)}, [&](const Scope&, const Exprs&) { return Exprs{}; });
  expect_error({"as many variables", "2", "1", "control_flow_test.cc"});
}

TEST_F(StructuredControlFlow, AConditionIsABool) {
  while_loop(
      root_, {i(0)}, [](const Scope&, const Exprs& v) { return v[0]; },
      [](const Scope&, const Exprs& v) { return v; });
  expect_error({"one bool", "int32"});
}

TEST_F(StructuredControlFlow, BranchesThatDifferAreRefused) {
  cond(
      root_, root_.constant(true), [&](const Scope& s) { return s.constant(1.0F); },
      [&](const Scope& s) { return s.constant(int32_t{1}); });
  expect_error({"branch 0 gives (float)", "branch 1 gives (int32)", "control_flow_test.cc"});
}

TEST_F(StructuredControlFlow, TensorsOfOtherGraphsAreRefused) {
  Scope other = Scope::make_root();
  Expr foreign = other.constant(1.0F);
  cond(
      root_, root_.constant(true), [&](const Scope& s) { return ops::neg(s, foreign); },
      [&](const Scope& s) { return s.constant(1.0F); });
  expect_error({"another graph"});
}

TEST_F(StructuredControlFlow, AListIndexOutOfRangeNamesNodeAndLine) {
  Expr list = ops::tensor_list_from_tensor(root_, root_.constant(Tensor::vector<float>({1, 2})),
                                           root_.constant(Tensor::vector<int32_t>({})));
  Exprs out = count_to(i(3), {f(0)}, [&](const Scope& s, const Exprs& v) {
    return Exprs{v[1] + ops::tensor_list_get_item(s.with_name("item"), list, v[0],
                                                  s.constant(Tensor::vector<int32_t>({})),
                                                  DType::kFloat)};
  });
  Status status = session().run({}, {out[1]}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  for (std::string_view part : {"while/body/item", "2", "control_flow_test.cc"}) {
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
  }
}

TEST_F(StructuredControlFlow, GraphsWithFunctionsComeBackFromBytes) {
  Expr x = ops::placeholder(root_.with_name("x"), DType::kFloat, {.shape = PartialShape({})});
  Exprs out = count_to(i(4), {x}, [&](const Scope& s, const Exprs& v) {
    return Exprs{cond(
        s, ops::less(s, v[1], s.constant(10.0F)), [&](const Scope&) { return v[1] * v[1]; },
        [&](const Scope&) { return v[1] + 1.0; })};
  });
  ops::identity(root_.with_name("y"), out[1]);
  ASSERT_TRUE(root_.ok());
  std::string bytes = export_graph_def_bytes(*root_.graph()).value();
  Ref<Graph> copy = make_ref<Graph>();
  ASSERT_TRUE(import_graph_def_bytes(bytes, {}, *copy).ok());
  std::unique_ptr<Session> session = Session::create(copy, {}).value();
  auto got = session->run({{"x:0", Tensor::scalar(2.0F)}}, {"y:0"});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)[0].item<float>(), 18);
}

TEST_F(StructuredControlFlow, OptionalsCarryValuesOutOfBranches) {
  Expr x = ops::placeholder(root_, DType::kFloat, {.shape = PartialShape({2})});
  Expr p = ops::placeholder(root_, DType::kBool, {.shape = PartialShape({})});
  Expr optional = cond(
      root_, p, [&](const Scope& s) { return ops::optional_from_value(s, {ops::square(s, x)}); },
      [&](const Scope& s) { return ops::optional_none(s); });
  Expr has = ops::optional_has_value(root_, optional);
  std::vector<Expr> got =
      ops::optional_get_value(root_, optional, {DType::kFloat}, {PartialShape({2})});
  auto slope = gradients(root_.builder(), got, std::vector<Expr>{x}).value();
  ClientSession::Feeds feeds = {{x, Tensor::vector<float>({2, 3})}, {p, Tensor::scalar(true)}};
  std::vector<Tensor> out = run({has, got[0], slope[0].values}, feeds);
  EXPECT_TRUE(out[0].item<bool>());
  EXPECT_EQ(out[1].to_string(), "float [2] {4, 9}");
  EXPECT_EQ(out[2].to_string(), "float [2] {4, 6}");
  feeds[1].second = Tensor::scalar(false);
  EXPECT_FALSE(run({has}, feeds)[0].item<bool>());
  Status status = session().run(feeds, {got[0]}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("does not have a value"), std::string_view::npos);
}

// What a function cannot do is an error for who asks for it, and for nobody else.
TEST_F(StructuredControlFlow, FunctionsThatCannotRunAreErrorsWhenNeeded) {
  Ref<Function> broken = make_ref<Function>();
  broken->signature.name = "broken";
  ArgDef y;
  y.name = "y";
  y.dtype = DType::kFloat;
  broken->signature.outputs = {y};
  Function::BodyNode node;
  node.name = "n";
  node.op = "NobodyHasThisOp";
  broken->nodes = {node};
  broken->returns = {{"y", "n:out:0"}};
  ASSERT_TRUE(root_.graph()->functions().add(broken).ok());
  Expr bad = root_.output(root_.add("PartitionedCall", {},
                                    {{"Tin", std::vector<DType>{}},
                                     {"Tout", std::vector<DType>{DType::kFloat}},
                                     {"f", FunctionAttr{"broken", {}}}}),
                          0);
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  EXPECT_EQ(value<float>(f(3)), 3);
  Status status = session().run({}, {bad}).status();
  EXPECT_EQ(status.code(), Code::kNotFound) << status.to_string();
  for (std::string_view part : {"NobodyHasThisOp", "PartitionedCall", "control_flow_test.cc"}) {
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
  }
}

TEST_F(StructuredControlFlow, FunctionsAreCalledWithTheirTypes) {
  GraphBuilder& b = root_.builder();
  FunctionBuilder inside(b);
  Expr p = inside.add_parameter("p", DType::kFloat);
  Output parameter = GraphBuilder::output(p);
  Output result = GraphBuilder::output(p * p);
  std::string name =
      inside.finish("square", std::span(&parameter, 1), std::span(&result, 1)).value();
  auto call_with = [&](Expr x) {
    return root_.output(root_.add("PartitionedCall", {x},
                                  {{"Tin", std::vector<DType>{x.dtype()}},
                                   {"Tout", std::vector<DType>{DType::kFloat}},
                                   {"f", FunctionAttr{name, {}}}}),
                        0);
  };
  Expr good = call_with(f(3)), bad = call_with(i(3));
  Status status = ClientSession::create(root_).status();
  if (status.ok()) status = session().run({}, {bad}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find("takes (int32)"), std::string_view::npos) << status.to_string();
  (void)good;
}

}  // namespace
}  // namespace millrace
