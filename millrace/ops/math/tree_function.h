#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/math/stage_function.h"
#include "millrace/ops/math/sweep_loops.h"
#include "millrace/ops/reduce/row_fold.h"

namespace millrace {

// Computes an ElementwiseTree, a block after the other: all stages of a block, whose intermediate
// values stay in the first-level cache, then the next block. Results are to the bit those of the
// ops one by one, and so are errors. Immutable.
//
// Stages of one shape make a pass; a pass of a smaller shape (the reciprocal of a column, say) runs
// before and on its own, so that broadcasting never multiplies work. What passes need of each other
// is kept in memory of its own.
//
// Stages also fold the last dimensions (Sum, Mean, Prod, Max, Min, All, Any), repeat (BroadcastTo)
// and hand on (StopGradient). A pass then computes whole rows at a time, whose folds are there for
// who reads them in the same pass; rows that are too long for the second-level cache are folded in
// one pass and read in the next.
class TreeFunction {
 public:
  // UNIMPLEMENTED for an op or type that StageFunction cannot compute; INVALID_ARGUMENT where types
  // of stages and outputs contradict each other. `node` is the node with the tree's attributes.
  static Result<TreeFunction> make(const KernelNode& node);

  // What computes the elements of a stage; nothing where it folds, repeats or hands on.
  // UNIMPLEMENTED as make().
  static Result<std::optional<StageFunction>> function_of(const ElementwiseTree::Stage& stage,
                                                          int num_inputs,
                                                          std::span<const DType> operands);

  // Sets the outputs of the node, each over the memory of an input that nobody else needs where
  // that is possible.
  Status compute(KernelContext& ctx) const;

  // `status`, which stage `stage` ended with, with the names of the op and node that it stands for.
  Status failed(int stage, const Status& status) const;

 private:
  static constexpr int kMaxInputs = ElementwiseTree::kMaxInputs;
  static constexpr int kMaxStages = ElementwiseTree::kMaxStages;

  // kSame: what it reads, in its shape or repeated to fill another.
  enum class Kind : uint8_t { kMap, kFold, kSame };
  // What the second operand of such a stage is: none, the sizes to fill, the sizes of as many
  // elements, or where to insert a dimension.
  enum class List : uint8_t { kNone, kSizes, kElements, kDim };
  struct Stage {
    Kind kind = Kind::kMap;
    List list = List::kNone;
    bool keep_dims = false;  // of a fold
    uint8_t size = 0;        // of an element of the result
    StageFunction function;  // of a map
    RowFold fold;
    int first_operand = 0;  // in operands_
    int num_operands = 0;
    int host_operand = -1;  // the input that says which dimensions are folded, or another shape
    int result = -1;        // the output that it is; -1: none
    // When all stages are one pass: the slot of the scratch, and inputs that the output may lie
    // over, the last of them repeated.
    int slot = -1;
    int num_over = 0;
    std::array<int, 3> over = {};

    bool only_moves_dims() const { return list == List::kElements || list == List::kDim; }
    double cost() const {
      return kind == Kind::kMap ? function.cost() : kind == Kind::kFold ? fold.cost() : 0.1;
    }
  };
  // What a pass does with a block. Views are values as stages read them (tree_pass.h).
  enum class Do : uint8_t {
    kMap,      // the stage, over all elements
    kMapRows,  // over one element for each row
    kFold,     // from view `from` to one element for each row
    kSpread,   // repeats in `to` what `from` has for a row, all along it
    kCopy,
    kMapRepeated,  // the stage of two operands, one of which is what view `from` has for the row
    kSweep,        // several stages, as sweep `from` says
  };
  struct Step {
    Do what;
    uint8_t stage, from, to;
  };
  static constexpr uint8_t kNoView = 255;
  // Stages of which each reads the one before it, over a few vectors at a time that stay in
  // registers (SweepLoops). In the end they are folded, or written, or both.
  struct Link {
    uint8_t op, form;  // as in SweepStep
    uint8_t view;      // its other operand
  };
  struct Sweep {
    uint8_t x;             // the view that it begins with
    uint8_t first, count;  // of links
    bool by_rows;          // a row after the other
    uint8_t hints;         // of SweepLoops
    bool only_written;     // nobody reads in the pass what is written
    uint8_t out;           // where it is written
    uint8_t fold;          // where its rows are folded to, by stage fold_stage
    uint8_t fold_stage;
  };
  struct Steps {
    std::array<Step, 2 * kMaxStages> steps;
    std::array<Link, kMaxStages> links;
    std::array<Sweep, kMaxStages> sweeps;
    int num_steps = 0, num_links = 0, num_sweeps = 0;
  };
  struct Pass;
  struct Joins;
  struct Layout;

  static Result<Stage> make_stage(const ElementwiseTree::Stage& stage, int num_inputs,
                                  std::span<const DType> operands);
  // The values whose elements the stage reads.
  std::span<const uint8_t> operands(const Stage& stage) const {
    return {operands_.data() + stage.first_operand, static_cast<size_t>(stage.num_operands)};
  }
  int value_of(int stage) const { return num_inputs_ + stage; }

  void prepare_one_pass();
  bool one_pass(const KernelContext& ctx, int* widest) const;
  Status compute_one_pass(KernelContext& ctx, int widest) const;
  Status compute_passes(KernelContext& ctx) const;
  Status find_shapes(const KernelContext& ctx, Layout& layout) const;
  Result<Shape> find_shape(const KernelContext& ctx, int stage, Layout& layout) const;
  static Result<Shape> find_same_shape(const KernelContext& ctx, const Stage& stage,
                                       const Shape& x);
  static bool picks_rows(const Stage& stage, const Shape& condition, const Shape& result);
  int computes_over(int stage) const;
  bool joins(int stage, int current, Layout& layout) const;
  void make_passes(Layout& layout) const;
  Status run_pass_of(KernelContext& ctx, const Layout& layout, int which,
                     std::span<Tensor> kept) const;
  Status fold_alone(KernelContext& ctx, const Layout& layout, int which,
                    std::span<Tensor> kept) const;
  void drop_unread(const Layout& layout, int which, std::span<Tensor> kept) const;
  Status bind_operand(KernelContext& ctx, const Layout& layout, int which, int stage, int value,
                      bool by_row, std::span<const Tensor> kept, Pass& pass,
                      uint64_t (&bound)[2]) const;
  Status bind_condition(KernelContext& ctx, const Layout& layout, int which, int stage,
                        std::span<const Tensor> kept, Pass& pass) const;
  Status keep(KernelContext& ctx, const Layout& layout, int stage, Tensor& kept) const;
  int repeated_operand(const Layout& layout, int stage, const Pass& pass,
                       const uint64_t (&bound)[2]) const;
  void add_stage(Pass& pass, int stage, bool by_row, int repeated, Tensor* memory) const;
  bool may_lie_over(int stage, int input, const Layout* layout) const;
  void find_over(int stage, const Layout* layout, int& count, std::array<int, 3>& over) const;
  static Result<Tensor*> make_output(KernelContext& ctx, int result, const Shape& shape, int count,
                                     const std::array<int, 3>& over);
  void join_steps(Pass& pass) const;
  void add_sweep(const Pass& pass, const Joins& joins, int last, Steps& to) const;
  static void give_hints(Pass& pass);
  static void read_in_place(Pass& pass, const Joins& joins);
  void assign_slots(Pass& pass) const;
  Status run(KernelContext& ctx, Pass& pass) const;
  static void map_rows(const Stage& stage, std::span<const uint8_t> operands, int single,
                       const void* const* at, int64_t rows, int64_t row, char* to);
  struct Block;
  void run_step(const Pass& pass, const Step& step, Block& block) const;
  void run_sweep(const Pass& pass, const Sweep& sweep, Block& block) const;
  void run_row(const Pass& pass, const Sweep& sweep, const float* x, std::span<SweepStep> steps,
               float* out, float* sum) const;
  Status run_blocks(const Pass& pass, int64_t first, int64_t last) const;

  int num_inputs_ = 0;
  std::vector<Stage> stages_;
  std::vector<uint8_t> operands_;                 // values: inputs, then stages
  std::vector<int> results_;                      // the stages that are outputs
  std::vector<DType> types_;                      // of all values
  bool all_map_ = true;                           // no stage folds or repeats
  Steps steps_;                                   // when all stages are one pass
  int num_slots_ = 0;                             // then
  int largest_ = 1;                               // element
  std::vector<std::string> ops_, names_, lines_;  // of the stages, for errors
};

}  // namespace millrace
