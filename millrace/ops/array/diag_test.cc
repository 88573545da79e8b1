// MatrixDiag MatrixDiagPart MatrixSetDiag with V2 and V3, Diag DiagPart MatrixBandPart.

#include <gtest/gtest.h>

#include <optional>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}
void refused(const Result<Tensor>& result, std::string_view part) {
  expect_error(result.status(), Code::kInvalidArgument, part);
}
Tensor scalar(int32_t value) { return Tensor::scalar(value); }

const char* const kAligns[] = {"LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"};

// Where element `place` of diagonal d of a matrix lies: its row; nothing for padding.
std::optional<int64_t> row_of(int64_t rows, int64_t cols, int64_t d, int64_t longest, int64_t place,
                              std::string_view align) {
  const int64_t length = std::min(rows + std::min<int64_t>(d, 0), cols - std::max<int64_t>(d, 0));
  const bool left = (d >= 0 && align.starts_with("LEFT")) || (d <= 0 && align.ends_with("LEFT"));
  const int64_t i = left ? place : place - (longest - length);
  if (i < 0 || i >= length) return {};
  return i + std::max<int64_t>(-d, 0);
}

TEST(MatrixDiag, RangesInEveryTypeAndBack) {
  const int64_t rows = 3, cols = 4;
  for (const auto& band : {std::pair<int, int>{-1, 2}, {-2, -1}, {0, 3}, {1, 1}}) {
    const int lower = band.first, upper = band.second;
    for (const char* align : kAligns) {
      for (DType dtype : moved_types()) {
        const Tensor x = random_tensor(dtype, {2, rows, cols}, 1);
        const Tensor padding = Tensor::zeros(dtype, Shape()).value();
        const Tensor k = int_vector({lower, upper});
        const int64_t count = upper - lower + 1;
        const int64_t longest =
            std::min(rows + std::min<int64_t>(upper, 0), cols - std::max<int64_t>(lower, 0));
        const Tensor part = *OpTester("MatrixDiagPartV3")
                                 .attr("align", align)
                                 .input(x)
                                 .input(k)
                                 .input(padding)
                                 .run_one();
        const Tensor want = pick(x, {2, count, longest}, [&](const Index& at) {
          const int64_t d = upper - at[1];
          const std::optional<int64_t> row = row_of(rows, cols, d, longest, at[2], align);
          return row ? flat_index(x.shape(), {at[0], *row, *row + d}) : -1;
        });
        expect_tensor_equal(part, count == 1 ? *want.reshaped({2, longest}) : want);
        // Back into another matrix: those diagonals are x's, the rest is not.
        const Tensor other = random_tensor(dtype, {2, rows, cols}, 2);
        const Tensor set = *OpTester("MatrixSetDiagV3")
                                .attr("align", align)
                                .input(other)
                                .input(part)
                                .input(k)
                                .run_one();
        const auto on_diagonal = [&](const Index& at) {
          return at[2] - at[1] >= lower && at[2] - at[1] <= upper;
        };
        for (int64_t b = 0; b < 2; ++b) {
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) {
              const Tensor& from = on_diagonal({b, r, c}) ? x : other;
              expect_tensor_equal(set.row(b).row(r).row(c), from.row(b).row(r).row(c));
            }
          }
        }
        const Tensor made = *OpTester("MatrixDiagV3")
                                 .attr("align", align)
                                 .input(part)
                                 .input(k)
                                 .input(scalar(rows))
                                 .input(scalar(cols))
                                 .input(padding)
                                 .run_one();
        expect_tensor_equal(made, pick(x, x.shape(), [&](const Index& at) {
                              return on_diagonal(at) ? flat_index(x.shape(), at) : -1;
                            }));
      }
    }
  }
}

TEST(MatrixDiag, PaddingAndSizes) {
  const auto make = [](const Tensor& x, const Index& k, int rows, int cols) {
    return OpTester("MatrixDiagV3")
        .input(x)
        .input(int_vector(k))
        .input(scalar(rows))
        .input(scalar(cols))
        .input(Tensor::scalar(9.0F))
        .run_one();
  };
  const Tensor two = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor one = Tensor::vector<float>({1, 2});
  expect_tensor_equal(*make(two, {-1, 0}, -1, -1),
                      Tensor::of<float>({3, 3}, {1, 9, 9, 4, 2, 9, 9, 5, 3}));
  expect_tensor_equal(*make(one, {1}, -1, -1),
                      Tensor::of<float>({3, 3}, {9, 1, 9, 9, 9, 2, 9, 9, 9}));
  expect_tensor_equal(*make(one, {1}, 2, -1), Tensor::of<float>({2, 3}, {9, 1, 9, 9, 9, 2}));
  EXPECT_EQ(make(one, {1}, 2, 5)->shape(), (Shape{2, 5}));
  refused(make(one, {1}, 5, 5), "not consistent");
  refused(make(one, {1}, 1, 5), "rows is too small");
  refused(make(one, {1}, 2, 2), "columns is too small");
  refused(make(two, {1, 3}, -1, -1), "number of diagonals");
  refused(make(two, {1, 0}, -1, -1), "must not be larger than upper_diag_index: 1 > 0");
  refused(make(two, {1, 2, 3}, -1, -1), "one or two elements");
  refused(make(one, {0, 1}, -1, -1), "rank 2 or more");
}

TEST(MatrixDiag, OldForms) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3, 2}, 1);
  const Tensor part = *OpTester("MatrixDiagPart").input(x).run_one();
  expect_tensor_equal(part, pick(x, {2, 2}, [&](const Index& at) {
                        return flat_index(x.shape(), {at[0], at[1], at[1]});
                      }));
  expect_tensor_equal(*OpTester("MatrixDiag").input(part).run_one(),
                      pick(x, {2, 2, 2}, [&](const Index& at) {
                        return at[1] == at[2] ? flat_index(x.shape(), at) : -1;
                      }));
  const Tensor ones = make_tensor(DType::kFloat, {2, 3, 2}, std::vector<Complex128>(12, 1));
  expect_tensor_equal(*OpTester("MatrixDiagPart")
                           .input(*OpTester("MatrixSetDiag").input(ones).input(part).run_one())
                           .run_one(),
                      part);
  EXPECT_EQ(
      OpTester("MatrixDiag").input(random_tensor(DType::kFloat, {2, 0}, 1)).run_one()->shape(),
      (Shape{2, 0, 0}));
  EXPECT_EQ(
      OpTester("MatrixDiagPart").input(random_tensor(DType::kFloat, {0, 3}, 1)).run_one()->shape(),
      (Shape{0}));
  const Tensor number = Tensor::scalar(1.0F);
  refused(OpTester("MatrixDiag").input(number).run_one(), "");
  refused(OpTester("MatrixDiagPart").input(number).run_one(), "");
  refused(OpTester("MatrixSetDiag").input(x).input(x).run_one(), "diagonal must have shape [2,2]");
  refused(OpTester("MatrixDiagPartV3").input(x).input(scalar(2)).input(number).run_one(),
          "out of bound: it must be between -3 and 2");
  EXPECT_EQ(*shapes("MatrixDiag", "[2,?]"), "[2,?,?]");
  EXPECT_EQ(*shapes("MatrixDiagPart", "[2,3,4]"), "[2,3]");
  EXPECT_EQ(*shapes("MatrixDiagPartV3", "[2,3,4];[2];[]"), "?");
  EXPECT_EQ(*shapes("MatrixSetDiag", "[2,?,4];[2,?]"), "[2,?,4]");
}

TEST(Diag, BothWays) {
  for (DType dtype : kernel_types("Diag")) {
    const Tensor x = make_tensor(dtype, {2, 2}, {1, 2, 3, 4});
    const Tensor y = *OpTester("Diag").input(x).run_one();
    expect_tensor_equal(
        y, make_tensor(dtype, {2, 2, 2, 2}, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4}));
    expect_tensor_equal(*OpTester("DiagPart").input(y).run_one(), x);
  }
  EXPECT_EQ(OpTester("Diag").input(random_tensor(DType::kFloat, {0}, 1)).run_one()->shape(),
            (Shape{0, 0}));
  refused(OpTester("Diag").input(Tensor::scalar(1.0F)).run_one(), "rank 1");
  refused(OpTester("DiagPart").input(random_tensor(DType::kFloat, {2}, 1)).run_one(), "even rank");
  refused(OpTester("DiagPart").input(random_tensor(DType::kFloat, {2, 3}, 1)).run_one(), "halves");
  EXPECT_EQ(*shapes("DiagPart", "[2,?,?,3]"), "[2,3]");
}

TEST(MatrixBandPart, EveryBand) {
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, {2, 3, 4}, 1);
    for (int64_t lower = -1; lower <= 3; ++lower) {
      for (int64_t upper = -1; upper <= 4; ++upper) {
        const Tensor y = *OpTester("MatrixBandPart")
                              .input(x)
                              .input(Tensor::scalar(lower))
                              .input(Tensor::scalar(upper))
                              .run_one();
        expect_tensor_equal(y, pick(x, x.shape(), [&](const Index& at) {
                              const bool in = (lower < 0 || at[1] - at[2] <= lower) &&
                                              (upper < 0 || at[2] - at[1] <= upper);
                              return in ? flat_index(x.shape(), at) : -1;
                            }));
      }
    }
  }
  const auto band = [](Shape shape, int32_t lower, int32_t upper) {
    return OpTester("MatrixBandPart")
        .input(random_tensor(DType::kFloat, shape, 1))
        .input(scalar(lower))
        .input(scalar(upper))
        .run_one();
  };
  EXPECT_EQ(band({0, 3}, 0, 0)->shape(), (Shape{0, 3}));
  EXPECT_EQ(band({3, 0}, 0, 0)->shape(), (Shape{3, 0}));
  refused(band({3, 4}, 5, 0), "num_lower must be negative or less or equal");
  refused(band({3, 4}, 0, 5), "num_upper");
  refused(band({3}, 0, 0), "");
}

}  // namespace
}  // namespace millrace
