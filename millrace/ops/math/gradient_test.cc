#include "millrace/graph/gradient.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/kernel/eager_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

// Gradient rules against differences: rules are run by a builder that computes every op at once.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops, register_math_ops});

using C = Complex128;

// The gradients of sum(real(conj(dy) * op(inputs))) with respect to the inputs, by the op's rule.
std::vector<std::vector<C>> by_rule(const char* op, const std::vector<Tensor>& inputs,
                                    const Tensor& dy) {
  EagerBuilder builder;
  std::vector<Expr> in;
  std::vector<DType> types;
  for (const Tensor& t : inputs) in.push_back(builder.constant(t)), types.push_back(t.dtype());
  const std::vector<Expr> out = builder.emit(op, in, {});
  const AttrMap attrs;
  GradientContext context(builder, in, out, {builder.constant(dy)}, attrs, types);
  EXPECT_TRUE(OpRegistry::global().find(op)->gradient(context).ok());
  EXPECT_TRUE(builder.status().ok()) << op << ": " << builder.status().to_string();
  std::vector<std::vector<C>> gradients;
  for (const Gradient& g : context.input_gradients()) {
    EXPECT_TRUE(g.values.valid()) << op;
    if (builder.status().ok() && g.values.valid())
      gradients.push_back(values_of(builder.tensor(g.values)));
  }
  return gradients;
}

double objective(const char* op, const std::vector<Tensor>& inputs, const Tensor& dy) {
  OpTester tester(op);
  for (const Tensor& t : inputs) tester.input(t);
  const std::vector<C> y = values_of(tester.run_one().value()), g = values_of(dy);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += (std::conj(g[i]) * y[i]).real();
  return sum;
}

// The same by central differences; the gradient of a complex number is d/d(re) + i d/d(im).
std::vector<C> by_differences(const char* op, std::vector<Tensor> inputs, size_t k,
                              const Tensor& dy) {
  constexpr double kStep = 1e-6;
  const DType dtype = inputs[k].dtype();
  const Shape shape = inputs[k].shape();
  const std::vector<C> x = values_of(inputs[k]);
  std::vector<C> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    for (C direction : {C(1), C(0, 1)}) {
      if (dtype == DType::kDouble && direction.imag() != 0) continue;
      double ends[2];
      for (int side : {0, 1}) {
        std::vector<C> moved = x;
        moved[i] += (side == 0 ? -kStep : kStep) * direction;
        inputs[k] = make_tensor(dtype, shape, moved);
        ends[side] = objective(op, inputs, dy);
      }
      gradient[i] += (ends[1] - ends[0]) / (2 * kStep) * direction;
    }
  }
  return gradient;
}

void check(const char* op, const std::vector<Tensor>& inputs, const Tensor& dy) {
  SCOPED_TRACE(op);
  const std::vector<std::vector<C>> gradients = by_rule(op, inputs, dy);
  ASSERT_EQ(gradients.size(), inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<C> wanted = by_differences(op, inputs, k, dy);
    ASSERT_EQ(gradients[k].size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(std::abs(gradients[k][i] - wanted[i]), 1e-7 * (1 + std::abs(wanted[i])))
          << "input " << k << ": " << gradients[k][i] << ", expected " << wanted[i];
    }
  }
}

TEST(Gradients, UnaryOfReals) {
  const Tensor dy = make_tensor(DType::kDouble, {3}, {1, -2, 3});
  const Tensor any = make_tensor(DType::kDouble, {3}, {-1.7, 0.3, 2.2});
  const Tensor positive = make_tensor(DType::kDouble, {3}, {0.2, 0.7, 3});
  const Tensor small = make_tensor(DType::kDouble, {3}, {-0.6, 0.1, 0.8});
  for (const char* op :
       {"Abs", "Atan",     "Cos",        "Elu",    "Erf",   "Erfc", "Exp",     "Expm1",
        "Inv", "Neg",      "Reciprocal", "Relu",   "Relu6", "Selu", "Sigmoid", "Sign",
        "Sin", "Softplus", "Softsign",   "Square", "Tan",   "Tanh"}) {
    check(op, {any}, dy);
  }
  for (const char* op : {"Log", "Log1p", "Rsqrt", "Sqrt"}) check(op, {positive}, dy);
  for (const char* op : {"Acos", "Asin"}) check(op, {small}, dy);
}

TEST(Gradients, UnaryOfComplexNumbers) {
  const Tensor dy = make_tensor(DType::kComplex128, {2}, {C(1, 2), C(-0.5, 1)});
  const Tensor x = make_tensor(DType::kComplex128, {2}, {C(0.4, 0.7), C(1.1, -0.3)});
  for (const char* op : {"Conj", "Cos", "Exp", "Expm1", "Inv", "Log", "Log1p", "Neg", "Reciprocal",
                         "Rsqrt", "Sigmoid", "Sin", "Sqrt", "Square", "Tan", "Tanh"}) {
    check(op, {x}, dy);
  }
}

TEST(Gradients, Binary) {
  const Tensor dy = make_tensor(DType::kDouble, {3}, {1, -2, 3});
  const Tensor x = make_tensor(DType::kDouble, {3}, {0.3, 1.3, 2.5});
  const Tensor y = make_tensor(DType::kDouble, {3}, {1.7, 0.4, 0.9});
  for (const char* op : {"Add", "AddV2", "Div", "FloorMod", "Maximum", "Minimum", "Mod", "Mul",
                         "Pow", "RealDiv", "SquaredDifference", "Sub", "TruncateMod"}) {
    check(op, {x, y}, dy);
  }
}

TEST(Gradients, BinaryOfComplexNumbers) {
  const Tensor dy = make_tensor(DType::kComplex128, {2}, {C(1, 2), C(-0.5, 1)});
  const Tensor x = make_tensor(DType::kComplex128, {2}, {C(0.4, 0.7), C(1.1, -0.3)});
  const Tensor y = make_tensor(DType::kComplex128, {2}, {C(1.4, 0.2), C(0.6, 0.5)});
  for (const char* op : {"Add", "Div", "Mul", "Pow", "RealDiv", "Sub"}) check(op, {x, y}, dy);
}

TEST(Gradients, OfBackwardOps) {
  const Tensor dy = make_tensor(DType::kDouble, {3}, {1, -2, 3});
  const Tensor a = make_tensor(DType::kDouble, {3}, {0.3, 0.8, 0.5});
  const Tensor b = make_tensor(DType::kDouble, {3}, {1.7, -0.4, 0.9});
  for (const char* op :
       {"EluGrad", "InvGrad", "ReciprocalGrad", "Relu6Grad", "ReluGrad", "RsqrtGrad", "SeluGrad",
        "SigmoidGrad", "SoftplusGrad", "SoftsignGrad", "SqrtGrad", "TanhGrad"}) {
    check(op, {a, b}, dy);
  }
}

TEST(Gradients, PowOfZeroAndNegativeBasesHasNoNan) {
  const Tensor x = make_tensor(DType::kDouble, {2}, {0, -2}),
               y = make_tensor(DType::kDouble, {2}, {2, 2});
  const auto gradients = by_rule("Pow", {x, y}, make_tensor(DType::kDouble, {2}, {1, 1}));
  EXPECT_EQ(gradients[0], (std::vector<C>{0, -4}));
  EXPECT_EQ(gradients[1], (std::vector<C>{0, 0}));
}

TEST(Gradients, RoundingHasNone) {
  for (const char* op : {"Ceil", "Floor", "FloorDiv", "Rint", "Round", "TruncateDiv"}) {
    EXPECT_TRUE(OpRegistry::global().find(op)->traits.cannot_differentiate) << op;
  }
}

}  // namespace
}  // namespace millrace
