#include <gtest/gtest.h>

#include <cmath>
#include <limits>
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

// One line per op: its twin, the range of x and of y.
struct Row {
  const char* op;
  C (*twin)(C, C);
  double low, high;
  double y_low, y_high;
};

double re(C x) { return x.real(); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Sums and integrals as they are defined, by simple rules.
double zeta_of(double x, double q) {
  double sum = 0;
  constexpr int kTerms = 300;
  for (int k = 0; k < kTerms; ++k) sum += std::pow(q + k, -x);
  const double end = q + kTerms;
  return sum + std::pow(end, 1 - x) / (x - 1) + std::pow(end, -x) / 2 +
         x / 12 * std::pow(end, -x - 1);
}
double polygamma_of(double n, double x) {
  return (std::fmod(n, 2) == 0 ? -1 : 1) * std::tgamma(n + 1) * zeta_of(n + 1, x);
}
// Of integers a.
double upper_gamma_of(double a, double x) {
  double term = std::exp(-x), sum = 0;
  for (int k = 0; k < a; ++k, term *= x / k) sum += term;
  return sum;
}

const Row kRows[] = {
    {"Add", [](C x, C y) { return x + y; }, 0, 9, 0, 9},
    {"AddV2", [](C x, C y) { return x + y; }, 0, 9, 0, 9},
    {"Sub", [](C x, C y) { return x - y; }, 9, 20, 0, 9},
    {"Mul", [](C x, C y) { return x * y; }, 0, 9, 0, 9},
    {"RealDiv", [](C x, C y) { return x / y; }, 0, 9, 1, 9},
    {"Maximum", [](C x, C y) { return C(std::max(re(x), re(y))); }, 0, 9, 0, 9},
    {"DivNoNan", [](C x, C y) { return y == 0.0 ? 0.0 : x / y; }, 0, 9, 0, 9},
    {"MulNoNan", [](C x, C y) { return x * y; }, 0, 9, 0, 9},
    {"Xdivy", [](C x, C y) { return x / y; }, 0, 9, 1, 9},
    {"Xlog1py", [](C x, C y) { return x * std::log(1.0 + y); }, 0, 9, 1, 9},
    {"Xlogy", [](C x, C y) { return x * std::log(y); }, 0, 9, 1, 9},
    {"Minimum", [](C x, C y) { return C(std::min(re(x), re(y))); }, 0, 9, 0, 9},
    {"SquaredDifference", [](C x, C y) { return C(std::norm(x - y)); }, 9, 20, 9, 15},
    {"Pow", [](C x, C y) { return std::pow(x, y); }, 1, 4, 0, 3},
    {"Equal", [](C x, C y) { return C(x == y); }, 0, 3, 0, 3},
    {"NotEqual", [](C x, C y) { return C(x != y); }, 0, 3, 0, 3},
    {"Less", [](C x, C y) { return C(re(x) < re(y)); }, 0, 9, 0, 9},
    {"LessEqual", [](C x, C y) { return C(re(x) <= re(y)); }, 0, 9, 0, 9},
    {"Greater", [](C x, C y) { return C(re(x) > re(y)); }, 0, 9, 0, 9},
    {"GreaterEqual", [](C x, C y) { return C(re(x) >= re(y)); }, 0, 9, 0, 9},
    {"LogicalAnd", [](C x, C y) { return C(re(x) != 0 && re(y) != 0); }, 0, 1, 0, 1},
    {"LogicalOr", [](C x, C y) { return C(re(x) != 0 || re(y) != 0); }, 0, 1, 0, 1},
    {"Igamma", [](C a, C x) { return C(1 - upper_gamma_of(re(a), re(x))); }, 3, 3, 0.5, 9},
    {"Igammac", [](C a, C x) { return C(upper_gamma_of(re(a), re(x))); }, 3, 3, 0.5, 9},
    {"Polygamma", [](C n, C x) { return C(polygamma_of(re(n), re(x))); }, 2, 2, 0.5, 9},
    {"Zeta", [](C x, C q) { return C(zeta_of(re(x), re(q))); }, 2, 5, 0.5, 9},
    {"InvGrad", [](C y, C g) { return -g * y * y; }, 0, 3, 0, 3},
    {"ReciprocalGrad", [](C y, C g) { return -g * y * y; }, 0, 3, 0, 3},
    {"RsqrtGrad", [](C y, C g) { return -0.5 * g * y * y * y; }, 0, 3, 0, 3},
    {"SigmoidGrad", [](C y, C g) { return g * y * (1.0 - y); }, 0, 1, 0, 3},
    {"SqrtGrad", [](C y, C g) { return 0.5 * g / y; }, 1, 3, 0, 3},
    {"TanhGrad", [](C y, C g) { return g * (1.0 - y * y); }, 0, 1, 0, 3},
    {"ReluGrad", [](C g, C f) { return re(f) > 0 ? g : 0; }, 0, 9, -9, 9},
    {"Relu6Grad", [](C g, C f) { return re(f) > 0 && re(f) < 6 ? g : 0; }, 0, 9, -9, 9},
    {"EluGrad", [](C g, C y) { return re(y) < 0 ? g * (y + 1.0) : g; }, 0, 9, -1, 9},
    {"SeluGrad",
     [](C g, C y) { return g * (re(y) < 0 ? re(y) + 1.7580993408473769 : 1.0507009873554805); }, 0,
     9, -1, 9},
    {"SoftplusGrad", [](C g, C f) { return g * sigmoid(re(f)); }, 0, 9, -9, 9},
    {"SoftsignGrad", [](C g, C f) { return g / std::pow(1 + std::abs(re(f)), 2); }, 0, 9, -9, 9},
};

std::vector<DType> types_of(const char* op) {
  std::vector<DType> types = kernel_types(op);
  return types.empty() ? std::vector<DType>{DType::kBool} : types;
}

Tensor random_tensor(DType dtype, const Shape& shape, double low, double high,
                     std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<C> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    C x(uniform(random), kComplex.contains(dtype) ? uniform(random) : 0);
    if (kUnsignedIntegers.contains(dtype)) x = std::abs(x.real());
    if (dtype == DType::kBool) x = x.real() > (low + high) / 2;
    values.push_back(x);
  }
  return make_tensor(dtype, shape, values);
}

// Element `i` of the shape `out`, found in a tensor of shape `in` that is broadcast to it.
int64_t source_element(const Shape& in, const Shape& out, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = out.rank() - 1; d >= 0; --d) {
    const int64_t index = i % out.dim(d);
    i /= out.dim(d);
    const int own = d - (out.rank() - in.rank());
    if (own < 0) continue;
    if (in.dim(own) != 1) at += index * stride;
    stride *= in.dim(own);
  }
  return at;
}

void check(const Row& row, DType dtype, const Shape& a, const Shape& b, std::mt19937& random) {
  SCOPED_TRACE(str_cat(row.op, " ", dtype, " ", a, " ", b));
  const Tensor x = random_tensor(dtype, a, row.low, row.high, random);
  const Tensor y = random_tensor(dtype, b, row.y_low, row.y_high, random);
  const Result<Tensor> z = OpTester(row.op).input(x).input(y).run_one();
  ASSERT_TRUE(z.ok()) << z.status().to_string();
  ASSERT_EQ(z->shape(), broadcast_shapes(a, b).value());
  const std::vector<C> xs = values_of(x), ys = values_of(y), zs = values_of(*z);
  for (int64_t i = 0; i < z->num_elements(); ++i) {
    const C wanted = row.twin(xs[static_cast<size_t>(source_element(a, z->shape(), i))],
                              ys[static_cast<size_t>(source_element(b, z->shape(), i))]);
    const C got = zs[static_cast<size_t>(i)];
    ASSERT_LE(std::abs(got - wanted), tolerance_of(dtype) * (std::abs(wanted) + 1) * 4)
        << "element " << i << ": " << got << ", expected " << wanted;
  }
}

// What would be NaN is zero.
TEST(Binary, ZeroInsteadOfNaN) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const auto run = [](const char* op, float x, float y) {
    return OpTester(op).input(Tensor::scalar(x)).input(Tensor::scalar(y)).run_one()->item<float>();
  };
  for (float x : {0.0F, 1.0F, inf, nan}) {
    EXPECT_EQ(run("DivNoNan", x, 0), 0) << x;
    EXPECT_EQ(run("MulNoNan", x, 0), 0) << x;
  }
  for (float y : {0.0F, -1.0F, inf, nan}) {
    for (const char* op : {"Xdivy", "Xlogy", "Xlog1py"}) EXPECT_EQ(run(op, 0, y), 0) << op << y;
  }
  EXPECT_TRUE(std::isnan(run("MulNoNan", 0, inf))) << "y alone counts";
}

TEST(Binary, EveryOpInEveryTypeAgreesWithItsTwin) {
  std::mt19937 random(1);
  for (const Row& row : kRows) {
    for (DType dtype : types_of(row.op)) {
      for (const Shape& shape :
           {Shape{}, Shape{0}, Shape{2, 0}, Shape{3}, Shape{5, 7}, Shape{1030}}) {
        check(row, dtype, shape, shape, random);
      }
    }
  }
}

TEST(Binary, Broadcasts) {
  std::mt19937 random(2);
  const std::pair<Shape, Shape> shapes[] = {
      {{}, {3}},
      {{3}, {}},
      {{1}, {}},
      {{1, 1}, {3}},
      {{5000}, {}},
      {{}, {5000}},
      {{2, 3}, {3}},
      {{3}, {2, 3}},
      {{2, 3}, {2, 1}},
      {{2, 1}, {1, 3}},
      {{700, 3}, {3}},
      {{700, 3}, {700, 1}},
      {{40, 64}, {64}},
      {{40, 64}, {40, 1}},
      {{40, 1}, {1, 64}},
      {{2, 1, 4, 1}, {3, 1, 5}},
      {{0, 3}, {3}},
      {{2, 0}, {2, 1}},
      {{0}, {1}},
      {{1}, {0}},
      {{2, 0, 3}, {}},
      {{8, 1, 6, 1}, {7, 1, 5}},
      {{3, 100, 100}, {100, 1}},
  };
  for (const char* op : {"Sub", "Less"}) {
    for (const Row& row : kRows) {
      if (std::string_view(row.op) != op) continue;
      for (const auto& [a, b] : shapes) {
        for (DType dtype : {DType::kFloat, DType::kInt8, DType::kHalf, DType::kDouble}) {
          check(row, dtype, a, b, random);
        }
        if (row.op[0] == 'S') check(row, DType::kComplex128, a, b, random);
      }
    }
  }
}

TEST(Binary, BroadcastsManyDimensions) {
  std::mt19937 random(3);
  const Row& sub = kRows[2];
  check(sub, DType::kFloat, {2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1},
        random);
  const std::vector<int64_t> ones(254, 1);
  check(sub, DType::kFloat, Shape::make(ones).value(), {3}, random);
}

TEST(Binary, ShapesThatDoNotGoTogether) {
  const Tensor a = make_tensor(DType::kFloat, {2}, {1, 2}),
               b = make_tensor(DType::kFloat, {3}, {1, 2, 3});
  for (const char* op : {"Add", "Equal", "ReluGrad"}) {
    const Status status = OpTester(op).input(a).input(b).check_shapes(false).run().status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << op;
    EXPECT_NE(status.message().find("[2]"), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("[3]"), std::string::npos) << status.to_string();
  }
  for (const char* op : {"Equal", "NotEqual"}) {
    const Tensor z =
        OpTester(op).attr("incompatible_shape_error", false).input(a).input(b).run_one().value();
    EXPECT_TRUE(z.shape().is_scalar());
    EXPECT_EQ(z.item<bool>(), std::string_view(op) == "NotEqual");
  }
}

template <class T>
Result<Tensor> run(const char* op, T x, T y) {
  return OpTester(op).input(Tensor::scalar<T>(x)).input(Tensor::scalar<T>(y)).run_one();
}

template <class T>
void check_division() {
  const T low = std::numeric_limits<T>::min();
  for (const char* op : {"Div", "FloorDiv", "TruncateDiv", "FloorMod", "Mod", "TruncateMod"}) {
    const Status status = run<T>(op, 1, 0).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << op;
    EXPECT_NE(status.message().find("Integer division by zero"), std::string::npos);
  }
  EXPECT_EQ(run<T>("Div", 7, 2)->template item<T>(), 3);
  EXPECT_EQ(run<T>("FloorDiv", 7, 2)->template item<T>(), 3);
  EXPECT_EQ(run<T>("FloorMod", 7, 4)->template item<T>(), 3);
  if (std::is_signed_v<T>) {
    const T minus = static_cast<T>(-1);
    EXPECT_EQ(run<T>("Div", low, minus)->template item<T>(), low);
    EXPECT_EQ(run<T>("FloorDiv", low, minus)->template item<T>(), low);
    EXPECT_EQ(run<T>("FloorMod", low, minus)->template item<T>(), 0);
    EXPECT_EQ(run<T>("Div", T(-7), T(2))->template item<T>(), T(-3));
    EXPECT_EQ(run<T>("FloorDiv", T(-7), T(2))->template item<T>(), T(-4));
    EXPECT_EQ(run<T>("FloorDiv", T(7), T(-2))->template item<T>(), T(-4));
    EXPECT_EQ(run<T>("TruncateMod", T(-7), T(3))->template item<T>(), T(-1));
    EXPECT_EQ(run<T>("FloorMod", T(-7), T(3))->template item<T>(), T(2));
    EXPECT_EQ(run<T>("FloorMod", T(7), T(-3))->template item<T>(), T(-2));
    EXPECT_EQ(run<T>("FloorMod", T(-6), T(3))->template item<T>(), T(0));
  }
}

TEST(Binary, IntegerDivision) {
  check_division<int8_t>();
  check_division<uint8_t>();
  check_division<int16_t>();
  check_division<uint16_t>();
  check_division<int32_t>();
  check_division<uint32_t>();
  check_division<int64_t>();
  check_division<uint64_t>();
}

TEST(Binary, IntegerDivisionOfVectors) {
  std::vector<C> x, y, floor_div, floor_mod;
  for (int i = -20; i <= 20; ++i) {
    for (int d : {-7, -1, 1, 3}) {
      x.push_back(i), y.push_back(d);
      const double q = std::floor(static_cast<double>(i) / d);
      floor_div.push_back(q), floor_mod.push_back(i - q * d);
    }
  }
  const Shape shape{static_cast<int64_t>(x.size())};
  for (DType dtype : {DType::kInt32, DType::kInt64, DType::kFloat, DType::kDouble, DType::kHalf}) {
    const Tensor a = make_tensor(dtype, shape, x), b = make_tensor(dtype, shape, y);
    EXPECT_EQ(values_of(*OpTester("FloorDiv").input(a).input(b).run_one()), floor_div)
        << dtype_name(dtype);
    EXPECT_EQ(values_of(*OpTester("FloorMod").input(a).input(b).run_one()), floor_mod)
        << dtype_name(dtype);
  }
}

TEST(Binary, DivisionByZeroOfNothingIsFine) {
  const Result<Tensor> z = OpTester("FloorDiv")
                               .input(Tensor::zeros(DType::kInt32, {0}).value())
                               .input(Tensor::scalar<int32_t>(0))
                               .run_one();
  ASSERT_TRUE(z.ok()) << z.status().to_string();
  EXPECT_EQ(z->shape(), Shape{0});
}

TEST(Binary, IntegerPowers) {
  EXPECT_EQ(run<int32_t>("Pow", 3, 4)->item<int32_t>(), 81);
  EXPECT_EQ(run<int32_t>("Pow", 0, 0)->item<int32_t>(), 1);
  EXPECT_EQ(run<int32_t>("Pow", 2, 33)->item<int32_t>(), 0);  // wraps
  EXPECT_EQ(run<int64_t>("Pow", -2, 63)->item<int64_t>(), INT64_MIN);
  const Status status = run<int64_t>("Pow", 2, -1).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("negative integer powers"), std::string::npos);
}

TEST(Binary, SumsWrap) {
  EXPECT_EQ(run<int32_t>("Add", INT32_MAX, 1)->item<int32_t>(), INT32_MIN);
  EXPECT_EQ(run<int64_t>("Sub", INT64_MIN, 1)->item<int64_t>(), INT64_MAX);
  EXPECT_EQ(run<uint8_t>("Sub", 0, 1)->item<uint8_t>(), 255);
  EXPECT_EQ(run<int32_t>("Mul", 65536, 65536)->item<int32_t>(), 0);
}

TEST(Binary, NanIsNeitherLessNorEqual) {
  EXPECT_TRUE(std::isnan(run<float>("Maximum", NAN, 1)->item<float>()));
  EXPECT_TRUE(std::isnan(run<double>("Minimum", 1, NAN)->item<double>()));
  EXPECT_FALSE(run<float>("Equal", NAN, NAN)->item<bool>());
  EXPECT_TRUE(run<float>("NotEqual", NAN, NAN)->item<bool>());
  EXPECT_FALSE(run<float>("LessEqual", NAN, NAN)->item<bool>());
}

TEST(Binary, Strings) {
  const Tensor a = Tensor::vector<std::string>({"a", "bc"}), b = Tensor::scalar<std::string>("bc");
  const auto run_strings = [&](const char* op) {
    return OpTester(op).input(a).input(b).run_one().value();
  };
  const Tensor joined = run_strings("Add");
  EXPECT_EQ(joined.data<std::string>()[0], "abc");
  EXPECT_EQ(joined.data<std::string>()[1], "bcbc");
  EXPECT_EQ(values_of(run_strings("Equal")), (std::vector<C>{0, 1}));
  EXPECT_EQ(values_of(run_strings("NotEqual")), (std::vector<C>{1, 0}));
  const Tensor none = Tensor::zeros(DType::kString, {0}).value();
  EXPECT_EQ(OpTester("Add").input(none).input(b).run_one()->num_elements(), 0);
}

TEST(Binary, TakesTheMemoryOfAnInputNobodyNeeds) {
  for (int taken : {0, 1}) {
    Tensor big = make_tensor(DType::kFloat, {100, 3}, std::vector<C>(300, 2.0));
    const Tensor row = make_tensor(DType::kFloat, {3}, {1, 2, 3});
    const void* memory = big.raw();
    OpTester tester("Mul");
    if (taken == 0)
      tester.input(std::move(big)).input(row);
    else
      tester.input(row).input(std::move(big));
    const Tensor z = tester.movable(true).run_one().value();
    EXPECT_EQ(z.raw(), memory);
    EXPECT_EQ(values_of(z)[299], 6.0);
  }
}

TEST(Binary, ResultsDoNotDependOnThreads) {
  std::mt19937 random(4);
  const Tensor x = random_tensor(DType::kFloat, {1000, 301}, -9, 9, random);
  const Tensor y = random_tensor(DType::kFloat, {301}, 1, 9, random);
  EXPECT_TRUE(bit_equal(OpTester("Mul").input(x).input(y).threads(1).run_one().value(),
                        OpTester("Mul").input(x).input(y).threads(4).run_one().value()));
}

TEST(Binary, InstructionSetsAgree) {
  std::mt19937 random(5);
  constexpr int64_t kN = 5003;
  std::vector<float> x(kN), y(kN), wanted(kN), got(kN);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (float& v : y) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const OpDef* op : OpRegistry::global().list()) {
    for (DType dtype : {DType::kFloat, DType::kInt32}) {
      const BinaryLoop baseline =
          isa_table<BinaryLoops>(Isa::kBaseline).find(op->name.c_str(), dtype);
      if (baseline == nullptr || op->outputs[0].dtype == DType::kBool) continue;
      baseline(x.data(), y.data(), wanted.data(), kN);
      for (const Isa isa : kIsas) {
        if (isa > machine_isa()) break;
        const BinaryLoop loop = isa_table<BinaryLoops>(isa).find(op->name.c_str(), dtype);
        loop(x.data(), y.data(), got.data(), kN);
        for (size_t i = 0; i < kN; ++i) {
          if (dtype == DType::kFloat && std::isnan(wanted[i]) && std::isnan(got[i])) continue;
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i]))
              << op->name << " of " << x[i] << " and " << y[i];
        }
      }
    }
  }
}

std::string shapes(const char* op, AttrMap attrs, const char* inputs) {
  const Result<std::string> result =
      infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
  return result.ok() ? *result : "error";
}

std::string values(const char* op, const char* inputs) {
  return infer_values(OpRegistry::global(), op, {{"T", DType::kInt32}}, inputs).value();
}

TEST(Binary, ShapeRules) {
  EXPECT_EQ(shapes("Add", {}, "[2,1];[3]"), "[2,3]");
  EXPECT_EQ(shapes("Add", {}, "?;[3]"), "?");
  EXPECT_EQ(shapes("Add", {}, "[?,3];[3]"), "[?,3]");
  EXPECT_EQ(shapes("Add", {}, "[2];[3]"), "error");
  EXPECT_EQ(shapes("ReluGrad", {}, "[?,3];[2,?]"), "[2,3]");
  EXPECT_EQ(shapes("ReluGrad", {}, "[1];[2]"), "error");
  EXPECT_EQ(shapes("Equal", {}, "[2];[3]"), "error");
  EXPECT_EQ(shapes("Equal", {{"incompatible_shape_error", false}}, "[2];[3]"), "[]");
  EXPECT_EQ(shapes("Equal", {{"incompatible_shape_error", false}}, "[2];[1]"), "[2]");
  EXPECT_EQ(shapes("Equal", {{"incompatible_shape_error", false}}, "[2];?"), "?");
}

TEST(Binary, ValueRules) {
  EXPECT_EQ(values("Add", "=[1,?,3];=2"), "[3,?,5]");
  EXPECT_EQ(values("Sub", "=5;=7"), "-2");
  EXPECT_EQ(values("FloorDiv", "=[7,8];=[2,0]"), "[3,?]");
  EXPECT_EQ(values("FloorMod", "=-7;=3"), "2");
  EXPECT_EQ(values("Mul", "=65536;=65536"), "0");
  EXPECT_EQ(values("Maximum", "=[1,9];=[4,4]"), "[4,9]");
  EXPECT_EQ(values("Neg", "=[1,?]"), "[-1,?]");
}

}  // namespace
}  // namespace millrace
