#include "millrace/ops/reduce/fold.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "millrace/base/isa.h"
#include "millrace/ops/reduce/fold_loops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

struct Named {
  const char* name;
  const FoldTable* table;
};

// The tables that this machine can run, besides the baseline.
std::vector<Named> vector_tables() {
  std::vector<Named> tables;
#if defined(__x86_64__)
  if (machine_isa() >= Isa::kAvx2) tables.push_back({"avx2", &kFoldAvx2});
  if (machine_isa() >= Isa::kAvx512) tables.push_back({"avx512", &kFoldAvx512});
#endif
  return tables;
}

template <class A>
void expect_same_bits(const FoldLoops<A> (&expected)[4], const FoldLoops<A> (&actual)[4]) {
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
      for (int64_t cols : {1, 7, 16, 37}) {
        std::vector<A> wanted(data, data + cols), got = wanted;
        expected[op].columns(wanted.data(), data + cols, rows, 40, cols);
        actual[op].columns(got.data(), data + cols, rows, 40, cols);
        EXPECT_EQ(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(A)), 0)
            << "op " << op << ", " << rows << " rows, " << cols << " columns";
      }
    }
  }
}

TEST(Fold, SameBitsOnEveryInstructionSet) {
  const FoldTable& baseline = MR_ISA_NAMESPACE::kFoldTable;
  for (const Named& other : vector_tables()) {
    SCOPED_TRACE(other.name);
    expect_same_bits(baseline.f32, other.table->f32);
    expect_same_bits(baseline.f64, other.table->f64);
    expect_same_bits(baseline.i64, other.table->i64);
  }
}

}  // namespace
}  // namespace millrace
