#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/math/stage_function.h"

namespace millrace {

// Computes an ElementwiseTree, a block after the other: all stages of a block, whose intermediate
// values stay in the first-level cache, then the next block. Results are to the bit those of the
// ops one by one, and so are errors. Immutable.
//
// Stages of one shape make a pass; a pass of a smaller shape (the reciprocal of a column, say) runs
// before and on its own, so that broadcasting never multiplies work. What passes need of each other
// is kept in memory of its own.
class TreeFunction {
 public:
  // UNIMPLEMENTED for an op or type that StageFunction cannot compute; INVALID_ARGUMENT where types
  // of stages and outputs contradict each other. `node` is the node with the tree's attributes.
  static Result<TreeFunction> make(const KernelNode& node);

  // Sets the outputs of the node, each over the memory of an input that nobody else needs where
  // that is possible.
  Status compute(KernelContext& ctx) const;

 private:
  static constexpr int kMaxInputs = ElementwiseTree::kMaxInputs;
  static constexpr int kMaxStages = ElementwiseTree::kMaxStages;

  struct Stage {
    StageFunction function;
    int first_operand;  // in operands_
    int num_operands;
    uint8_t size;     // of an element of the result
    int result = -1;  // the output that it is; -1: none
    // When all stages are one pass: the slot of the scratch, and inputs that the output may lie
    // over, the last of them repeated.
    int slot = -1;
    int num_over = 0;
    std::array<int, 3> over = {};
  };
  struct Pass;
  struct Shapes;

  std::span<const uint8_t> operands(const Stage& stage) const {
    return {operands_.data() + stage.first_operand, static_cast<size_t>(stage.num_operands)};
  }
  int value_of(int stage) const { return num_inputs_ + stage; }
  Status failed(int stage, const Status& status) const;

  bool one_pass(const KernelContext& ctx, int* widest) const;
  Status compute_one_pass(KernelContext& ctx, int widest) const;
  Status compute_passes(KernelContext& ctx) const;
  Status find_shapes(const KernelContext& ctx, Shapes& shapes) const;
  void make_passes(Shapes& shapes) const;
  Status run_pass_of(KernelContext& ctx, const Shapes& shapes, int which,
                     std::span<Tensor> kept) const;
  bool may_lie_over(int stage, int input, const Shapes* shapes) const;
  void find_over(int stage, const Shapes* shapes, int& count, std::array<int, 3>& over) const;
  static Result<Tensor*> make_output(KernelContext& ctx, int result, const Shape& shape, int count,
                                     const std::array<int, 3>& over);
  int assign_slots(std::span<const uint8_t> stages, const bool* kept, int8_t* slots) const;
  void run(KernelContext& ctx, Pass& pass) const;
  void run_blocks(const Pass& pass, int64_t first, int64_t last) const;

  int num_inputs_ = 0;
  std::vector<Stage> stages_;
  std::vector<uint8_t> operands_;                 // values: inputs, then stages
  std::vector<int> results_;                      // the stages that are outputs
  std::vector<DType> types_;                      // of all values
  int num_slots_ = 0;                             // when all stages are one pass
  int largest_ = 1;                               // element
  std::vector<std::string> ops_, names_, lines_;  // of the stages, for errors
};

}  // namespace millrace
