// The gradient rules on a tape: programs written once have the same values and gradients, of first
// and second order, to the bit, here and in a session.

#include "millrace/autodiff/rule_programs_testing.h"
#include "millrace/eager/builder.h"
#include "millrace/eager/context_testing.h"
#include "millrace/eager/tape.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace::eager {
namespace {

class RulesOnTape : public EagerTest, public testing::WithParamInterface<RuleProgram> {
 protected:
  Result<std::vector<Tensor>> on_tape(const RuleProgram& program) {
    Builder b(*context_);
    Tape tape({.persistent = true});
    tape.start();
    std::vector<Expr> xs;
    std::vector<TensorRef> points;
    for (const Tensor& point : program.points()) {
      points.push_back(context_->tensor(point));
      tape.watch(*points.back());
      xs.push_back(b.expr(points.back()));
    }
    const auto gradients_of = [&](Expr y,
                                  const std::vector<Expr>&) -> Result<std::vector<Gradient>> {
      MR_TRY_ASSIGN(TensorRef target, b.tensor(y));
      MR_TRY_ASSIGN(std::vector<EagerGradient> found, tape.gradient(*context_, {target}, points));
      std::vector<Gradient> out;
      for (EagerGradient& g : found) out.push_back(b.gradient(std::move(g)));
      return out;
    };
    MR_TRY_ASSIGN(const std::vector<Expr> all, rule_derivatives(b, program, xs, gradients_of));
    std::vector<Tensor> out;
    for (Expr e : all) {
      MR_TRY_ASSIGN(const TensorRef value, b.tensor(e));
      out.push_back(value->tensor());
    }
    return out;
  }
};

TEST_P(RulesOnTape, GiveTheBitsThatASessionGives) {
  const Result<std::vector<Tensor>> graph = rule_derivatives_in_graph(GetParam());
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const Result<std::vector<Tensor>> tape = on_tape(GetParam());
  ASSERT_TRUE(tape.ok()) << tape.status().to_string();
  ASSERT_EQ(graph->size(), tape->size());
  for (size_t i = 0; i < graph->size(); ++i) {
    EXPECT_TRUE(bit_equal((*graph)[i], (*tape)[i]))
        << "tensor " << i << ": " << (*graph)[i].to_string() << " in the session, "
        << (*tape)[i].to_string() << " on the tape";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RulesOnTape,
                         testing::ValuesIn(rule_programs().begin(), rule_programs().end()),
                         [](const testing::TestParamInfo<RuleProgram>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace millrace::eager
