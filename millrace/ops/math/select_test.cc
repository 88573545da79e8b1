#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

using C = Complex128;

Result<Tensor> select(const char* op, const Tensor& condition, const Tensor& t, const Tensor& e) {
  return OpTester(op).input(condition).input(t).input(e).run_one();
}

Tensor bools(const Shape& shape, const std::vector<C>& values) {
  return make_tensor(DType::kBool, shape, values);
}

TEST(Select, ElementsRowsOrEverything) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kHalf, DType::kFloat, DType::kInt64,
                      DType::kComplex64, DType::kComplex128}) {
    const Tensor t = make_tensor(dtype, {2, 2}, {1, 1, 1, 1}),
                 e = make_tensor(dtype, {2, 2}, {0, 0, 0, 0});
    EXPECT_EQ(values_of(*select("Select", bools({2, 2}, {1, 0, 0, 1}), t, e)),
              (std::vector<C>{1, 0, 0, 1}));
    EXPECT_EQ(values_of(*select("Select", bools({2}, {0, 1}), t, e)), (std::vector<C>{0, 0, 1, 1}));
    EXPECT_EQ(values_of(*select("Select", bools({}, {1}), t, e)), (std::vector<C>{1, 1, 1, 1}));
    EXPECT_EQ(values_of(*select("Select", bools({}, {0}), t, e)), (std::vector<C>{0, 0, 0, 0}));
  }
}

TEST(Select, Strings) {
  const Tensor t = Tensor::vector<std::string>({"a", "b"}),
               e = Tensor::vector<std::string>({"c", "d"});
  const Tensor z = select("Select", bools({2}, {0, 1}), t, e).value();
  EXPECT_EQ(z.data<std::string>()[0], "c");
  EXPECT_EQ(z.data<std::string>()[1], "b");
}

TEST(Select, NothingToSelect) {
  const Tensor none = make_tensor(DType::kFloat, {0, 2}, {});
  EXPECT_EQ(select("Select", bools({0}, {}), none, none)->shape(), (Shape{0, 2}));
  EXPECT_EQ(select("Select", bools({0, 2}, {}), none, none)->shape(), (Shape{0, 2}));
  const Tensor empty_rows = make_tensor(DType::kFloat, {2, 0}, {});
  EXPECT_EQ(select("Select", bools({2}, {1, 0}), empty_rows, empty_rows)->shape(), (Shape{2, 0}));
}

TEST(Select, RefusesOtherShapes) {
  const Tensor t = make_tensor(DType::kFloat, {2, 2}, {1, 1, 1, 1}),
               v = make_tensor(DType::kFloat, {2}, {1, 1});
  for (const Result<Tensor>& z :
       {select("Select", bools({3}, {1, 1, 1}), t, t),
        select("Select", bools({2, 1}, {1, 1}), t, t), select("Select", bools({2}, {1, 1}), t, v),
        select("Select", bools({1}, {1}), Tensor::scalar(1.0F), Tensor::scalar(1.0F))}) {
    EXPECT_EQ(z.status().code(), Code::kInvalidArgument);
  }
}

TEST(Select, V2BroadcastsAllThree) {
  const Tensor t = make_tensor(DType::kFloat, {2, 1}, {1, 2}), e = Tensor::scalar(9.0F);
  EXPECT_EQ(values_of(*select("SelectV2", bools({3}, {1, 0, 1}), t, e)),
            (std::vector<C>{1, 9, 1, 2, 9, 2}));
  EXPECT_EQ(select("SelectV2", bools({0}, {}), t, e)->shape(), (Shape{2, 0}));
  EXPECT_EQ(select("SelectV2", bools({3}, {1, 1, 1}), make_tensor(DType::kFloat, {2}, {1, 2}), e)
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(Select, ShapeRules) {
  const auto shapes = [](const char* op, const char* inputs) -> std::string {
    const Result<std::string> result = infer_shapes(OpRegistry::global(), op, {}, inputs);
    return result.ok() ? *result : "error";
  };
  EXPECT_EQ(shapes("Select", "[];[2,?];[?,3]"), "[2,3]");
  EXPECT_EQ(shapes("Select", "[2];[?,3];[?,3]"), "[2,3]");
  EXPECT_EQ(shapes("Select", "[2,3];?;?"), "[2,3]");
  EXPECT_EQ(shapes("Select", "[4];[2,3];[2,3]"), "error");
  EXPECT_EQ(shapes("Select", "?;[2];[3]"), "error");
  EXPECT_EQ(shapes("SelectV2", "[3];[2,1];[]"), "[2,3]");
}

}  // namespace
}  // namespace millrace
