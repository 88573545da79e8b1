// Folds of rows in parts: to the bit what the ops give for a whole tensor.

#include "millrace/ops/reduce/row_fold.h"

#include <gtest/gtest.h>

#include <vector>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

Tensor numbers(DType type, const Shape& shape) {
  std::vector<Complex128> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(type == DType::kBool ? static_cast<double>(i % 7 != 3)
                                          : static_cast<double>(i * 37 % 101) / 8);
  }
  return make_tensor(type, shape, values);
}

TEST(RowFold, IsTheOp) {
  for (const char* op : {"Sum", "Mean", "Prod", "Max", "Min", "All", "Any"}) {
    for (DType type :
         {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16, DType::kInt8,
          DType::kUInt16, DType::kInt32, DType::kInt64, DType::kUInt64, DType::kBool}) {
      const Result<RowFold> fold = RowFold::make(op, type);
      ASSERT_EQ(fold.ok(), (type == DType::kBool) == (op[0] == 'A')) << str_cat(op, " of ", type);
      if (!fold.ok()) continue;
      for (int64_t n : {1, 2, 15, 17, 64, 100, 2048, 2049, 5000}) {
        SCOPED_TRACE(str_cat(op, " of ", type, ", ", n, " a row"));
        const Tensor x = numbers(type, Shape{5, n});
        const Tensor expected =
            OpTester(op).input(x).input(Tensor::scalar<int32_t>(1)).run_one().value();
        Tensor rows = Tensor::zeros(type, Shape{5}).value(), pieces = rows.clone().value();
        fold->rows(x.raw(), 5, n, rows.mutable_raw());
        EXPECT_TRUE(bit_equal(rows, expected));
        const auto at = [&](Tensor& t, int64_t i) {
          return static_cast<char*>(t.mutable_raw()) + i * static_cast<int64_t>(dtype_size(type));
        };
        Tensor source = x.clone().value();
        for (int64_t r = 0; r < 5; ++r) {
          std::vector<char> partials;
          for (int64_t from = 0; from < n; from += RowFold::kPiece) {
            partials.resize(partials.size() + fold->partial_bytes());
            fold->piece(at(source, r * n + from), std::min(RowFold::kPiece, n - from),
                        partials.data() + partials.size() - fold->partial_bytes());
          }
          fold->finish(partials.data(), n, at(pieces, r));
        }
        // A row of one element is left as it is.
        if (n > 1) {
          EXPECT_TRUE(bit_equal(pieces, expected));
        }
      }
    }
  }
}

TEST(RowFold, OfMorePiecesThanABlock) {
  constexpr int64_t kLength = 2048 * 2048 + 3;
  const Tensor x = numbers(DType::kFloat, Shape{kLength});
  const RowFold fold = RowFold::make("Sum", DType::kFloat).value();
  std::vector<float> partials;
  const float* data = x.data<float>().data();
  for (int64_t from = 0; from < kLength; from += RowFold::kPiece) {
    fold.piece(data + from, std::min(RowFold::kPiece, kLength - from), &partials.emplace_back());
  }
  float sum = 0;
  fold.finish(partials.data(), kLength, &sum);
  EXPECT_EQ(
      sum,
      OpTester("Sum").input(x).input(Tensor::scalar<int32_t>(0)).run_one().value().item<float>());
}

TEST(RowFold, OfNothing) {
  float out[2];
  RowFold::make("Prod", DType::kFloat)->fill_empty(out, 2);
  EXPECT_EQ(out[1], 1);
}

}  // namespace
}  // namespace millrace
