#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_linalg_ops});

using MatMulTypes =
    ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t, uint32_t, uint64_t>, ComplexTypes>;

// Small integers, so that every type is exact.
Tensor numbers(DType dtype, const Shape& shape, std::mt19937& random) {
  Tensor tensor = Tensor::allocate(dtype, shape).value();
  EXPECT_TRUE(dispatch<MatMulTypes>(dtype, [&]<class T>() {
                for (T& x : tensor.mutable_data<T>()) {
                  const int v = static_cast<int>(random() % 7) - 3;
                  if constexpr (is_complex_v<T>) {
                    x = T(static_cast<typename T::value_type>(v), 2);
                  } else {
                    x = static_cast<T>(v);
                  }
                }
              }).ok());
  return tensor;
}

// The same shape and numbers; zeros of both signs are equal.
bool same_numbers(const Tensor& a, const Tensor& b) {
  bool same = a.dtype() == b.dtype() && a.shape() == b.shape();
  EXPECT_TRUE(dispatch<MatMulTypes>(a.dtype(), [&]<class T>() {
                if (same)
                  same = std::equal(a.data<T>().begin(), a.data<T>().end(), b.data<T>().begin());
              }).ok());
  return same;
}

template <class F>
void for_each_type(F f) {
  for (DType t :
       {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16, DType::kInt32, DType::kInt64,
        DType::kUInt32, DType::kUInt64, DType::kComplex64, DType::kComplex128}) {
    SCOPED_TRACE(dtype_name(t));
    f(t);
  }
}

std::string error_of(OpTester& op) {
  const auto result = op.run();
  return result.ok() ? "ok" : result.status().to_string();
}

TEST(MatMul, AgreesWithReference) {
  std::mt19937 random(1);
  for_each_type([&](DType type) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      const bool ta = transposes & 1, tb = transposes & 2;
      for (const Shape& mkn : {Shape{2, 3, 4}, Shape{17, 33, 9}, Shape{0, 3, 4}, Shape{3, 0, 2},
                               Shape{3, 4, 0}, Shape{64, 70, 65}}) {
        const int64_t m = mkn[0], k = mkn[1], n = mkn[2];
        const Tensor a = numbers(type, ta ? Shape{k, m} : Shape{m, k}, random);
        const Tensor b = numbers(type, tb ? Shape{n, k} : Shape{k, n}, random);
        const auto run = [&](const char* label) {
          return OpTester("MatMul")
              .attr("transpose_a", ta)
              .attr("transpose_b", tb)
              .label(label)
              .input(a)
              .input(b)
              .run_one();
        };
        const Result<Tensor> got = run(""), want = run("reference");
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        ASSERT_TRUE(want.ok()) << want.status().to_string();
        EXPECT_TRUE(same_numbers(*got, *want)) << mkn.to_string();
      }
    }
  });
}

TEST(MatMul, KnownProduct) {
  const Tensor a = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::of<float>({3, 2}, {7, 8, 9, 10, 11, 12});
  const Tensor c = OpTester("MatMul").input(a).input(b).run_one().value();
  EXPECT_TRUE(bit_equal(c, Tensor::of<float>({2, 2}, {58, 64, 139, 154})));
  // No sum at all is zero.
  const Tensor none = Tensor::allocate(DType::kFloat, {2, 0}).value();
  const Tensor zeros =
      OpTester("MatMul").attr("transpose_b", true).input(none).input(none).run_one().value();
  EXPECT_TRUE(bit_equal(zeros, Tensor::of<float>({2, 2}, {0, 0, 0, 0})));
}

TEST(MatMul, BadInputs) {
  const Tensor matrix = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_NE(error_of(OpTester("MatMul").input(matrix).input(matrix))
                .find("inner dimensions differ: [2,3] x [2,3]"),
            std::string::npos);
  EXPECT_NE(error_of(OpTester("MatMul")
                         .attr("transpose_b", true)
                         .input(matrix)
                         .input(Tensor::of<float>({1, 2}, {1, 2})))
                .find("INVALID_ARGUMENT"),
            std::string::npos);
  EXPECT_NE(error_of(OpTester("MatMul").input(Tensor::scalar(1.0f)).input(matrix)).find("rank 2"),
            std::string::npos);
}

TEST(MatMul, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "MatMul", {}, "[2,?];[3,4]"), "[2,4]");
  EXPECT_EQ(*infer_shapes(ops, "MatMul", {}, "?;[3,4]"), "[?,4]");
  EXPECT_EQ(
      *infer_shapes(ops, "MatMul", {{"transpose_a", true}, {"transpose_b", true}}, "[2,5];[4,2]"),
      "[5,4]");
  EXPECT_FALSE(infer_shapes(ops, "MatMul", {}, "[2,3];[4,5]").ok());
  EXPECT_FALSE(infer_shapes(ops, "MatMul", {}, "[2];[2,5]").ok());
}

TEST(BatchMatMul, AgreesWithReference) {
  std::mt19937 random(2);
  for_each_type([&](DType type) {
    for (int adjoints = 0; adjoints < 4; ++adjoints) {
      const bool ax = adjoints & 1, ay = adjoints & 2;
      for (const Shape& batch : {Shape{}, Shape{3}, Shape{2, 2}, Shape{0}}) {
        for (const Shape& mkn : {Shape{2, 3, 4}, Shape{20, 9, 33}, Shape{2, 0, 3}}) {
          const int64_t m = mkn[0], k = mkn[1], n = mkn[2];
          const Tensor x =
              numbers(type, batch.concat(ax ? Shape{k, m} : Shape{m, k}).value(), random);
          const Tensor y =
              numbers(type, batch.concat(ay ? Shape{n, k} : Shape{k, n}).value(), random);
          const auto run = [&](const char* label) {
            return OpTester("BatchMatMul")
                .attr("adj_x", ax)
                .attr("adj_y", ay)
                .label(label)
                .input(x)
                .input(y)
                .run_one();
          };
          const Result<Tensor> got = run(""), want = run("reference");
          ASSERT_TRUE(got.ok()) << got.status().to_string();
          EXPECT_TRUE(same_numbers(*got, want.value()));
        }
      }
    }
  });
}

TEST(BatchMatMul, AdjointConjugates) {
  const Tensor x = Tensor::of<Complex64>({1, 1, 1}, {{1, 2}}),
               y = Tensor::of<Complex64>({1, 1, 1}, {{3, 1}});
  const Tensor z = OpTester("BatchMatMul").attr("adj_x", true).input(x).input(y).run_one().value();
  EXPECT_EQ(z.item<Complex64>(), Complex64(5, -5));
}

TEST(BatchMatMul, Broadcasts) {
  const Tensor x = Tensor::of<float>({2, 1, 1, 2}, {1, 2, 3, 4});
  const Tensor y = Tensor::of<float>({3, 2, 1}, {1, 1, 1, 0, 0, 1});
  const Tensor z = OpTester("BatchMatMulV2").input(x).input(y).run_one().value();
  EXPECT_TRUE(bit_equal(z, Tensor::of<float>({2, 3, 1, 1}, {3, 1, 2, 7, 3, 4})));
  EXPECT_NE(error_of(OpTester("BatchMatMul").input(x).input(y)).find("batch dimensions"),
            std::string::npos);
}

TEST(BatchMatMul, BadInputs) {
  const Tensor x = Tensor::of<float>({1, 2, 1}, {1, 2}), vector = Tensor::vector<float>({1, 2});
  EXPECT_NE(error_of(OpTester("BatchMatMul").input(x).input(x)).find("inner dimensions differ"),
            std::string::npos);
  EXPECT_NE(error_of(OpTester("BatchMatMul").input(x).input(vector)).find("rank 2"),
            std::string::npos);
}

TEST(BatchMatMul, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "BatchMatMul", {}, "[5,2,?];[?,3,4]"), "[5,2,4]");
  EXPECT_EQ(*infer_shapes(ops, "BatchMatMul", {}, "?;[5,3,4]"), "[5,?,4]");
  EXPECT_EQ(*infer_shapes(ops, "BatchMatMul", {{"adj_x", true}}, "[5,3,2];[5,3,4]"), "[5,2,4]");
  EXPECT_EQ(*infer_shapes(ops, "BatchMatMulV2", {}, "[7,1,2,3];[5,3,4]"), "[7,5,2,4]");
  EXPECT_EQ(*infer_shapes(ops, "BatchMatMulV2", {}, "?;[5,3,4]"), "?");
  EXPECT_FALSE(infer_shapes(ops, "BatchMatMul", {}, "[5,2,3];[6,3,4]").ok());
}

}  // namespace
}  // namespace millrace
