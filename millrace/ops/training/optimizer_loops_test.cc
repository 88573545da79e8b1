#include "millrace/ops/training/optimizer_loops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

template <class T>
void expect_same_bits(int rule, bool flag, DType dtype) {
  constexpr int64_t kRows = 5, kWidth = 37;
  constexpr size_t kElements = kRows * kWidth;
  std::mt19937 random(11);
  const auto numbers = [&](size_t n) {
    std::vector<T> values;
    for (size_t i = 0; i < n; ++i) values.push_back(static_cast<T>(random() % 1000 + 1) / T(700));
    return values;
  };
  std::vector<std::vector<T>> start;
  for (int k = 0; k < OptimizerInfo::kMaxSlots; ++k) start.push_back(numbers(kElements));
  std::vector<T> grad = numbers(kElements), scalars = numbers(OptimizerInfo::kMaxArguments);
  for (T& s : scalars) s = s / 2 - T(0.01);
  for (T& g : grad) g -= T(0.7);
  const int64_t targets[] = {4, 0, 4}, sources[] = {1, 2, 0};
  const ApplyRows rows = {targets, sources, 3, kWidth, kWidth};

  std::vector<std::vector<T>> first;
  double first_squares[2] = {};
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const ApplyLoop apply = isa_table<OptimizerLoops>(isa).apply(rule, flag, dtype);
    const NormLoop norm = isa_table<OptimizerLoops>(isa).norm(rule, dtype);
    std::vector<std::vector<T>> slots = start;
    void* pointers[OptimizerInfo::kMaxSlots];
    for (size_t k = 0; k < slots.size(); ++k) pointers[k] = slots[k].data();
    double squares[2] = {};
    if (norm != nullptr) {
      norm(pointers, grad.data(), scalars.data(), kElements, squares);
      EXPECT_GT(squares[1], 0);
      EXPECT_EQ(slots, start);
    }
    apply(rows, pointers, grad.data(), scalars.data());
    EXPECT_NE(slots[0], start[0]);
    if (first.empty()) {
      first = slots;
      std::memcpy(first_squares, squares, sizeof squares);
      continue;
    }
    for (size_t k = 0; k < slots.size(); ++k) {
      EXPECT_EQ(std::memcmp(slots[k].data(), first[k].data(), kElements * sizeof(T)), 0) << k;
    }
    EXPECT_EQ(std::memcmp(squares, first_squares, sizeof squares), 0);
  }
}

TEST(OptimizerLoops, EveryInstructionSetGivesTheSameBits) {
  for (int rule = 0; rule < num_optimizers(); ++rule) {
    for (bool flag : {false, true}) {
      SCOPED_TRACE(str_cat(optimizer_info(rule).name, " ", flag));
      expect_same_bits<float>(rule, flag, DType::kFloat);
      expect_same_bits<double>(rule, flag, DType::kDouble);
    }
  }
}

}  // namespace
}  // namespace millrace
