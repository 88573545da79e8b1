#include "millrace/autodiff/gradients.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradient_registry.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

class Gradients : public testing::Test {
 protected:
  Expr number(Shape shape = {}) {
    return ops::placeholder(root_, DType::kDouble, {.shape = shape});
  }
  Expr indices(std::initializer_list<int32_t> values) {
    return root_.constant(Tensor::vector<int32_t>(values));
  }
  Result<std::vector<Gradient>> gradients_of(const Exprs& ys, const Exprs& xs,
                                             const GradientOptions& options = {},
                                             const std::vector<Gradient>& grad_ys = {}) {
    return gradients(root_.builder(), ys, xs, grad_ys, options);
  }
  // Of one tensor by another, which depends on it.
  Gradient gradient(Expr y, Expr x, const GradientOptions& options = {}) {
    Result<std::vector<Gradient>> g = gradients_of({y}, {x}, options);
    EXPECT_TRUE(g.ok()) << g.status().to_string();
    return g.ok() ? (*g)[0] : Gradient();
  }
  std::vector<double> run(const ClientSession::Feeds& feeds, Expr fetch,
                          const std::vector<Operation>& targets = {}) {
    if (!session_) {
      Result<ClientSession> session = ClientSession::create(root_);
      EXPECT_TRUE(session.ok()) << session.status().to_string();
      session_ = std::make_unique<ClientSession>(*std::move(session));
    }
    Result<std::vector<Tensor>> out = session_->run(feeds, {fetch}, targets);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    if (!out.ok()) return {};
    const std::span<const double> values = (*out)[0].data<double>();
    return {values.begin(), values.end()};
  }
  double run_number(const ClientSession::Feeds& feeds, Expr fetch) {
    const std::vector<double> values = run(feeds, fetch);
    EXPECT_EQ(values.size(), 1u);
    return values.empty() ? 0 : values[0];
  }
  const Node& node_of(Expr e) const { return root_.graph()->node(static_cast<NodeId>(e.id())); }
  int count_nodes(std::string_view op) const {
    int count = 0;
    for (NodeId id = 0; id < root_.graph()->num_nodes(); ++id) {
      count += root_.graph()->node(id).op_name() == op;
    }
    return count;
  }

  Scope root_ = Scope::make_root();
  std::unique_ptr<ClientSession> session_;
};

Tensor num(double value) { return Tensor::scalar<double>(value); }
Tensor vec(std::initializer_list<double> values) { return Tensor::vector<double>(values); }

using Numbers = std::vector<double>;

void expect_error(const Status& status, Code code, std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (std::string_view part : parts) {
    EXPECT_NE(status.to_string().find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << status.to_string();
  }
}

// The example of docs/gradients.md: x sin(x), and its first and second derivative at x.
Result<std::vector<Tensor>> curve_at(double at) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble);
  Expr y = ops::sin(root, x) * x;
  MR_TRY_ASSIGN(std::vector<Gradient> first,
                gradients(root.builder(), std::array{y}, std::array{x}));
  Expr slope = to_dense(first[0]);
  MR_TRY_ASSIGN(std::vector<Gradient> second,
                gradients(root.builder(), std::array{slope}, std::array{x}));
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  return session.run({{x, Tensor::scalar(at)}}, {y, slope, to_dense(second[0])});
}

TEST_F(Gradients, CanBeDifferentiated) {
  Result<std::vector<Tensor>> curve = curve_at(0.5);
  ASSERT_TRUE(curve.ok()) << curve.status().to_string();
  EXPECT_NEAR((*curve)[1].data<double>()[0], std::cos(0.5) * 0.5 + std::sin(0.5), 1e-12);
  EXPECT_NEAR((*curve)[2].data<double>()[0], 2 * std::cos(0.5) - std::sin(0.5) * 0.5, 1e-12);
}

TEST_F(Gradients, AddUp) {
  Expr x = number();
  Expr y = ops::square(root_, x) + ops::sin(root_, x) + x * 3.0;
  Gradient g = gradient(y, x);
  EXPECT_EQ(node_of(g.values).op_name(), "AddN");
  EXPECT_EQ(node_of(g.values).num_inputs(), 3);
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, g.values), 2 * 0.5 + std::cos(0.5) + 3);
}

TEST_F(Gradients, OfSeveralYsAddUp) {
  Expr x = number();
  Expr y = ops::square(root_, x), z = ops::exp(root_, x);
  Result<std::vector<Gradient>> g = gradients_of({y, z, y}, {x, x, y});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, (*g)[0].values), 2 + std::exp(0.5));
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, (*g)[1].values), 2 + std::exp(0.5));
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, (*g)[2].values), 2);
}

TEST_F(Gradients, OfATensorByItselfAreOnes) {
  Expr x = number({2});
  EXPECT_EQ(run({{x, vec({3, 4})}}, gradient(x, x).values), Numbers({1, 1}));
}

TEST_F(Gradients, ReachTensorsOnTheWay) {
  Expr x = number();
  Expr z = ops::square(root_, x);
  Expr y = ops::sin(root_, z);
  Result<std::vector<Gradient>> g = gradients_of({y}, {z, x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, (*g)[0].values), std::cos(0.25));
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, (*g)[1].values), std::cos(0.25));
}

TEST_F(Gradients, OfOneOutputOfSeveral) {
  Expr x = number({4});
  Exprs parts = ops::split(root_, root_.constant(0), x, 2);
  Gradient g = gradient(ops::square(root_, parts[1]), x);
  EXPECT_EQ(run({{x, vec({1, 2, 3, 4})}}, g.values), Numbers({0, 0, 6, 8}));
}

TEST_F(Gradients, AreNoneOrZerosWhereNothingConnects) {
  Expr x = number({2}), other = number({2});
  Expr y = ops::square(root_, x);
  EXPECT_FALSE(gradient(y, other).valid());
  EXPECT_FALSE(gradient(y, ops::exp(root_, y)).valid());
  Gradient zeros = gradient(y, other, {.zeros_for_unconnected = true});
  ASSERT_TRUE(zeros.valid());
  EXPECT_EQ(run({{x, vec({3, 4})}, {other, vec({1, 2})}}, zeros.values), Numbers({0, 0}));
  // Integers between: no path for gradients.
  Expr whole = cast(cast(x, DType::kInt32), DType::kDouble);
  EXPECT_FALSE(gradient(whole, x).valid());
}

TEST_F(Gradients, StopWhereTold) {
  Expr x = number();
  Expr z = ops::square(root_, x);
  Expr y = x * z;
  Result<std::vector<Gradient>> g = gradients_of({y}, {x, z}, {.stop_gradients = {z}});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_DOUBLE_EQ(run_number({{x, num(3)}}, (*g)[0].values), 9);
  EXPECT_DOUBLE_EQ(run_number({{x, num(3)}}, (*g)[1].values), 3);
}

TEST_F(Gradients, StopAtStopGradient) {
  Expr x = number();
  EXPECT_FALSE(gradient(ops::stop_gradient(root_, ops::square(root_, x)), x).valid());
  Gradient g = gradient(x * ops::stop_gradient(root_, ops::square(root_, x)), x);
  EXPECT_DOUBLE_EQ(run_number({{x, num(3)}}, g.values), 9);
}

TEST_F(Gradients, AreRefusedByPreventGradient) {
  Expr x = number();
  Expr y = ops::prevent_gradient(root_.with_name("wall"), x, {.message = "not through here"});
  expect_error(gradients_of({y}, {x}).status(), Code::kFailedPrecondition,
               {"wall", "not through here"});
  // What nobody asks to go through it does not meet it.
  Expr other = number();
  EXPECT_TRUE(gradients_of({y * other}, {other}).ok());
}

TEST_F(Gradients, OfRowsStayRows) {
  Expr x = number({4, 2});
  Expr same = ops::identity(root_, ops::identity(root_, x));
  Expr y = ops::gather(root_, same, indices({3, 1, 3}));
  Gradient g = gradient(y, x);
  ASSERT_TRUE(g.is_slices());
  EXPECT_EQ(g.values.shape(), PartialShape({3, 2}));
  EXPECT_EQ(run({{x, Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}}, to_dense(g)),
            Numbers({0, 0, 1, 1, 0, 0, 2, 2}));
}

TEST_F(Gradients, OfRowsAreJoined) {
  Expr x = number({4, 2});
  Expr wide = root_.constant(Tensor::vector<int64_t>({0}));
  Expr y = ops::gather(root_, x, indices({3, 1}));
  Expr z = ops::gather(root_, x, wide) * 3.0;
  Result<std::vector<Gradient>> g = gradients_of({y, z}, {x});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  ASSERT_TRUE((*g)[0].is_slices());
  EXPECT_EQ((*g)[0].values.shape(), PartialShape({3, 2}));
  EXPECT_EQ((*g)[0].indices.dtype(), DType::kInt64);
  const Tensor value = Tensor::of<double>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(run({{x, value}}, to_dense((*g)[0])), Numbers({3, 3, 1, 1, 0, 0, 1, 1}));
  // With a dense one they become dense.
  Result<std::vector<Gradient>> mixed = gradients_of({y, ops::square(root_, x)}, {x});
  ASSERT_TRUE(mixed.ok()) << mixed.status().to_string();
  EXPECT_FALSE((*mixed)[0].is_slices());
  EXPECT_EQ(run({{x, value}}, (*mixed)[0].values), Numbers({2, 4, 7, 9, 10, 12, 15, 17}));
}

TEST_F(Gradients, OfVariablesStayRows) {
  Expr variable = ops::var_handle_op(root_, DType::kDouble, Shape{4, 2});
  Expr value = ops::read_variable_op(root_, variable, DType::kDouble);
  Expr y = ops::gather(root_, value, indices({2, 0}));
  Expr z = ops::resource_gather(root_, variable, indices({1}), DType::kDouble);
  Result<std::vector<Gradient>> g = gradients_of({y, z}, {variable, value});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_TRUE((*g)[0].is_slices());
  EXPECT_TRUE((*g)[1].is_slices());
}

TEST_F(Gradients, BeginWithWhatIsGiven) {
  Expr x = number({2}), seed = number({2});
  Expr y = ops::square(root_, x);
  Result<std::vector<Gradient>> g = gradients_of({y}, {x}, {}, {{seed, {}, {}}});
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_EQ(run({{x, vec({3, 4})}, {seed, vec({10, 100})}}, (*g)[0].values), Numbers({60, 800}));
  // An invalid one stands for ones.
  Result<std::vector<Gradient>> ones = gradients_of({y}, {x}, {}, {{}});
  ASSERT_TRUE(ones.ok()) << ones.status().to_string();
  EXPECT_EQ(run({{x, vec({3, 4})}}, (*ones)[0].values), Numbers({6, 8}));
}

TEST_F(Gradients, RefuseSeedsThatDoNotFit) {
  Expr x = number({2});
  Expr y = ops::square(root_.with_name("y"), x);
  Expr single = ops::placeholder(root_, DType::kFloat, {.shape = Shape{2}});
  expect_error(gradients_of({y}, {x}, {}, {{single, {}, {}}}).status(), Code::kInvalidArgument,
               {"y:0", "double", "float"});
  expect_error(gradients_of({y}, {x}, {}, {{number({3}), {}, {}}}).status(), Code::kInvalidArgument,
               {"y:0", "[2]", "[3]"});
  expect_error(gradients_of({y}, {x}, {}, {{}, {}}).status(), Code::kInvalidArgument, {"1", "2"});
}

TEST_F(Gradients, RefuseIntegers) {
  Expr x = number({2});
  Expr y = ops::cast(root_.with_name("whole"), x, DType::kInt32);
  expect_error(gradients_of({y}, {x}).status(), Code::kInvalidArgument, {"whole", "int32"});
}

TEST_F(Gradients, RefuseTensorsOfAnotherGraph) {
  Scope other = Scope::make_root();
  Expr x = number(), stranger = ops::placeholder(other, DType::kDouble);
  Expr y = ops::square(root_, x);
  expect_error(gradients_of({y}, {stranger}).status(), Code::kInvalidArgument,
               {"x 0", "another graph"});
  expect_error(gradients_of({stranger}, {x}).status(), Code::kInvalidArgument,
               {"y 0", "another graph"});
  expect_error(gradients_of({y}, {x}, {.stop_gradients = {stranger}}).status(),
               Code::kInvalidArgument, {"another graph"});
  expect_error(gradients_of({y}, {Expr()}).status(), Code::kInvalidArgument, {"x 0", "no tensor"});
  // None of it did harm.
  EXPECT_DOUBLE_EQ(run_number({{x, num(3)}}, gradient(y, x).values), 6);
}

TEST_F(Gradients, NameTheOpWithoutRule) {
  Expr x = ops::placeholder(root_.with_name("x"), DType::kDouble, {.shape = Shape{}});
  Expr before = ops::square(root_.with_name("before"), x);
  Operation gate = root_.with_name("gate").add("Switch", {before, root_.constant(true)}, {});
  Expr y = ops::sin(root_.with_name("after"), root_.output(gate, 1));
  expect_error(gradients_of({y}, {x}).status(), Code::kNotFound,
               {"'gate'", "Switch", "after <- gate <- before <- x:0", "gradients_test.cc",
                "again with control flow v2"});
}

TEST_F(Gradients, OfALoopOfPrimitivesAreRefused) {
  Expr x = ops::placeholder(root_.with_name("x"), DType::kDouble, {.shape = Shape{}});
  Scope loop = root_.sub_scope("loop");
  auto add = [&](const char* op, const std::vector<Expr>& inputs, AttrMap attrs = {}) {
    return root_.output(loop.with_name(op).add(op, inputs, std::move(attrs)), 0);
  };
  Expr entered = add("Enter", {x}, {{"frame_name", "loop"}});
  Expr merged = add("Merge", {entered, entered});
  Operation gate = loop.with_name("Switch").add(
      "Switch", {merged, add("LoopCond", {ops::less(loop, merged, loop.constant(9.0))})}, {});
  Expr next = add("NextIteration", {ops::square(loop, root_.output(gate, 1))});
  Expr y = add("Exit", {root_.output(gate, 0)});
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  ASSERT_TRUE(root_.graph()
                  ->set_back_edge(GraphBuilder::output(merged).node, 1, GraphBuilder::output(next))
                  .ok());
  expect_error(gradients_of({y}, {x}).status(), Code::kNotFound,
               {"'loop/Exit'", "op type: Exit", "loop/Enter <- x:0", "again with control flow v2",
                "gradients_test.cc"});
}

TEST_F(Gradients, GoToTheDeviceOfTheirOp) {
  Expr x = number();
  Expr y = ops::sin(root_.with_name("layer"), x);
  Gradient apart = gradient(y, x);
  EXPECT_EQ(node_of(apart.values).attrs().find("_class"), nullptr);
  Gradient together = gradient(y, x, {.colocate = true});
  Result<std::vector<std::string>> group =
      node_of(together.values).attr<std::vector<std::string>>("_class");
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_EQ(*group, std::vector<std::string>{"loc:@layer"});
}

TEST_F(Gradients, AreSummedWhereTheirOpsAre) {
  Expr x = number();
  const auto group_of = [&](Expr y) {
    const Gradient sum = gradient(y, x, {.colocate = true});
    EXPECT_EQ(node_of(sum.values).op_name(), "AddN");
    return node_of(sum.values).attr<std::vector<std::string>>("_class").value();
  };
  Expr a = ops::sin(root_.with_name("a"), x), b = ops::sin(root_.with_name("b"), x);
  EXPECT_EQ(group_of(a * b), std::vector<std::string>{"loc:@a"});
  Expr c = ops::sin(root_.with_name("c").with_device("/task:1"), x);
  EXPECT_EQ(group_of(a * c), std::vector<std::string>{"loc:@" + node_of(x).name()});
}

TEST_F(Gradients, WaitForEachOtherWhenGated) {
  Expr a = number(), b = number();
  Result<std::vector<Gradient>> found = gradients_of({a * b}, {a, b}, {.gate_operations = true});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const Node& first = node_of((*found)[0].values);
  const Node& second = node_of((*found)[1].values);
  ASSERT_EQ(first.control_inputs().size(), 1u);
  ASSERT_EQ(second.control_inputs().size(), 1u);
  EXPECT_EQ(first.control_inputs()[0], second.control_inputs()[0]);
  const Node& both = root_.graph()->node(first.control_inputs()[0]);
  EXPECT_EQ(both.op_name(), "NoOp");
  EXPECT_EQ(both.control_inputs().size(), 2u);
}

TEST_F(Gradients, StandUnderTheirName) {
  Expr x = number();
  Expr y = ops::sin(root_.with_name("layer"), x);
  EXPECT_TRUE(node_of(gradient(y, x).values).name().starts_with("gradients/layer_grad/"));
  EXPECT_TRUE(node_of(gradient(y, x).values).name().starts_with("gradients_1/layer_grad/"));
  EXPECT_TRUE(
      node_of(gradient(y, x, {.name = "back"}).values).name().starts_with("back/layer_grad/"));
}

TEST_F(Gradients, FollowTheRuleThatANodeNames) {
  double factor = 7;
  const std::string name = register_unique_gradient("SevenTimes", [factor](GradientContext& ctx) {
    ctx.set(0, ctx.gradient() * factor);
    return ok_status();
  });
  expect_error(register_gradient(name, [](GradientContext&) { return ok_status(); }),
               Code::kAlreadyExists, {name});
  Expr x = number();
  Operation op = root_.add("Sin", {x}, {{std::string(kGradientOverride), name}});
  EXPECT_DOUBLE_EQ(run_number({{x, num(0.5)}}, gradient(root_.output(op, 0), x).values), 7);
  Operation lost = root_.add("Sin", {x}, {{std::string(kGradientOverride), "NobodyHasThis"}});
  expect_error(gradients_of({root_.output(lost, 0)}, {x}).status(), Code::kNotFound,
               {"NobodyHasThis", lost.name});
}

// The function x -> sin(x) * x * y, with parameters x and y.
std::string add_function(const Scope& root) {
  FunctionBuilder inside(root.builder());
  Expr x = inside.add_parameter("x", DType::kDouble);
  Expr y = inside.add_parameter("y", DType::kDouble);
  Expr result = sin(x) * x * y;
  const Output arguments[] = {GraphBuilder::output(x), GraphBuilder::output(y)};
  const Output results[] = {GraphBuilder::output(result)};
  return inside.finish("curve", arguments, results).value();
}

double slope(double x, double y) { return (std::cos(x) * x + std::sin(x)) * y; }
double bend(double x, double y) { return (2 * std::cos(x) - std::sin(x) * x) * y; }

TEST_F(Gradients, GoThroughCalls) {
  Expr x = number(), y = number();
  const std::string name = add_function(root_);
  const std::vector<DType> two = {DType::kDouble, DType::kDouble};
  Operation call = root_.add(
      "PartitionedCall", {x, y},
      {{"Tin", two}, {"Tout", std::vector{DType::kDouble}}, {"f", FunctionAttr{name, {}}}});
  Operation by_name = root_.add(name, {x, y}, {});
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  const ClientSession::Feeds feeds = {{x, num(0.5)}, {y, num(3)}};
  for (const Operation& op : {call, by_name}) {
    Expr z = root_.output(op, 0);
    Result<std::vector<Gradient>> g = gradients_of({z}, {x, y});
    ASSERT_TRUE(g.ok()) << g.status().to_string();
    EXPECT_NEAR(run_number(feeds, (*g)[0].values), slope(0.5, 3), 1e-12) << op.name;
    EXPECT_NEAR(run_number(feeds, (*g)[1].values), std::sin(0.5) * 0.5, 1e-12) << op.name;
    Result<std::vector<Gradient>> again = gradients_of({(*g)[0].values}, {x});
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_NEAR(run_number(feeds, (*again)[0].values), bend(0.5, 3), 1e-12) << op.name;
  }
}

TEST_F(Gradients, HaveAFunctionOfTheirOwn) {
  Expr x = number(), y = number(), dz = number();
  Result<std::string> backward = gradient_function(root_.builder(), {add_function(root_), {}});
  ASSERT_TRUE(backward.ok()) << backward.status().to_string();
  Operation call = root_.add(*backward, {x, y, dz}, {});
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  const ClientSession::Feeds feeds = {{x, num(0.5)}, {y, num(3)}, {dz, num(10)}};
  EXPECT_NEAR(run_number(feeds, root_.output(call, 0)), 10 * slope(0.5, 3), 1e-12);
  EXPECT_NEAR(run_number(feeds, root_.output(call, 1)), 10 * std::sin(0.5) * 0.5, 1e-12);
}

TEST_F(Gradients, GoThroughSymbolicGradient) {
  Expr x = number(), y = number();
  const std::vector<DType> three(3, DType::kDouble), two(2, DType::kDouble);
  Operation op =
      root_.add("SymbolicGradient", {x, y, root_.constant(1.0)},
                {{"Tin", three}, {"Tout", two}, {"f", FunctionAttr{add_function(root_), {}}}});
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  const ClientSession::Feeds feeds = {{x, num(0.5)}, {y, num(3)}};
  EXPECT_NEAR(run_number(feeds, root_.output(op, 0)), slope(0.5, 3), 1e-12);
  EXPECT_NEAR(run_number(feeds, gradient(root_.output(op, 0), x).values), bend(0.5, 3), 1e-12);
  EXPECT_NEAR(run_number(feeds, gradient(root_.output(op, 0), y).values), slope(0.5, 1), 1e-12);
}

// x, then sin of it `times` times.
Expr sine_loop(const Scope& s, Expr x, int32_t times) {
  Exprs out = while_loop(
      s, {s.constant(0), x},
      [&](const Scope& c, const Exprs& v) { return ops::less(c, v[0], c.constant(times)); },
      [](const Scope& b, const Exprs& v) { return Exprs{v[0] + 1.0, ops::sin(b, v[1])}; });
  return out.empty() ? Expr() : out[1];
}

TEST_F(Gradients, OfOneLoopTakenTwiceSaveOnce) {
  Expr x = number();
  Expr y = sine_loop(root_, x, 3);
  ASSERT_TRUE(root_.ok()) << root_.status().to_string();
  EXPECT_EQ(node_of(y).num_outputs(), 2);
  Gradient first = gradient(y, x);
  const int outputs = node_of(y).num_outputs(), lists = count_nodes("EmptyTensorList");
  EXPECT_GT(outputs, 2);
  Gradient second = gradient(y, x);
  EXPECT_EQ(node_of(y).num_outputs(), outputs);
  EXPECT_EQ(count_nodes("EmptyTensorList"), lists);
  const double a = std::sin(0.5), b = std::sin(a);
  const double expected = std::cos(0.5) * std::cos(a) * std::cos(b);
  EXPECT_NEAR(run_number({{x, num(0.5)}}, first.values), expected, 1e-12);
  EXPECT_NEAR(run_number({{x, num(0.5)}}, second.values), expected, 1e-12);
}

TEST_F(Gradients, OfALoopThatASessionHasRun) {
  Expr x = number();
  Expr y = sine_loop(root_, x, 2);
  const double expected = std::sin(std::sin(0.5));
  EXPECT_NEAR(run_number({{x, num(0.5)}}, y), expected, 1e-12);
  Result<std::shared_ptr<Callable>> callable = session_->make_callable({x}, {y});
  ASSERT_TRUE(callable.ok()) << callable.status().to_string();

  Gradient g = gradient(y, x);
  EXPECT_NEAR(run_number({{x, num(0.5)}}, g.values), std::cos(0.5) * std::cos(std::sin(0.5)),
              1e-12);
  EXPECT_NEAR(run_number({{x, num(0.5)}}, y), expected, 1e-12);
  std::vector<Tensor> out;
  const Tensor feed[] = {num(0.5)};
  const Status again = (*callable)->run(feed, out);
  ASSERT_TRUE(again.ok()) << again.to_string();
  EXPECT_NEAR(out[0].data<double>()[0], expected, 1e-12);
  // And of the gradient, now that it has run.
  EXPECT_NEAR(run_number({{x, num(0.5)}}, gradient(g.values, x).values),
              -std::sin(0.5) * std::cos(std::sin(0.5)) -
                  std::cos(0.5) * std::sin(std::sin(0.5)) * std::cos(0.5),
              1e-12);
}

}  // namespace
}  // namespace millrace
