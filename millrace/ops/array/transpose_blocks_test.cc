#include "millrace/ops/array/transpose_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <random>

#include "millrace/base/isa.h"

namespace millrace {
namespace {

constexpr size_t kLine = 64;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Lines = std::unique_ptr<T[], Free>;

// At the start of a cache line.
template <class T>
Lines<T> allocate_lines(int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * sizeof(T);
  return Lines<T>(static_cast<T*>(std::aligned_alloc(kLine, (bytes + kLine) / kLine * kLine)));
}

// Rows and columns transposed, and nothing else written.
template <class T>
void expect_transposed(const TransposeBlocks& table, int64_t rows, int64_t columns, int64_t gap,
                       bool around_cache) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << columns << " columns of " << sizeof(T)
                                  << " bytes, gap " << gap << ", around cache " << around_cache);
  const int64_t from_stride = columns + gap, to_stride = rows + gap;
  const Lines<T> from = allocate_lines<T>(rows * from_stride);
  const Lines<T> to = allocate_lines<T>(columns * to_stride);
  std::mt19937_64 random(3);
  std::generate_n(from.get(), rows * from_stride, [&] { return static_cast<T>(random()); });
  std::fill_n(to.get(), columns * to_stride, T{7});
  constexpr int kSize = std::bit_width(sizeof(T)) - 1;
  table.run[kSize]({from.get(), from_stride, to.get(), to_stride, rows, columns}, around_cache);
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < to_stride; ++i) {
      const T wanted = i < rows ? from[static_cast<size_t>(i * from_stride + j)] : T{7};
      ASSERT_EQ(to[static_cast<size_t>(j * to_stride + i)], wanted) << i << ", " << j;
    }
  }
}

template <class T>
class TransposeBlocksTest : public testing::Test {};
using Types = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(TransposeBlocksTest, Types);

TYPED_TEST(TransposeBlocksTest, EveryShapeOnEveryInstructionSet) {
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const TransposeBlocks& table = isa_table<TransposeBlocks>(isa);
    for (int64_t rows : {1, 3, 8, 17, 64, 128, 191}) {
      for (int64_t columns : {1, 2, 16, 33, 64, 128, 150}) {
        for (int64_t gap : {0, 3, 64}) {
          for (bool around : {false, true}) {
            expect_transposed<TypeParam>(table, rows, columns, gap, around);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
