#include <algorithm>
#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/training/optimizer_testing.h"

namespace millrace {
namespace {

using ApplyTest = OptimizerTest;

TEST_F(ApplyTest, EveryOptimizerTypeAndKindOfVariable) {
  for (const OptimizerCase& c : optimizer_cases()) {
    for (DType dtype : kDtypes) {
      for (int64_t n : {0, 1, 3, 17, 1000}) {
        SCOPED_TRACE(str_cat(c.name, " ", dtype, " ", n));
        std::vector<Numbers> expected = random_slots(c, n);
        const Numbers grad = random_gradient(n);
        std::vector<Tensor> slots;
        for (const Numbers& slot : expected) slots.push_back(make_tensor(dtype, {n}, slot));
        for (size_t i = 0; i < grad.size(); ++i) {
          std::vector<double> element;
          for (auto& slot : expected) element.push_back(slot[i].real());
          c.step(element, c.scalars, grad[i].real());
          for (size_t k = 0; k < element.size(); ++k) expected[k][i] = element[k];
        }
        for (char form : {'a', 'r'}) {
          if (!c.has(form)) continue;
          Result<std::vector<Tensor>> after =
              run_form(c, form, slots, make_tensor(dtype, {n}, grad));
          ASSERT_TRUE(after.ok()) << after.status().to_string();
          expect_near(*after, expected);
        }
      }
    }
  }
}

// Every op of the table is tested by a case and the other way round.
TEST_F(ApplyTest, EveryOptimizerHasACase) {
  for (const OpDef* op : OpRegistry::global().list()) {
    const size_t apply = op->name.find("Apply");
    if (apply == std::string::npos) continue;
    const std::string name = op->name.substr(apply + 5);
    if (name == "Lamb") continue;  // not elementwise: see below
    bool found = false;
    for (const OptimizerCase& c : optimizer_cases()) {
      if (c.name != name) continue;
      for (char form : c.forms) found |= c.op(form) == op->name;
    }
    EXPECT_TRUE(found) << op->name << " has no case";
  }
  for (const OptimizerCase& c : optimizer_cases()) {
    for (char form : c.forms) EXPECT_NE(OpRegistry::global().find(c.op(form)), nullptr);
  }
}

// Lamb's arguments are AdamW's.
OptimizerCase lamb() {
  OptimizerCase c = optimizer_case("AdamW");
  c.name = "Lamb";
  return c;
}

TEST_F(ApplyTest, Lamb) {
  const OptimizerCase c = lamb();
  const double rate = c.scalars[2], beta1 = c.scalars[3], beta2 = c.scalars[4];
  for (DType dtype : kDtypes) {
    for (int64_t n : {0, 1, 15, 1000, 70'001}) {
      for (bool zero : {false, true}) {
        SCOPED_TRACE(str_cat(dtype, " ", n, " ", zero));
        std::vector<Numbers> expected = random_slots(c, n);
        // Of zero norm there is no ratio.
        if (zero) std::fill(expected[0].begin(), expected[0].end(), 0.0);
        const Numbers grad = random_gradient(n);
        std::vector<Tensor> slots;
        for (const Numbers& slot : expected) slots.push_back(make_tensor(dtype, {n}, slot));
        std::vector<double> direction;
        double var_square = 0, direction_square = 0;
        for (size_t i = 0; i < grad.size(); ++i) {
          const double var = expected[0][i].real(), g = grad[i].real();
          const double m = beta1 * expected[1][i].real() + (1 - beta1) * g;
          const double v = beta2 * expected[2][i].real() + (1 - beta2) * g * g;
          direction.push_back(m / (1 - c.scalars[0]) /
                                  (std::sqrt(v / (1 - c.scalars[1])) + c.scalars[5]) +
                              c.scalars[6] * var);
          var_square += var * var;
          direction_square += direction[i] * direction[i];
          expected[1][i] = m;
          expected[2][i] = v;
        }
        const double ratio = var_square == 0 ? 1 : std::sqrt(var_square / direction_square);
        for (size_t i = 0; i < grad.size(); ++i) expected[0][i] -= rate * ratio * direction[i];
        for (char form : {'a', 'r'}) {
          Result<std::vector<Tensor>> after =
              run_form(c, form, slots, make_tensor(dtype, {n}, grad));
          ASSERT_TRUE(after.ok()) << after.status().to_string();
          expect_near(*after, expected);
        }
      }
    }
  }
}

TEST_F(ApplyTest, ResultsDoNotDependOnThreads) {
  constexpr int64_t kElements = 300'001;
  for (const OptimizerCase& c : {optimizer_case("Adam"), optimizer_case("GradientDescent"),
                                 optimizer_case("Ftrl"), lamb()}) {
    std::vector<Tensor> slots;
    for (int k = 0; k < c.num_slots; ++k) {
      slots.push_back(Tensor::allocate(DType::kFloat, {kElements}).value());
      for (float& x : slots.back().mutable_data<float>()) {
        x = 0.1F + static_cast<float>(random_() % 997) * 0.37F;
      }
    }
    std::vector<Tensor> one = run_form(c, 'a', slots, slots[0], Tensor(), 1).value();
    expect_same(run_form(c, 'a', slots, slots[0], Tensor(), 4).value(), one);
    expect_same(run_form(c, 'r', slots, slots[0], Tensor(), 3).value(), one);
  }
}

TEST_F(ApplyTest, BadInput) {
  const Tensor two = Tensor::vector<float>({1, 2}), three = Tensor::vector<float>({1, 2, 3});
  const Tensor rate = Tensor::scalar(0.5F);
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

// Arguments that the formula has no answer for.
TEST_F(ApplyTest, ArgumentsOutOfRange) {
  struct Bad {
    size_t scalar;
    double value;
    const char* message;
  };
  const auto run_with = [&](const char* name, bool flag, const Bad& bad) {
    OptimizerCase c = optimizer_case(name);
    c.scalars[bad.scalar] = bad.value;
    c.flag_value = flag;
    const std::vector<Tensor> slots(static_cast<size_t>(c.num_slots), Tensor::vector<float>({1}));
    return run_form(c, 'r', slots, Tensor::vector<float>({1})).status();
  };
  for (const Bad& bad :
       {Bad{0, 0, "lr must be positive, got 0"}, Bad{0, NAN, "lr must be positive"},
        Bad{1, -1, "l1 must be zero or positive, got -1"},
        Bad{2, -0.5, "l2 must be zero or positive, got -0.5"}}) {
    expect_error(run_with("Ftrl", false, bad), Code::kInvalidArgument, bad.message);
    expect_error(run_with("ProximalAdagrad", false, bad), Code::kInvalidArgument, bad.message);
  }
  expect_error(run_with("Ftrl", false, {3, 0.5, ""}), Code::kInvalidArgument,
               "lr_power must be zero or negative, got 0.5");
  expect_error(run_with("FtrlV2", false, {3, -1, ""}), Code::kInvalidArgument,
               "l2_shrinkage must be zero or positive, got -1");
  EXPECT_TRUE(run_with("Ftrl", true, {0, 0, ""}).ok());
  EXPECT_FALSE(run_with("Ftrl", true, {0, -1, ""}).ok());
}

TEST_F(ApplyTest, ReadersKeepWhatTheyRead) {
  const Tensor v = variable("v", Tensor::vector<float>({1, 2}));
  const Tensor before = read(v).value();
  ASSERT_TRUE(op("ResourceApplyGradientDescent")
                  .input(v)
                  .input(Tensor::scalar(1.0F))
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
  EXPECT_EQ(*infer_shapes(ops, "ApplyAdagradDA", {}, "?;?;?;[4];[];[];[];[]"), "[4]");
  EXPECT_FALSE(infer_shapes(ops, "ApplyAdagradDA", {}, "?;?;?;[4];[];[];[];[1]").ok());
  EXPECT_EQ(*infer_shapes(ops, "ResourceApplyMomentum", {}, "[];[];[];[2];[]"), "");
  EXPECT_FALSE(infer_shapes(ops, "ResourceApplyMomentum", {}, "[];[];[1];[2];[]").ok());
}

}  // namespace
}  // namespace millrace
