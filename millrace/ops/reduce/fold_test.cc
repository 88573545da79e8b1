#include "millrace/ops/reduce/fold.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

template <class A>
void expect_same_bits(Isa isa) {
  const auto& expected = isa_table<FoldTable<A>>(Isa::kBaseline).loops;
  const auto& actual = isa_table<FoldTable<A>>(isa).loops;
  const Tensor x = random_tensor(dtype_of<A>, {kFoldBlock}, 3);
  const A* data = x.data<A>().data();
  for (int op = 0; op < 4; ++op) {
    for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 200, 1000, 2048}) {
      A wanted, got;
      expected[op].rows(data, 1, n, &wanted);
      actual[op].rows(data, 1, n, &got);
      EXPECT_EQ(std::memcmp(&wanted, &got, sizeof(A)), 0) << "op " << op << ", n " << n;
    }
    for (int64_t rows = 0; rows < 10; ++rows) {
      for (int64_t cols : {1, 7, 16, 37, 64, 100, 128}) {
        const int64_t stride = cols + 3;
        std::vector<A> wanted(data, data + cols), got = wanted;
        expected[op].columns(wanted.data(), data + cols, rows, stride, cols);
        actual[op].columns(got.data(), data + cols, rows, stride, cols);
        EXPECT_EQ(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(A)), 0)
            << "op " << op << ", " << rows << " rows, " << cols << " columns";
      }
    }
  }
}

TEST(Fold, SameBitsOnEveryInstructionSet) {
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    SCOPED_TRACE(isa_name(isa));
    expect_same_bits<float>(isa);
    expect_same_bits<double>(isa);
    expect_same_bits<int64_t>(isa);
  }
}

}  // namespace
}  // namespace millrace
