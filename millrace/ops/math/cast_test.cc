#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

using C = Complex128;

Result<Tensor> cast_to(const Tensor& x, DType to, bool truncate = false) {
  return OpTester("Cast").attr("DstT", to).attr("Truncate", truncate).input(x).run_one();
}

std::vector<DType> plain_types() {
  std::vector<DType> types;
  for (int i = 1; i < kNumDTypes; ++i) {
    if (type_set_of<PlainTypes>.contains(static_cast<DType>(i)))
      types.push_back(static_cast<DType>(i));
  }
  return types;
}

// 0 and 1 are values of every type; others differ only in how they are written.
TEST(Cast, EveryPairKeepsZeroAndOne) {
  const Tensor source = make_tensor(DType::kFloat, {4}, {0, 1, 1, 0});
  for (DType from : plain_types()) {
    const Result<Tensor> x = cast_to(source, from);
    ASSERT_TRUE(x.ok()) << x.status().to_string();
    for (DType to : plain_types()) {
      const Result<Tensor> y = cast_to(*x, to);
      ASSERT_TRUE(y.ok()) << dtype_name(from) << " to " << dtype_name(to) << y.status().to_string();
      EXPECT_EQ(values_of(*cast_to(*y, DType::kComplex128)), (std::vector<C>{0, 1, 1, 0}))
          << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

// Loops by vectors and what is left of them give what one element at a time does.
TEST(Cast, RowsOfAllLengths) {
  const std::pair<DType, DType> kPairs[] = {
      {DType::kFloat, DType::kBool}, {DType::kInt32, DType::kBool}, {DType::kFloat, DType::kInt32}};
  for (const auto& [from, to] : kPairs) {
    for (int64_t n : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 100}) {
      Tensor x = Tensor::zeros(from, {n}).value();
      for (int64_t i = 0; i < n; ++i) {
        const size_t k = static_cast<size_t>(i);
        if (from == DType::kInt32) {
          x.mutable_data<int32_t>()[k] = static_cast<int32_t>(i % 3 - 1) * 256;
          continue;
        }
        const float numbers[] = {0.0F,   -0.0F,         1e-40F,  -1.9F,    1.9F,     NAN,
                                 -1e30F, 2147483520.0F, 0x1p31F, -0x1p31F, INFINITY, 7.5F};
        x.mutable_data<float>()[k] = numbers[k % std::size(numbers)];
      }
      const Tensor y = cast_to(x, to).value();
      for (int64_t i = 0; i < n; ++i) {
        const size_t k = static_cast<size_t>(i);
        const double v = from == DType::kFloat ? double{x.data<float>()[k]} : x.data<int32_t>()[k];
        SCOPED_TRACE(str_cat("element ", i, " of ", n, ", ", v));
        if (to == DType::kBool) {
          EXPECT_EQ(y.data<bool>()[k], v != 0);
        } else {
          const bool fits = v >= -0x1p31 && v < 0x1p31;
          EXPECT_EQ(y.data<int32_t>()[k], fits ? static_cast<int32_t>(v) : INT32_MIN);
        }
      }
    }
  }
}

// Written around the caches.
TEST(Cast, LargeResults) {
  constexpr int64_t kCount = (8 << 20) + 5;
  Tensor x = Tensor::allocate(DType::kFloat, {kCount}).value();
  float v = -5;
  for (float& e : x.mutable_data<float>()) e = (v += 0.5F);
  const Tensor y = cast_to(x, DType::kInt32).value();
  size_t wrong = 0;
  for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
    wrong += y.data<int32_t>()[i] != static_cast<int32_t>(x.data<float>()[i]);
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(Cast, RealNumbersThatDoNotFit) {
  const Tensor x = make_tensor(DType::kDouble, {6}, {-1e30, -1.9, 1.9, 300, 1e30, NAN});
  for (DType from : {DType::kDouble, DType::kFloat}) {
    const Tensor source = cast_to(x, from).value();
    EXPECT_EQ(values_of(*cast_to(source, DType::kUInt8)), (std::vector<C>{0, 0, 1, 255, 255, 0}));
    EXPECT_EQ(values_of(*cast_to(source, DType::kInt8)),
              (std::vector<C>{-128, -1, 1, 127, 127, 0}));
    const Tensor wide = cast_to(source, DType::kInt64).value();
    EXPECT_EQ(wide.data<int64_t>()[0], INT64_MIN);
    EXPECT_EQ(wide.data<int64_t>()[4], INT64_MIN);
    EXPECT_EQ(wide.data<int64_t>()[5], INT64_MIN);
    EXPECT_EQ(cast_to(source, DType::kInt32)->data<int32_t>()[4], INT32_MIN);
    EXPECT_EQ(cast_to(source, DType::kInt32)->data<int32_t>()[5], INT32_MIN);
    EXPECT_EQ(cast_to(source, DType::kUInt64)->data<uint64_t>()[4], UINT64_MAX);
    EXPECT_EQ(cast_to(source, DType::kInt4)->data<Int4>()[3].value, 7);
  }
}

TEST(Cast, IntegersWrap) {
  const Tensor x = Tensor::vector<int64_t>({-1, 257, int64_t{1} << 32});
  EXPECT_EQ(values_of(*cast_to(x, DType::kUInt8)), (std::vector<C>{255, 1, 0}));
  EXPECT_EQ(values_of(*cast_to(x, DType::kInt32)), (std::vector<C>{-1, 257, 0}));
  EXPECT_EQ(values_of(*cast_to(x, DType::kBool)), (std::vector<C>{1, 1, 1}));
  EXPECT_EQ(cast_to(Tensor::scalar(UINT64_MAX), DType::kDouble)->item<double>(), 0x1p64);
}

TEST(Cast, ComplexNumbersGiveTheirRealPart) {
  const Tensor x = make_tensor(DType::kComplex64, {2}, {C(1.5, 2), C(0, 3)});
  EXPECT_EQ(values_of(*cast_to(x, DType::kFloat)), (std::vector<C>{1.5, 0}));
  EXPECT_EQ(values_of(*cast_to(x, DType::kBool)), (std::vector<C>{1, 0}));
  EXPECT_EQ(values_of(*cast_to(x, DType::kComplex128)), (std::vector<C>{C(1.5, 2), C(0, 3)}));
}

TEST(Cast, RoundsToNearestOrTruncates) {
  const float x = 1.0F + 0x1.8p-8F;  // between two bfloat16
  EXPECT_EQ(float(cast_to(Tensor::scalar(x), DType::kBFloat16)->item<BFloat16>()), 1.0F + 0x1p-7F);
  EXPECT_EQ(float(cast_to(Tensor::scalar(x), DType::kBFloat16, true)->item<BFloat16>()), 1.0F);
  const double y = 1.0 + 0x1.8p-24;
  EXPECT_EQ(cast_to(Tensor::scalar(y), DType::kFloat)->item<float>(), 1.0F + 0x1p-23F);
  EXPECT_EQ(cast_to(Tensor::scalar(y), DType::kFloat, true)->item<float>(), 1.0F);
  EXPECT_TRUE(std::isnan(float(cast_to(Tensor::scalar(NAN), DType::kHalf)->item<Half>())));
}

TEST(Cast, HalfTypesRoundTripInAnyLength) {
  for (DType dtype : {DType::kHalf, DType::kBFloat16}) {
    for (int64_t n : {0, 1, 7, 8, 9, 2000}) {
      std::vector<C> values;
      for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i % 256) - 128);
      const Tensor x = make_tensor(DType::kFloat, {n}, values);
      EXPECT_EQ(values_of(*cast_to(*cast_to(x, dtype), DType::kFloat)), values);
    }
  }
}

TEST(Cast, SameTypeSharesTheBuffer) {
  const Tensor x = Tensor::scalar<std::string>("s");
  EXPECT_TRUE(cast_to(x, DType::kString)->shares_buffer_with(x));
}

TEST(Cast, StringsAreNotNumbers) {
  const Status status = cast_to(Tensor::scalar<std::string>("1"), DType::kFloat).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_NE(status.message().find("string"), std::string::npos);
}

TEST(Cast, ValueRule) {
  const auto values = [](DType from, DType to, const char* input) {
    return infer_values(OpRegistry::global(), "Cast", {{"SrcT", from}, {"DstT", to}}, input)
        .value();
  };
  EXPECT_EQ(values(DType::kInt32, DType::kInt64, "=[1,?,-1]"), "[1,?,-1]");
  EXPECT_EQ(values(DType::kInt64, DType::kInt32, "=4294967297"), "1");
}

}  // namespace
}  // namespace millrace
