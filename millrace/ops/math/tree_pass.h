#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "millrace/ops/math/broadcast.h"
#include "millrace/ops/math/tree_function.h"

namespace millrace {

// Along rows of so many elements a loop that takes one number as it is beats writing it all along.
inline constexpr int64_t kLongRow = 64;

// Stages that are computed together, a block of elements after the other, and where their values
// are. A pass with rows has elements in rows of one length, its blocks are whole rows, and what
// folds them gives values of one element a row. Large: lives on the stack, and only what is in use
// is set.
struct TreeFunction::Pass : TreeFunction::Steps {
  // A value, as a stage reads it: all its elements; or, by_row(), one for each row. Conditions that
  // pick rows are read by their rows as well as as they are.
  static constexpr int kValues = kMaxInputs + kMaxStages;
  static constexpr int kViews = 2 * kValues + kMaxStages;
  static constexpr int by_row(int value) { return kValues + value; }
  static constexpr int condition_of(int stage) { return 2 * kValues + stage; }
  static constexpr bool is_by_row(int view) { return view >= kValues && view < 2 * kValues; }

  enum class Where : uint8_t {
    kDense,      // element i of the pass, or of its rows, is element i there
    kRepeated,   // a single element
    kBroadcast,  // as `plan` says
    kScratch,
    kAs,       // another view, `slot`: it has the same elements
    kEachRow,  // the same row for all of them
  };
  struct View {
    Where where;
    uint8_t size;
    uint8_t slot;
    int8_t plan;
    char* data;
  };
  int64_t n = 0;    // elements
  int64_t row = 0;  // of a row; 0: there are none
  // Rows are so long that a block is a piece of one (RowFold::kPiece): folds give partial results.
  bool in_pieces = false;
  bool streams = false;  // something is written around the caches
  std::array<View, kViews> views;
  std::array<uint8_t, kViews> read;  // the views from outside of the pass
  int num_read = 0;
  int num_slots = 0, num_row_slots = 0;
  uint64_t picks_rows = 0;           // bit by stage
  std::vector<BroadcastPlan> plans;  // of {the pass, the operand}
  double cost = 0;                   // nanoseconds per element

  int64_t block = 0;           // elements
  int64_t slot_bytes = 0;      // from one slot to the next
  int64_t row_slot_bytes = 0;  // the same of those with one element a row, behind the others
  int64_t run = 0;             // blocks do not go past multiples of it; 0: they do
  int64_t blocks_a_run = 1;    // of a run longer than a block

  View& view(int i) { return views[static_cast<size_t>(i)]; }
  const View& view(int i) const { return views[static_cast<size_t>(i)]; }
  void add_step(Do what, int stage, int from, int to) {
    steps[static_cast<size_t>(num_steps++)] = {
        what, static_cast<uint8_t>(stage), static_cast<uint8_t>(from), static_cast<uint8_t>(to)};
  }
  // The view whose elements a view has.
  int root(int i) const { return view(i).where == Where::kAs ? int{view(i).slot} : i; }
  // Reads a tensor of shape `own`, in a pass of shape `shape`.
  Status read_tensor(int to, const Tensor& tensor, const Shape& own, const Shape& shape);
  // Reads a tensor with an element for each row, or a single one.
  void read_rows(int to, const Tensor& tensor);
  void read_as(int to, Where where, size_t size, const void* data);

  // How many elements are computed at once, `largest` bytes each at most.
  void choose_block(int64_t largest);
  int64_t num_blocks() const { return run == 0 ? (n + block - 1) / block : n / run * blocks_a_run; }
  // The elements of block i.
  std::pair<int64_t, int64_t> range(int64_t i) const;
  int64_t scratch_bytes() const { return num_slots * slot_bytes + num_row_slots * row_slot_bytes; }
  // Where a view with a slot is.
  char* slot_of(int i, char* scratch) const {
    const View& v = view(i);
    return is_by_row(i) ? scratch + num_slots * slot_bytes + v.slot * row_slot_bytes
                        : scratch + v.slot * slot_bytes;
  }
  // The elements [begin, end) of a broadcast operand, in its own memory or gathered in `to`, which
  // holds those of the block before if `again`.
  const char* gather(const View& value, int64_t begin, int64_t end, bool again, char* to) const;
};

// A block while it is computed.
struct TreeFunction::Block {
  char* scratch;
  int64_t number;  // of the pass's blocks
  int64_t begin, n;
  int64_t first_row = 0, rows = 0;
  std::array<const void*, Pass::kViews> at;  // by view

  // Where what a view has for the block is to be written.
  char* target(const Pass& pass, int i) const {
    const Pass::View& v = pass.view(i);
    if (v.where == Pass::Where::kScratch) return pass.slot_of(i, scratch);
    return v.data + (Pass::is_by_row(i) ? first_row : begin) * v.size;
  }
  // The same of partial results of rows in pieces.
  char* partial(const Pass& pass, int i) const {
    return pass.view(i).data + number * pass.view(i).size;
  }
};

// The shapes of all values, and the pass of each stage.
struct TreeFunction::Layout {
  // A pass's elements have the shape of a value.
  struct OfPass {
    int shape;
    int64_t row = 0;
    bool in_pieces = false;
    bool alone = false;  // a fold of other dimensions than the last, as its op does it
  };

  static constexpr int64_t kNoRows = -1;  // not along the last dimensions

  std::array<const Shape*, kMaxInputs + kMaxStages> of;  // by value
  std::vector<Shape> stages;
  std::array<int64_t, kMaxStages> row;  // of each fold: how long; 0: there are no elements; kNoRows
  std::array<int8_t, kMaxStages> pass;  // of each stage; passes in the order they run
  std::array<OfPass, kMaxStages> passes;
  int num_passes = 0;
  uint64_t by_row = 0;  // bit by stage: it has one element for each row of its pass
  uint64_t kept = 0;    // bit by stage: read by another pass, or an output

  const Shape& shape(int value) const { return *of[static_cast<size_t>(value)]; }
  const Shape& shape_of_pass(int which) const {
    return shape(passes[static_cast<size_t>(which)].shape);
  }
  int pass_of(int stage) const { return pass[static_cast<size_t>(stage)]; }
  bool is_by_row(int stage) const { return (by_row >> stage & 1) != 0; }
  bool is_kept(int stage) const { return (kept >> stage & 1) != 0; }
};

}  // namespace millrace
