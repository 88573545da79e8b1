// The gradient rules behind a builder that runs every operation at once: a tape remembers what ran
// and calls the same rules backwards. Programs written once must have the same gradients here and
// in a graph, first and second order.

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/graph/op_registry.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

// Runs operations and remembers them, those of gradients too.
class Tape final : public OpBuilder {
 public:
  explicit Tape(EagerBuilder::Shapes shapes) { eager_.shapes = shapes; }

  Exprs emit(std::string_view op, Exprs inputs, AttrMap attrs) override {
    Record record{.inputs = inputs};
    for (Expr input : inputs) {
      if (!input.valid()) return {};
      record.types.push_back(input.dtype());
    }
    Status status = complete(op, record, attrs);
    if (!status.ok()) {
      fail(status);
      return {};
    }
    for (Expr& input : inputs) input = Expr(&eager_, input.id(), 0);
    for (Expr output : eager_.emit(op, inputs, attrs)) record.outputs.push_back(own(output));
    if (!eager_.status().ok()) return {};
    records_.push_back(std::move(record));
    return records_.back().outputs;
  }
  Expr constant(const Tensor& value) override { return own(eager_.constant(value)); }
  DType dtype(Expr e) const override { return tensor(e).dtype(); }
  PartialShape shape(Expr e) const override { return eager_.shape(e); }
  const Status& status() const override { return eager_.status(); }
  void fail(Status error) override { eager_.fail(std::move(error)); }

  const Tensor& tensor(Expr e) const { return eager_.tensor(e); }

  // Of the sum of y; invalid where there is none.
  Result<std::vector<Gradient>> gradients_of(Expr y, const Exprs& xs) {
    std::map<int64_t, std::vector<Gradient>> found;
    found[y.id()] = {{ones_like(y), {}, {}}};
    for (size_t i = records_.size(); i-- > 0;) {
      // Rules add records: those before stay where they are.
      const Record record = records_[i];
      bool any = false;
      GradientContext context(*this, record.inputs, record.outputs, Exprs(record.outputs.size()),
                              record.attrs, record.types);
      for (size_t k = 0; k < record.outputs.size(); ++k) {
        Gradient gradient = sum_gradients(found[record.outputs[k].id()]);
        any |= gradient.valid();
        context.set_output_gradient(static_cast<int>(k), gradient);
      }
      if (!any || record.def->traits.cannot_differentiate) continue;
      if (record.def->gradient == nullptr) return not_found(record.def->name, " has no gradient");
      MR_TRY(record.def->gradient(context));
      MR_TRY(status());
      for (size_t k = 0; k < record.inputs.size(); ++k) {
        const Gradient& gradient = context.input_gradients()[k];
        if (gradient.valid() && has_gradients(record.types[k])) {
          found[record.inputs[k].id()].push_back(gradient);
        }
      }
    }
    std::vector<Gradient> out;
    for (Expr x : xs) out.push_back(sum_gradients(found[x.id()]));
    MR_TRY(status());
    return out;
  }

 private:
  struct Record {
    const OpDef* def = nullptr;
    AttrMap attrs = {};
    Exprs inputs = {}, outputs = {};
    std::vector<DType> types = {};
  };

  Status complete(std::string_view op, Record& record, AttrMap& attrs) const {
    MR_TRY_ASSIGN(record.def, OpRegistry::global().lookup(op));
    MR_TRY(infer_type_attrs(*record.def, record.types, attrs));
    MR_TRY(check_attrs(*record.def, attrs));
    record.attrs = attrs;
    return ok_status();
  }
  Expr own(Expr e) { return Expr(this, e.id(), e.index()); }

  EagerBuilder eager_;
  std::vector<Record> records_;
};

struct Case {
  const char* name;
  std::vector<Shape> shapes;
  Expr (*f)(OpBuilder&, const Exprs&);
};

Expr ints(OpBuilder& b, std::initializer_list<int32_t> values) { return int32_vector(b, values); }

const Case kCases[] = {
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

std::vector<Tensor> points(const Case& c) {
  std::vector<Tensor> out;
  for (const Shape& shape : c.shapes) {
    out.push_back(random_tensor(DType::kDouble, shape, out.size() + 7));
  }
  return out;
}

// y, its gradients, and those of the sum of squares of its gradients: by whatever computes
// gradients.
using GradientsOf = std::function<Result<std::vector<Gradient>>(Expr, const Exprs&)>;
Result<Exprs> derivatives(OpBuilder& builder, const Case& c, const Exprs& xs,
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

Result<std::vector<Tensor>> in_a_graph(const Case& c) {
  Scope root = Scope::make_root();
  ClientSession::Feeds feeds;
  Exprs xs;
  for (const Tensor& point : points(c)) {
    xs.push_back(ops::placeholder(root, point.dtype(), {.shape = point.shape()}));
    feeds.emplace_back(xs.back(), point);
  }
  MR_TRY_ASSIGN(Exprs all, derivatives(root.builder(), c, xs, [&](Expr y, const Exprs& by) {
                  return gradients(root.builder(), std::span(&y, 1), by);
                }));
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  return session.run(feeds, all);
}

Result<std::vector<Tensor>> on_a_tape(const Case& c, EagerBuilder::Shapes shapes) {
  Tape tape(shapes);
  Exprs xs;
  for (const Tensor& point : points(c)) xs.push_back(tape.constant(point));
  MR_TRY_ASSIGN(Exprs all, derivatives(tape, c, xs, [&](Expr y, const Exprs& by) {
                  return tape.gradients_of(y, by);
                }));
  std::vector<Tensor> out;
  for (Expr e : all) out.push_back(tape.tensor(e));
  return out;
}

class EagerRules : public testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  void compare(EagerBuilder::Shapes shapes) {
    Result<std::vector<Tensor>> graph = in_a_graph(GetParam());
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    Result<std::vector<Tensor>> tape = on_a_tape(GetParam(), shapes);
    ASSERT_TRUE(tape.ok()) << tape.status().to_string();
    ASSERT_EQ(graph->size(), tape->size());
    for (size_t i = 0; i < graph->size(); ++i) {
      SCOPED_TRACE(str_cat("tensor ", i));
      expect_tensor_close((*tape)[i], (*graph)[i], 1e-12, 1e-12);
    }
  }
};

TEST_P(EagerRules, GiveWhatTheyGiveInAGraph) { compare(EagerBuilder::Shapes::kKnown); }
TEST_P(EagerRules, NeedNoShapes) { compare(EagerBuilder::Shapes::kUnknown); }

INSTANTIATE_TEST_SUITE_P(All, EagerRules, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace millrace
