#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/linalg/einsum_labels.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_linalg_ops});

Result<Tensor> einsum(std::string_view equation, std::vector<Tensor> inputs) {
  return OpTester("Einsum").attr("equation", equation).input_list(std::move(inputs)).run_one();
}

TEST(Einsum, TakesDiagonalsAndSums) {
  const Tensor x = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  expect_tensor_equal(*einsum("ii->i", {x}), Tensor::vector<float>({1, 4}));
  expect_tensor_equal(*einsum("ii->", {x}), Tensor::scalar(5.F));
  expect_tensor_equal(*einsum("ij,ii->j", {x, x}), Tensor::vector<float>({13, 18}));
}

TEST(Einsum, WritesDiagonals) {
  const Tensor x = Tensor::vector<float>({1, 2});
  expect_tensor_equal(*einsum("i->ii", {x}), Tensor::of<float>({2, 2}, {1, 0, 0, 2}));
  expect_tensor_equal(*einsum("i,j->jij", {x, Tensor::vector<float>({3, 4})}),
                      Tensor::of<float>({2, 2, 2}, {3, 0, 6, 0, 0, 4, 0, 8}));
  expect_tensor_equal(*einsum("i->ii", {Tensor::vector<float>({5})}),
                      Tensor::of<float>({1, 1}, {5}));
}

TEST(Einsum, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* bad : {"", "ij", "ij->ik", "ijk->i", "i->i", "ij,jk->ik", "i1->i", "i.j->i",
                          "......->", "ij->i->j"}) {
    EXPECT_EQ(einsum(bad, {x}).status().code(), Code::kInvalidArgument) << bad;
  }
  for (const char* bad : {"ij,ij,ij->ij", "ij->ij", "ij,ji->i"}) {
    EXPECT_EQ(einsum(bad, {x, x}).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Einsum, EquationsOfOtherInputsAreRefusedBeforeRanksAreKnown) {
  EXPECT_FALSE(einsum_sides("ij,jk->ik", 1).ok());
  EXPECT_FALSE(einsum_sides("ij->ij", 255).ok());
  EXPECT_FALSE(einsum_sides("i,j,k->ijk", 3).ok());
}

}  // namespace
}  // namespace millrace
