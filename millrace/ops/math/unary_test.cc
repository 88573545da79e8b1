#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

using C = Complex128;

// One line per op: its twin for real numbers, the range of inputs, its twin for complex numbers.
struct Row {
  const char* op;
  double (*real)(double);
  double low, high;
  C (*complex)(C) = nullptr;
};

C csign(C x) { return x == 0.0 ? x : x / std::abs(x); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

// The limit of log m - sum of 1 / (x + k), k < m, with what m leaves out.
double digamma_of(double x) {
  long double sum = 0;
  constexpr int kTerms = 2000;
  for (int k = 0; k < kTerms; ++k) sum -= 1 / (static_cast<long double>(x) + k);
  const long double end = static_cast<long double>(x) + kTerms;
  return static_cast<double>(sum + std::log(end) - 0.5L / end - 1 / (12 * end * end));
}

// Where the rising `f` has the value y, by halving.
double inverse_of(double (*f)(double), double y) {
  double low = -10, high = 10;
  for (int step = 0; step < 100; ++step) (f((low + high) / 2) < y ? low : high) = (low + high) / 2;
  return low;
}

// The integral of `f` from `begin` to `end`, by Gauss and Legendre's rule on each of many parts.
double integral(double (*f)(double), double begin, double end) {
  constexpr int kParts = 60;
  constexpr double kNodes[] = {0.18343464249564980494, 0.52553240991632898582,
                               0.79666647741362673959, 0.96028985649753623168};
  constexpr double kWeights[] = {0.36268378337836198297, 0.31370664587788728734,
                                 0.22238103445337447054, 0.10122853629037625915};
  const double half = (end - begin) / kParts / 2;
  double sum = 0;
  for (int part = 0; part < kParts; ++part) {
    const double middle = begin + (2 * part + 1) * half;
    for (int k = 0; k < 4; ++k) {
      sum += kWeights[k] * (f(middle - kNodes[k] * half) + f(middle + kNodes[k] * half));
    }
  }
  return sum * half;
}
double cosine_of_square(double t) { return std::cos(1.5707963267948966 * t * t); }
double sine_of_square(double t) { return std::sin(1.5707963267948966 * t * t); }
// exp(-x^2) times the integral of exp(t^2) from 0 to x, term by term.
double dawson_of(double x) {
  long double term = x, sum = x;
  for (int k = 1; k < 400; ++k) {
    term *= static_cast<long double>(x) * x / k;
    sum += term / (2 * k + 1);
  }
  return static_cast<double>(sum * std::exp(-static_cast<long double>(x) * x));
}
double log_over_distance(double t) { return t == 1 ? -1 : std::log(t) / (1 - t); }

const Row kRows[] = {
    {"Abs", std::fabs, -9, 9},
    {"Acos", std::acos, -1, 1},
    {"Asin", std::asin, -1, 1},
    {"Atan", std::atan, -9, 9},
    {"BesselI0", [](double x) { return std::cyl_bessel_i(0, std::fabs(x)); }, -9, 9},
    {"BesselI0e",
     [](double x) { return std::cyl_bessel_i(0, std::fabs(x)) * std::exp(-std::fabs(x)); }, -30,
     30},
    {"BesselI1", [](double x) { return sign(x) * std::cyl_bessel_i(1, std::fabs(x)); }, -9, 9},
    {"BesselI1e",
     [](double x) {
       return sign(x) * std::cyl_bessel_i(1, std::fabs(x)) * std::exp(-std::fabs(x));
     },
     -30, 30},
    {"BesselJ0", [](double x) { return std::cyl_bessel_j(0, std::fabs(x)); }, -9, 9},
    {"BesselJ1", [](double x) { return sign(x) * std::cyl_bessel_j(1, std::fabs(x)); }, -9, 9},
    {"BesselK0", [](double x) { return std::cyl_bessel_k(0, x); }, 0.1, 9},
    {"BesselK0e", [](double x) { return std::cyl_bessel_k(0, x) * std::exp(x); }, 0.1, 9},
    {"BesselK1", [](double x) { return std::cyl_bessel_k(1, x); }, 0.1, 9},
    {"BesselK1e", [](double x) { return std::cyl_bessel_k(1, x) * std::exp(x); }, 0.1, 9},
    {"BesselY0", [](double x) { return std::cyl_neumann(0, x); }, 0.1, 9},
    {"BesselY1", [](double x) { return std::cyl_neumann(1, x); }, 0.1, 9},
    {"Ceil", std::ceil, -9, 9},
    {"Cos", std::cos, -9, 9, [](C x) { return std::cos(x); }},
    {"Dawsn", dawson_of, -9, 9},
    {"Digamma", digamma_of, 0.5, 9},
    {"Elu", [](double x) { return x < 0 ? std::expm1(x) : x; }, -9, 9},
    {"Erf", std::erf, -3, 3},
    {"Erfc", std::erfc, -3, 3},
    {"Erfinv", [](double y) { return inverse_of(std::erf, y); }, -0.9, 0.9},
    {"Exp", std::exp, -9, 9, [](C x) { return std::exp(x); }},
    {"Expint", [](double x) { return std::expint(x); }, 0.5, 9},
    {"Expm1", std::expm1, -9, 9, [](C x) { return std::exp(x) - 1.0; }},
    {"Floor", std::floor, -9, 9},
    {"FresnelCos", [](double x) { return integral(cosine_of_square, 0, x); }, -5, 5},
    {"FresnelSin", [](double x) { return integral(sine_of_square, 0, x); }, -5, 5},
    {"Inv", [](double x) { return 1 / x; }, 0.5, 9, [](C x) { return 1.0 / x; }},
    {"IsFinite", [](double x) -> double { return std::isfinite(x); }, -9, 9},
    {"IsInf", [](double x) -> double { return std::isinf(x); }, -9, 9},
    {"IsNan", [](double x) -> double { return std::isnan(x); }, -9, 9},
    {"Lgamma", std::lgamma, 0.5, 9},
    {"Log", std::log, 0.1, 9, [](C x) { return std::log(x); }},
    {"Log1p", std::log1p, -0.9, 9, [](C x) { return std::log(1.0 + x); }},
    {"LogicalNot", [](double x) -> double { return x == 0; }, 0, 1},
    {"Ndtri",
     [](double p) {
       return inverse_of([](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }, p);
     },
     0.01, 0.99},
    {"Neg", [](double x) { return -x; }, -9, 9, [](C x) { return -x; }},
    {"Reciprocal", [](double x) { return 1 / x; }, 0.5, 9, [](C x) { return 1.0 / x; }},
    {"Relu", [](double x) { return x < 0 ? 0 : x; }, -9, 9},
    {"Relu6", [](double x) { return x < 0   ? 0
                                    : x > 6 ? 6
                                            : x; }, -9, 9},
    {"Rint", std::nearbyint, -9, 9},
    {"Round", std::nearbyint, -9, 9,
     [](C x) { return C(std::nearbyint(x.real()), std::nearbyint(x.imag())); }},
    {"Rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 9,
     [](C x) { return 1.0 / std::sqrt(x); }},
    {"Selu",
     [](double x) { return 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * std::expm1(x) : x); },
     -9, 9},
    {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -9, 9,
     [](C x) { return 1.0 / (1.0 + std::exp(-x)); }},
    {"Sign", sign, -9, 9, csign},
    {"Sin", std::sin, -9, 9, [](C x) { return std::sin(x); }},
    {"Softplus", [](double x) { return std::log1p(std::exp(x)); }, -9, 9},
    {"Softsign", [](double x) { return x / (1 + std::fabs(x)); }, -9, 9},
    {"Spence", [](double x) { return integral(log_over_distance, 1, x); }, 0.1, 9},
    {"Sqrt", std::sqrt, 0, 9, [](C x) { return std::sqrt(x); }},
    {"Square", [](double x) { return x * x; }, -9, 9, [](C x) { return x * x; }},
    {"Tan", std::tan, -1, 1, [](C x) { return std::tan(x); }},
    {"Tanh", std::tanh, -9, 9, [](C x) { return std::tanh(x); }},
};

void check(const Row& row, DType dtype, const Shape& shape, std::mt19937& random) {
  SCOPED_TRACE(str_cat(row.op, " ", dtype, " ", shape));
  std::uniform_real_distribution<double> uniform(row.low, row.high);
  std::vector<C> wanted;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    C x(uniform(random), kComplex.contains(dtype) ? uniform(random) : 0);
    if (kUnsignedIntegers.contains(dtype)) x = std::abs(x.real());
    if (dtype == DType::kBool) x = i % 3 == 0;
    wanted.push_back(x);
  }
  const Tensor x = make_tensor(dtype, shape, wanted);
  wanted = values_of(x);  // as rounded to the type
  for (C& v : wanted) v = kComplex.contains(dtype) ? row.complex(v) : row.real(v.real());
  const Result<Tensor> y = OpTester(row.op).input(x).run_one();
  ASSERT_TRUE(y.ok()) << y.status().to_string();
  EXPECT_EQ(y->shape(), shape);
  const std::vector<C> got = values_of(*y);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - wanted[i]), tolerance_of(dtype) * (std::abs(wanted[i]) + 0.2))
        << "element " << i << ": " << got[i] << ", expected " << wanted[i];
  }
}

TEST(Unary, EveryOpInEveryTypeAgreesWithItsTwin) {
  std::mt19937 random(1);
  for (const Row& row : kRows) {
    std::vector<DType> types = kernel_types(row.op);
    if (types.empty()) types = {DType::kBool};
    for (DType dtype : types) {
      for (const Shape& shape :
           {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{3}, Shape{5, 7}, Shape{1030}}) {
        check(row, dtype, shape, random);
      }
    }
    check(row, types[0], {100, 1001}, random);
  }
}

TEST(Unary, EveryOpHasARow) {
  OpRegistry ops;
  KernelRegistry kernels;
  Registry registry(ops, kernels);
  register_math_ops(registry);
  for (const OpDef* op : ops.list()) {
    if (op->inputs.size() != 1 || !op->traits.elementwise || op->name == "Cast" ||
        op->name == "AddN")
      continue;
    if (op->outputs[0].type_attr == "Tout" || op->name == "Conj") continue;  // complex_test.cc
    if (op->name == "Invert") continue;                                      // InvertTurnsEveryBit
    if (op->attrs.size() != 1) continue;  // more than a formula: it has a test of its own
    bool found = false;
    for (const Row& row : kRows) found |= op->name == row.op;
    EXPECT_TRUE(found) << op->name;
  }
}

TEST(Unary, InvertTurnsEveryBit) {
  for (DType type : {DType::kInt8, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kUInt32}) {
    const Tensor x = make_tensor(type, {3}, {C(0), C(5), C(100)});
    const double largest = type == DType::kUInt8 ? 255 : type == DType::kUInt32 ? 4294967295.0 : -1;
    EXPECT_EQ(values_of(OpTester("Invert").input(x).run_one().value()),
              (std::vector<C>{C(largest), C(largest - 5), C(largest - 100)}))
        << str_cat(type);
  }
}

TEST(Unary, SpecialValues) {
  const float inf = INFINITY, nan = NAN;
  const auto run = [](const char* op, float x) {
    return OpTester(op).input(Tensor::scalar(x)).run_one().value();
  };
  EXPECT_TRUE(std::isnan(run("Relu", nan).item<float>()));
  EXPECT_TRUE(std::isnan(run("Sign", nan).item<float>()));
  EXPECT_TRUE(std::isnan(run("Softplus", nan).item<float>()));
  EXPECT_EQ(run("Softplus", 200).item<float>(), 200);
  EXPECT_EQ(run("Sigmoid", -inf).item<float>(), 0);
  EXPECT_EQ(run("Round", 2.5F).item<float>(), 2);
  EXPECT_EQ(run("Round", -1.5F).item<float>(), -2);
  EXPECT_TRUE(run("IsNan", nan).item<bool>());
  EXPECT_TRUE(run("IsInf", -inf).item<bool>());
  EXPECT_FALSE(run("IsInf", nan).item<bool>());
  EXPECT_FALSE(run("IsFinite", nan).item<bool>());
  EXPECT_EQ(OpTester("Neg").input(Tensor::scalar<int32_t>(INT32_MIN)).run_one()->item<int32_t>(),
            INT32_MIN);
  EXPECT_EQ(OpTester("Abs").input(Tensor::scalar<int64_t>(INT64_MIN)).run_one()->item<int64_t>(),
            INT64_MIN);
}

TEST(Unary, TakesTheMemoryOfAnInputNobodyNeeds) {
  Tensor x = make_tensor(DType::kFloat, {1000}, std::vector<C>(1000, 2.0));
  const void* memory = x.raw();
  const Tensor y = OpTester("Square").input(std::move(x)).movable(true).run_one().value();
  EXPECT_EQ(y.raw(), memory);
  EXPECT_EQ(values_of(y), std::vector<C>(1000, 4.0));
}

TEST(Unary, ResultsDoNotDependOnThreads) {
  std::mt19937 random(2);
  std::vector<C> values(300001);
  for (C& v : values) v = std::uniform_real_distribution<double>(-9, 9)(random);
  const Tensor x = make_tensor(DType::kFloat, {300001}, values);
  EXPECT_TRUE(bit_equal(OpTester("Tanh").input(x).threads(1).run_one().value(),
                        OpTester("Tanh").input(x).threads(4).run_one().value()));
}

// Every instruction set gives the same bits, for every float there is a loop for.
TEST(Unary, InstructionSetsAgree) {
  std::mt19937 random(3);
  constexpr int kN = 10007;
  std::vector<float> x(kN), wanted(kN), got(kN);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const Row& row : kRows) {
    const UnaryLoop baseline = isa_table<UnaryLoops>(Isa::kBaseline).find(row.op, DType::kFloat);
    if (baseline == nullptr) continue;
    baseline(x.data(), wanted.data(), kN);
    for (const Isa isa : kIsas) {
      if (isa > machine_isa()) break;
      const UnaryLoop loop = isa_table<UnaryLoops>(isa).find(row.op, DType::kFloat);
      ASSERT_NE(loop, nullptr);
      got = x;
      loop(got.data(), got.data(), kN);
      const OpDef* op = OpRegistry::global().find(row.op);
      if (op->outputs[0].dtype == DType::kBool) continue;
      for (size_t i = 0; i < kN; ++i) {
        if (std::isnan(wanted[i])) {
          ASSERT_TRUE(std::isnan(got[i])) << row.op << " of " << x[i];
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i]))
              << row.op << " of " << x[i];
        }
      }
    }
  }
}

TEST(Unary, TypesWithoutAMeaningHaveNoKernel) {
  const Result<Tensor> y = OpTester("Reciprocal").input(Tensor::scalar<int32_t>(2)).run_one();
  EXPECT_EQ(y.status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace
