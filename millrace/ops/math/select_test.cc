#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <utility>
#include <vector>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/math/select_loops.h"
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

// Every element size and instruction set, with operands that move and that do not, and a result
// that takes the place of one of them.
template <class T>
void expect_selected(const SelectLoops& loops, int64_t n, int64_t t_step, int64_t e_step) {
  constexpr int kSize = std::bit_width(sizeof(T)) - 1;
  std::mt19937 random(6);
  std::vector<T> t, e, out(static_cast<size_t>(n) + 1, T{9});
  std::vector<char> picks;
  for (int64_t i = 0; i < n; ++i) {
    t.push_back(static_cast<T>(random()));
    e.push_back(static_cast<T>(random()));
    picks.push_back(random() % 2);
  }
  const bool* const picked = reinterpret_cast<const bool*>(picks.data());
  loops.run[kSize](picked, {t.data(), t_step}, {e.data(), e_step}, out.data(), n);
  for (size_t i = 0; i < t.size(); ++i) {
    ASSERT_EQ(out[i], picks[i] ? t[t_step == 0 ? 0 : i] : e[e_step == 0 ? 0 : i])
        << i << " of " << n;
  }
  EXPECT_EQ(out.back(), T{9});
  if (t_step == 0 || e_step == 0) return;
  const std::vector<T> wanted(out.begin(), out.end() - 1);
  std::vector<T> over_t = t;
  loops.run[kSize](picked, {over_t.data(), 1}, {e.data(), 1}, over_t.data(), n);
  EXPECT_EQ(over_t, wanted);
}

TEST(Select, LoopsOfEveryInstructionSet) {
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const SelectLoops& loops = isa_table<SelectLoops>(isa);
    for (int64_t n : {1, 15, 64, 131}) {
      for (const auto& [t_step, e_step] : {std::pair(1, 1), std::pair(0, 1), std::pair(1, 0)}) {
        expect_selected<int8_t>(loops, n, t_step, e_step);
        expect_selected<int16_t>(loops, n, t_step, e_step);
        expect_selected<int32_t>(loops, n, t_step, e_step);
        expect_selected<int64_t>(loops, n, t_step, e_step);
      }
    }
  }
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
