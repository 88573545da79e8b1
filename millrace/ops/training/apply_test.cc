#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

// One element of an optimiser as its paper has it: slots and scalars in the op's order.
struct Case {
  const char* name;
  int num_slots;
  std::vector<double> scalars;
  int gradient_place;  // among the arguments after the slots
  const char* flag;
  bool flag_value;
  void (*step)(std::vector<double>& slot, const std::vector<double>& s, double g);
};

void descend(std::vector<double>& v, const std::vector<double>& s, double g) { v[0] -= s[0] * g; }
void momentum(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[1] = s[1] * v[1] + g;
  v[0] -= s[0] * v[1];
}
void nesterov(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[1] = s[1] * v[1] + g;
  v[0] -= s[0] * (g + s[1] * v[1]);
}
void adagrad(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[1] += g * g;
  v[0] -= s[0] * g / std::sqrt(v[1]);
}
void adagrad_fixed(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[0] -= s[0] * g / std::sqrt(v[1]);
}
void adam_with(std::vector<double>& v, const std::vector<double>& s, double g, bool nadam) {
  v[1] = s[3] * v[1] + (1 - s[3]) * g;
  v[2] = s[4] * v[2] + (1 - s[4]) * g * g;
  const double m = nadam ? s[3] * v[1] + (1 - s[3]) * g : v[1];
  v[0] -= s[2] * std::sqrt(1 - s[1]) / (1 - s[0]) * m / (std::sqrt(v[2]) + s[5]);
}
void adam(std::vector<double>& v, const std::vector<double>& s, double g) {
  adam_with(v, s, g, false);
}
void nadam(std::vector<double>& v, const std::vector<double>& s, double g) {
  adam_with(v, s, g, true);
}
void rms_prop(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[1] = s[1] * v[1] + (1 - s[1]) * g * g;
  v[2] = s[2] * v[2] + s[0] * g / std::sqrt(v[1] + s[3]);
  v[0] -= v[2];
}
void centered(std::vector<double>& v, const std::vector<double>& s, double g) {
  v[1] = s[1] * v[1] + (1 - s[1]) * g;
  v[2] = s[1] * v[2] + (1 - s[1]) * g * g;
  v[3] = s[2] * v[3] + s[0] * g / std::sqrt(v[2] - v[1] * v[1] + s[3]);
  v[0] -= v[3];
}

const std::vector<Case>& cases() {
  static const auto* all = new std::vector<Case>{
      {"GradientDescent", 1, {0.25}, 1, nullptr, false, descend},
      {"Momentum", 2, {0.25, 0.5}, 1, "use_nesterov", false, momentum},
      {"Momentum", 2, {0.25, 0.5}, 1, "use_nesterov", true, nesterov},
      {"Adagrad", 2, {0.25}, 1, "update_slots", true, adagrad},
      {"Adagrad", 2, {0.25}, 1, "update_slots", false, adagrad_fixed},
      {"Adam", 3, {0.5, 0.75, 0.25, 0.5, 0.75, 0.125}, 6, "use_nesterov", false, adam},
      {"Adam", 3, {0.5, 0.75, 0.25, 0.5, 0.75, 0.125}, 6, "use_nesterov", true, nadam},
      {"RMSProp", 3, {0.25, 0.5, 0.75, 0.125}, 4, nullptr, false, rms_prop},
      {"CenteredRMSProp", 4, {0.25, 0.5, 0.75, 32}, 4, nullptr, false, centered},
  };
  return *all;
}

class ApplyTest : public StateTest {
 protected:
  // Adds scalars and gradient after the slots.
  static void add_arguments(OpTester& tester, const Case& c, DType dtype, const Tensor& grad) {
    for (size_t i = 0; i <= c.scalars.size(); ++i) {
      if (static_cast<int>(i) == c.gradient_place) tester.input(grad);
      if (i < c.scalars.size()) tester.input(make_tensor(dtype, {}, {c.scalars[i]}));
    }
    if (c.flag != nullptr) tester.attr(c.flag, c.flag_value);
  }
};

TEST_F(ApplyTest, EveryOptimizerTypeAndKindOfVariable) {
  std::mt19937 random(7);
  for (const Case& c : cases()) {
    for (DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
      for (int64_t n : {0, 1, 3, 17, 1000, 70000}) {
        SCOPED_TRACE(str_cat(c.name, " ", dtype, " ", n));
        std::vector<std::vector<Complex128>> before(static_cast<size_t>(c.num_slots)), after;
        std::vector<Complex128> grad;
        for (int64_t i = 0; i < n; ++i) {
          for (auto& slot : before) slot.push_back(static_cast<double>(random() % 32 + 1) / 8);
          grad.push_back(static_cast<double>(random() % 33) / 8 - 2);
        }
        after = before;
        for (size_t i = 0; i < grad.size(); ++i) {
          std::vector<double> slots;
          for (auto& slot : before) slots.push_back(slot[i].real());
          c.step(slots, c.scalars, grad[i].real());
          for (size_t k = 0; k < slots.size(); ++k) after[k][i] = slots[k];
        }
        const Tensor gradient = make_tensor(dtype, {n}, grad);
        OpTester by_reference = op(str_cat("Apply", c.name));
        OpTester by_resource = op(str_cat("ResourceApply", c.name));
        std::vector<Ref<RefCell>> cells;
        std::vector<Tensor> resources;
        for (size_t k = 0; k < before.size(); ++k) {
          cells.push_back(make_ref_cell(make_tensor(dtype, {n}, before[k])));
          by_reference.input_ref(cells.back());
          resources.push_back(variable(str_cat(dtype, k), make_tensor(dtype, {n}, before[k])));
          by_resource.input(resources.back());
        }
        add_arguments(by_reference, c, dtype, gradient);
        add_arguments(by_resource, c, dtype, gradient);
        Result<std::vector<Value>> out = by_reference.run_values();
        ASSERT_TRUE(out.ok()) << out.status().to_string();
        EXPECT_EQ((*out)[0].cell, cells[0]);
        Status status = by_resource.run().status();
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (size_t k = 0; k < before.size(); ++k) {
          const Tensor got = cells[k]->read();
          expect_equal(read(resources[k], dtype), got);
          const std::vector<Complex128> values = values_of(got);
          for (size_t i = 0; i < values.size(); ++i) {
            // Relative to the larger operands: the difference may be near zero.
            const double bound = 8 * tolerance_of(dtype) * (std::abs(after[k][i]) + 4);
            ASSERT_NEAR(values[i].real(), after[k][i].real(), bound) << "slot " << k << " " << i;
          }
        }
      }
    }
  }
}

TEST_F(ApplyTest, ResultsDoNotDependOnThreads) {
  Tensor start = Tensor::allocate(DType::kFloat, {300'001}).value();
  for (size_t i = 0; float& x : start.mutable_data<float>()) {
    x = 0.1f + static_cast<float>(i++ % 997) * 0.37f;
  }
  std::vector<Tensor> results;
  for (int threads : {1, 4}) {
    Ref<RefCell> var = make_ref_cell(start.clone().value()),
                 m = make_ref_cell(start.clone().value()), v = make_ref_cell(start.clone().value());
    OpTester tester = op("ApplyAdam");
    tester.threads(threads).input_ref(var).input_ref(m).input_ref(v);
    add_arguments(tester, cases()[5], DType::kFloat, start);
    results.push_back(tester.run_one().value());
  }
  EXPECT_TRUE(bit_equal(results[0], results[1]));
}

TEST_F(ApplyTest, BadInput) {
  const Tensor two = Tensor::vector<float>({1, 2}), three = Tensor::vector<float>({1, 2, 3});
  const Tensor rate = Tensor::scalar(0.5f);
  Ref<RefCell> var = make_ref_cell(two), accum = make_ref_cell(two.clone().value()),
               none = make_ref_cell();
  none->name = "none";
  expect_error(op("ApplyGradientDescent").input_ref(var).input(two).input(two).run(),
               Code::kInvalidArgument, "alpha is not a scalar: [2]");
  expect_error(op("ApplyGradientDescent").input_ref(var).input(rate).input(three).run(),
               Code::kInvalidArgument, "var and delta do not have the same shape: [2] [3]");
  expect_error(op("ApplyGradientDescent").input_ref(none).input(rate).input(two).run(),
               Code::kFailedPrecondition, "uninitialized value none");
  expect_error(op("ApplyAdagrad").input_ref(var).input_ref(none).input(rate).input(two).run(),
               Code::kFailedPrecondition, "uninitialized value none");
  expect_error(op("ApplyAdagrad").input_ref(var).input_ref(var).input(rate).input(two).run(),
               Code::kInvalidArgument, "inputs 0 and 1 must be different variables");
  Ref<RefCell> longer = make_ref_cell(three);
  expect_error(op("ApplyAdagrad").input_ref(var).input_ref(longer).input(rate).input(two).run(),
               Code::kInvalidArgument, "accum and grad do not have the same shape: [3] [2]");
  const Tensor resource = variable("v", two);
  expect_error(op("ResourceApplyGradientDescent").input(handle("w")).input(rate).input(two).run(),
               Code::kFailedPrecondition, "variable w");
  expect_error(
      op("ResourceApplyAdagrad").input(resource).input(resource).input(rate).input(two).run(),
      Code::kInvalidArgument, "different variables");
  expect_error(op("ResourceApplyGradientDescent")
                   .input(resource)
                   .input(Tensor::scalar(0.5))
                   .input(Tensor::vector<double>({1, 2}))
                   .run(),
               Code::kInvalidArgument, "holds float, this op expects double");
  expect_equal(read(resource), two);
}

TEST_F(ApplyTest, ReadersKeepWhatTheyRead) {
  const Tensor v = variable("v", Tensor::vector<float>({1, 2}));
  const Tensor before = read(v).value();
  ASSERT_TRUE(op("ResourceApplyGradientDescent")
                  .input(v)
                  .input(Tensor::scalar(1.0f))
                  .input(Tensor::vector<float>({1, 1}))
                  .run()
                  .ok());
  expect_equal(before, Tensor::vector<float>({1, 2}));
  expect_equal(read(v), Tensor::vector<float>({0, 1}));
}

TEST_F(ApplyTest, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "ApplyGradientDescent", {}, "[2,?];[];[?,3]"), "[2,3]");
  EXPECT_FALSE(infer_shapes(ops, "ApplyGradientDescent", {}, "[2];[1];[2]").ok());
  EXPECT_FALSE(infer_shapes(ops, "ApplyGradientDescent", {}, "[2];[];[3]").ok());
  EXPECT_EQ(*infer_shapes(ops, "ApplyMomentum", {}, "[2];?;[];[2];[]"), "[2]");
  EXPECT_FALSE(infer_shapes(ops, "ApplyMomentum", {}, "[2];[3];[];[2];[]").ok());
  EXPECT_EQ(*infer_shapes(ops, "ApplyAdam", {}, "?;?;?;[];[];[];[];[];[];[4]"), "[4]");
  EXPECT_EQ(*infer_shapes(ops, "ResourceApplyMomentum", {}, "[];[];[];[2];[]"), "");
  EXPECT_FALSE(infer_shapes(ops, "ResourceApplyMomentum", {}, "[];[];[1];[2];[]").ok());
}

}  // namespace
}  // namespace millrace
