// The gradient rules behind a builder that runs every operation at once: a tape remembers what ran
// and calls the same rules backwards. Programs written once must have the same gradients here and
// in a graph, first and second order.

#include <gtest/gtest.h>

#include <map>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/rule_programs_testing.h"
#include "millrace/graph/graph_builder.h"
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

Result<std::vector<Tensor>> on_a_tape(const RuleProgram& c, EagerBuilder::Shapes shapes) {
  Tape tape(shapes);
  Exprs xs;
  for (const Tensor& point : c.points()) xs.push_back(tape.constant(point));
  MR_TRY_ASSIGN(Exprs all, rule_derivatives(tape, c, xs, [&](Expr y, const Exprs& by) {
                  return tape.gradients_of(y, by);
                }));
  std::vector<Tensor> out;
  for (Expr e : all) out.push_back(tape.tensor(e));
  return out;
}

class EagerRules : public testing::TestWithParam<RuleProgram> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  void compare(EagerBuilder::Shapes shapes) {
    Result<std::vector<Tensor>> graph = rule_derivatives_in_graph(GetParam());
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

INSTANTIATE_TEST_SUITE_P(All, EagerRules,
                         testing::ValuesIn(rule_programs().begin(), rule_programs().end()),
                         [](const testing::TestParamInfo<RuleProgram>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace millrace
