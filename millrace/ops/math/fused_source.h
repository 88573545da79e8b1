#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "millrace/graph/elementwise_tree.h"

namespace millrace {

// A kernel for a GPU that computes a tree of elementwise ops, as text in CUDA: one pass over the
// elements of a shape, to which all operands are broadcast. Ops are those whose formulas stand in
// the tables of elementwise ops, with Cast, Select, BiasAdd, AddN and StopGradient; each is rounded
// as its own kernel rounds.
//
//   extern "C" __global__ void NAME(Words a)
//
// Words is so many uint64: the inputs that are read, the results, the number of packs; of each kRow
// its number of elements, of each kColumn how many elements in a row have one of it; with kStrided
// the sizes of the dimensions, innermost first, and for each such input its strides.
struct FusedForm {
  // How an input is read for element i of the result: x[i], x[0], x[i % n], x[i / n], or by
  // strides.
  enum class Access : uint8_t { kUnused, kDense, kSingle, kRow, kColumn, kStrided };
  static constexpr int kMaxRank = 8;

  uint32_t results = 0;  // bit by output of the tree: those of this shape
  std::array<Access, ElementwiseTree::kMaxInputs> access = {};
  uint8_t rank = 0;   // of the dimensions that strides are of
  uint8_t pack = 1;   // so many elements are read and written at once
  bool wide = false;  // positions do not fit 32 bits

  bool operator==(const FusedForm&) const = default;
};

// The stages that the outputs with a bit in `results` need: bit by stage.
uint32_t needed_stages(const ElementwiseTree& tree, int num_inputs, uint32_t results);

std::string fused_source(const ElementwiseTree& tree, std::span<const DType> input_types,
                         const FusedForm& form, std::string_view name = "fused");

}  // namespace millrace
