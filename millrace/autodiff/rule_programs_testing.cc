#include "millrace/autodiff/rule_programs_testing.h"

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {

using Exprs = std::vector<Expr>;

namespace {

Expr ints(OpBuilder& b, std::initializer_list<int32_t> values) { return int32_vector(b, values); }

const RuleProgram kPrograms[] = {
    {"Polynomial", {{2, 3}}, [](OpBuilder&, const Exprs& x) { return x[0] * x[0] * 3.0 - x[0]; }},
    {"Broadcasting",
     {{2, 1}, {3}, {}},
     [](OpBuilder&, const Exprs& x) { return sin(x[0] * x[1]) / (square(x[2]) + 1.0) + x[1]; }},
    {"DenseLayer",
     {{2, 3}, {3, 4}, {4}},
     [](OpBuilder&, const Exprs& x) {
       return call("Softmax", {tanh(call("BiasAdd", {matmul(x[0], x[1]), x[2]}))});
     }},
    {"CrossEntropy",
     {{3, 4}},
     [](OpBuilder& b, const Exprs& x) {
       Expr labels = ints(b, {0, 3, 1});
       Exprs out = call_multi("SparseSoftmaxCrossEntropyWithLogits", {x[0], labels});
       return out.empty() ? Expr() : out[0];
     }},
    {"Reductions",
     {{2, 3}},
     [](OpBuilder& b, const Exprs& x) {
       Expr mean = call("Mean", {x[0], ints(b, {1})}, {{"keep_dims", true}});
       Expr most = call("Max", {square(x[0]), ints(b, {0})});
       return square(x[0] - mean) * most + call("Prod", {x[0], ints(b, {0, 1})});
     }},
    {"SplitAndConcat",
     {{2, 4}},
     [](OpBuilder& b, const Exprs& x) {
       Exprs parts = call_multi("Split", {int32_scalar(b, 1), x[0]}, {{"num_split", 2}});
       if (parts.empty()) return Expr();
       return concat({parts[1], exp(parts[0]) * parts[1], parts[1]}, 1);
     }},
    {"Rows",
     {{4, 2}},
     [](OpBuilder& b, const Exprs& x) {
       Expr rows = call("GatherV2", {x[0], ints(b, {3, 0, 3}), int32_scalar(b, 0)});
       return square(rows) + call("GatherV2", {x[0], ints(b, {1, 1, 2}), int32_scalar(b, 0)});
     }},
    {"Slices",
     {{3, 4}},
     [](OpBuilder& b, const Exprs& x) {
       Expr part = call("StridedSlice", {x[0], ints(b, {0, 3}), ints(b, {3, 0}), ints(b, {2, -1})});
       return square(part) *
              call("Pad", {part, b.constant(Tensor::of<int32_t>({2, 2}, {0, 0, 0, 0}))});
     }},
    {"Convolution",
     {{1, 4, 4, 2}, {2, 2, 2, 3}},
     [](OpBuilder&, const Exprs& x) {
       Expr y = call("Conv2D", {x[0], x[1]},
                     {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "SAME"}});
       return call("MaxPool", {call("Elu", {y})},
                   {{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
                    {"strides", std::vector<int64_t>{1, 2, 2, 1}},
                    {"padding", "VALID"}});
     }},
    {"Choices",
     {{2, 3}, {2, 3}},
     [](OpBuilder&, const Exprs& x) {
       Expr chosen = select(greater(x[0], x[1]), square(x[0]), sin(x[1]));
       return chosen * call("Maximum", {x[0], x[1]});
     }},
    {"Recurrence",
     {{2, 2}, {2, 2}},
     [](OpBuilder&, const Exprs& x) {
       Expr state = x[0];
       for (int i = 0; i < 4; ++i) state = tanh(matmul(state, x[1]) + x[0]);
       return state;
     }},
    {"Complex",
     {{3}, {3}},
     [](OpBuilder&, const Exprs& x) {
       Expr z = call("Complex", {x[0], x[1]}, {{"Tout", DType::kComplex128}});
       return call("ComplexAbs", {exp(z * z)}, {{"Tout", DType::kDouble}});
     }},
    {"Stopped",
     {{3}},
     [](OpBuilder&, const Exprs& x) { return call("StopGradient", {square(x[0])}) * x[0]; }},
    {"Cumulative",
     {{2, 3}},
     [](OpBuilder& b, const Exprs& x) {
       return call("Cumprod", {x[0], int32_scalar(b, 1)}, {{"exclusive", true}}) *
              call("Cumsum", {sin(x[0]), int32_scalar(b, 0)}, {{"reverse", true}});
     }},
};

}  // namespace

std::span<const RuleProgram> rule_programs() { return kPrograms; }

std::vector<Tensor> RuleProgram::points() const {
  std::vector<Tensor> out;
  for (const Shape& shape : shapes) {
    out.push_back(random_tensor(DType::kDouble, shape, out.size() + 7));
  }
  return out;
}

Result<Exprs> rule_derivatives(OpBuilder& builder, const RuleProgram& c, const Exprs& xs,
                               const GradientsOf& gradients_of) {
  Exprs all = {c.f(builder, xs)};
  Expr target = all[0];
  for (int order = 0; order < 2; ++order) {
    MR_TRY(builder.status());
    MR_TRY_ASSIGN(std::vector<Gradient> found, gradients_of(target, xs));
    Exprs squares;
    for (size_t i = 0; i < xs.size(); ++i) {
      all.push_back(found[i].valid() ? to_dense(found[i]) : zeros_like(xs[i]));
      squares.push_back(
          sum(reshape(square(all.back()), int32_vector(builder, {-1})), int32_scalar(builder, 0)));
    }
    target = call("AddN", squares);
  }
  MR_TRY(builder.status());
  return all;
}

Result<std::vector<Tensor>> rule_derivatives_in_graph(const RuleProgram& c) {
  Scope root = Scope::make_root();
  ClientSession::Feeds feeds;
  Exprs xs;
  for (const Tensor& point : c.points()) {
    xs.push_back(ops::placeholder(root, point.dtype(), {.shape = point.shape()}));
    feeds.emplace_back(xs.back(), point);
  }
  MR_TRY_ASSIGN(Exprs all, rule_derivatives(root.builder(), c, xs, [&](Expr y, const Exprs& by) {
                  return gradients(root.builder(), std::span(&y, 1), by);
                }));
  SessionOptions options;
  options.optimizer_level = 1;
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root, options));
  return session.run(feeds, all);
}

}  // namespace millrace
