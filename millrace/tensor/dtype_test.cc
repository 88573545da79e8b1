#include "millrace/tensor/dtype.h"

#include <gtest/gtest.h>

#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

TEST(DTypeTest, EveryNameLeadsBack) {
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(t)), t) << i;
    EXPECT_EQ(dtype_from_name(dtype_name(ref_type(t))), ref_type(t)) << i;
    EXPECT_GT(dtype_size(t), 0u) << i;
    EXPECT_EQ(dtype_size(ref_type(t)), dtype_size(t)) << i;
  }
}

TEST(DTypeTest, OtherNames) {
  EXPECT_EQ(dtype_from_name("float32"), DType::kFloat);
  EXPECT_EQ(dtype_from_name("float64"), DType::kDouble);
  EXPECT_EQ(dtype_from_name("float16"), DType::kHalf);
  EXPECT_EQ(dtype_name(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(dtype_name(ref_type(DType::kFloat)), "float_ref");
}

TEST(DTypeTest, NumbersThatAreNoType) {
  for (const int n : {-1, 0, kNumDTypes, 99, 100, 100 + kNumDTypes, 1000}) {
    EXPECT_FALSE(is_valid(static_cast<DType>(n))) << n;
    EXPECT_EQ(dtype_size(static_cast<DType>(n)), 0u) << n;
  }
  EXPECT_EQ(dtype_name(static_cast<DType>(77)), "dtype(77)");
  for (const char* name : {"", "invalid", "flo", "_ref", "float_ref_ref", "FLOAT"}) {
    EXPECT_EQ(dtype_from_name(name), DType::kInvalid) << name;
  }
}

TEST(DTypeTest, TypeSets) {
  EXPECT_EQ(str_cat(TypeSet{DType::kDouble, DType::kFloat}), "{float, double}");
  EXPECT_EQ(str_cat(TypeSet()), "{}");
  EXPECT_TRUE(kNumbers.contains(ref_type(DType::kHalf)));
  EXPECT_FALSE(kNumbers.contains(DType::kString));
  EXPECT_EQ(type_set_of<FloatingTypes>, kFloating);
  EXPECT_EQ(type_set_of<IntegerTypes>, kIntegers);
  EXPECT_EQ(type_set_of<NumberTypes>, kNumbers);
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_EQ(type_set_of<PlainTypes>.contains(t), is_plain(t)) << dtype_name(t);
  }
}

TEST(DispatchTest, CallsTheRightType) {
  size_t size = 0;
  const auto measure = [&]<class T>() { size = sizeof(T); };
  EXPECT_TRUE((dispatch<TypeList<float, double>>(DType::kDouble, measure).ok()));
  EXPECT_EQ(size, 8u);
  EXPECT_TRUE(dispatch<PlainTypes>(DType::kInt4, measure).ok());
  EXPECT_EQ(size, 1u);
}

TEST(DispatchTest, PassesStatusOn) {
  const Status status =
      dispatch<FloatingTypes>(DType::kHalf, []<class T>() { return out_of_range("far"); });
  EXPECT_EQ(status.code(), Code::kOutOfRange);
}

TEST(DispatchTest, RefusesOtherTypes) {
  const auto nothing = []<class T>() {};
  const Status status = dispatch<TypeList<float, double>>(DType::kString, nothing);
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_EQ(status.message(),
            "dtype string is not supported here, expected one of {float, double}");
  EXPECT_EQ(dispatch<FloatingTypes>(static_cast<DType>(77), nothing).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(dispatch<FloatingTypes>(ref_type(DType::kFloat), nothing).code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace millrace
