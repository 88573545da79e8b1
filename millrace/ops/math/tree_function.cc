#include "millrace/ops/math/tree_function.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "millrace/ops/math/broadcast.h"

namespace millrace {
namespace {

// The intermediate values of a block, so that they and the operands' blocks share the first-level
// cache.
constexpr int64_t kScratchBytes = 24 << 10;
constexpr int64_t kMaxBlock = 2048;
// Less work than this is not handed to other threads.
constexpr double kSerialNs = 10000;

// The texts of the stages in an attribute of a node that stands for several; empty ones otherwise.
std::vector<std::string> stage_texts(const KernelNode& node, std::string_view attr, size_t count) {
  std::vector<std::string> out;
  if (const AttrValue* value = node.attrs.find(attr)) {
    if (const auto* list = value->get<std::vector<std::string>>()) out = *list;
  }
  out.resize(count);
  return out;
}

// The same elements in the same order.
bool same_layout(const Shape& a, const Shape& b) {
  if (a.num_elements() != b.num_elements()) return false;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 1; i <= rank; ++i) {
    if ((i <= a.rank() ? a.dim(a.rank() - i) : 1) != (i <= b.rank() ? b.dim(b.rank() - i) : 1))
      return false;
  }
  return true;
}

}  // namespace

// Stages of one shape, and where their values are. Large: lives on the stack, and only what is in
// use is set.
struct TreeFunction::Pass {
  enum class Where : uint8_t {
    kDense,      // element i of the pass is element i there
    kRepeated,   // a single element
    kBroadcast,  // as `plan` says
    kScratch,
  };
  struct Value {
    Where where;
    uint8_t size;
    int8_t slot;
    int8_t plan;
    char* data;
  };

  int64_t n = 0;  // elements
  // By value; after them, by stage, conditions that pick rows: those are read by their rows here
  // and may be read as they are too.
  std::array<Value, kMaxInputs + 2 * kMaxStages> values;
  std::array<uint8_t, kMaxInputs + 2 * kMaxStages> read;  // those from outside of the pass
  int num_read = 0;
  std::array<uint8_t, kMaxStages> stages;
  int num_stages = 0;
  int num_slots = 0;
  uint64_t by_rows = 0;              // bit by stage
  std::vector<BroadcastPlan> plans;  // of {the pass, the operand}
  double cost = 0;                   // nanoseconds per element

  int64_t block = 0;         // elements
  int64_t slot_bytes = 0;    // from one slot to the next
  int64_t run = 0;           // blocks do not go past multiples of it; 0: they do
  int64_t blocks_a_run = 1;  // of a run longer than a block

  static int rows_of(int stage) { return kMaxInputs + kMaxStages + stage; }

  // Reads operand `value`, a tensor of shape `own`, in a pass of shape `shape`.
  Status read_value(int value, const Tensor& tensor, const Shape& own, const Shape& shape) {
    const size_t size = dtype_size(tensor.dtype());
    if (own.num_elements() == n) {
      read_value(value, Where::kDense, size, tensor.raw());
    } else if (own.num_elements() == 1) {
      read_value(value, Where::kRepeated, size, tensor.raw());
    } else {
      MR_TRY_ASSIGN(BroadcastPlan plan, BroadcastPlan::make({&shape, &own}));
      read_value(value, Where::kBroadcast, size, tensor.raw());
      plans.push_back(std::move(plan));
    }
    return ok_status();
  }
  void read_value(int value, Where where, size_t size, const void* data) {
    const bool expanded = where == Where::kRepeated || where == Where::kBroadcast;
    values[static_cast<size_t>(value)] = {
        where, static_cast<uint8_t>(size), static_cast<int8_t>(expanded ? num_slots++ : -1),
        static_cast<int8_t>(plans.size()), static_cast<char*>(const_cast<void*>(data))};
    read[static_cast<size_t>(num_read++)] = static_cast<uint8_t>(value);
  }

  void choose_block(int64_t largest) {
    const int64_t slots = std::max(num_slots, 1);
    block = std::min(kMaxBlock, kScratchBytes / (slots * largest) / 16 * 16);
    slot_bytes = block * largest;
    if (plans.empty()) return;
    run = plans[0].run_length();
    if (run <= block) {
      block = block / run * run;
      run = 0;
    } else {
      blocks_a_run = (run + block - 1) / block;
      block = ((run + blocks_a_run - 1) / blocks_a_run + 15) / 16 * 16;
      blocks_a_run = (run + block - 1) / block;
    }
  }
  int64_t num_blocks() const { return run == 0 ? (n + block - 1) / block : n / run * blocks_a_run; }
  // The elements of block i.
  std::pair<int64_t, int64_t> range(int64_t i) const {
    if (run == 0) return {i * block, std::min(n, (i + 1) * block)};
    const int64_t row = i / blocks_a_run * run, at = i % blocks_a_run * block;
    return {row + at, row + std::min(run, at + block)};
  }

  // The elements [begin, end) of a broadcast operand, in its own memory or gathered in `to`, which
  // holds those of the block before if `again`.
  const char* gather(const Value& value, int64_t begin, int64_t end, bool again, char* to) const {
    const BroadcastPlan& plan = plans[static_cast<size_t>(value.plan)];
    if (again && run == 0 && plan.run_length() < block && block % plan.run_length() == 0 &&
        plan.repeats_every_run(1)) {
      return to;
    }
    if (plan.run_length() < kDirectRun) {
      gather_operand(plan, 1, value.data, value.size, begin, end, to);
      return to;
    }
    const char* found = to;
    plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t count) {
      const char* source = value.data + from[1] * value.size;
      char* target = to + (at - begin) * value.size;
      if (plan.step(1) == 0) {
        fill_elements(target, source, value.size, count);
      } else if (count == end - begin) {
        found = source;
      } else {
        std::memcpy(target, source, static_cast<size_t>(count) * value.size);
      }
    });
    return found;
  }
};

// The shapes of all values when they are not one.
struct TreeFunction::Shapes {
  std::array<const Shape*, kMaxInputs + kMaxStages> of;  // by value
  std::vector<Shape> stages;
  std::vector<int> pass;   // of each stage
  std::vector<int> first;  // stage of a pass; passes in the order they run
  std::vector<bool> kept;  // by stage: read by another pass, or an output
};

Result<TreeFunction> TreeFunction::make(const KernelNode& node) {
  MR_TRY_ASSIGN(const ElementwiseTree tree, ElementwiseTree::read(node.attrs, node.num_inputs()));
  TreeFunction f;
  f.num_inputs_ = node.num_inputs();
  for (DType type : node.input_types) f.types_.push_back(base_type(type));
  for (const ElementwiseTree::Stage& stage : tree.stages) {
    std::vector<DType> operand_types;
    for (int o : stage.operands) operand_types.push_back(f.types_[static_cast<size_t>(o)]);
    MR_TRY_ASSIGN(StageFunction function, StageFunction::make(stage.op, operand_types, stage.type));
    f.types_.push_back(stage.type);
    f.stages_.push_back({function, static_cast<int>(f.operands_.size()),
                         static_cast<int>(stage.operands.size()),
                         static_cast<uint8_t>(dtype_size(stage.type))});
    f.operands_.insert(f.operands_.end(), stage.operands.begin(), stage.operands.end());
    f.ops_.push_back(stage.op);
  }
  for (DType type : f.types_) f.largest_ = std::max(f.largest_, static_cast<int>(dtype_size(type)));
  if (static_cast<int>(tree.results.size()) != node.num_outputs()) {
    return invalid_argument("'results' must name a stage for each of ", node.num_outputs(),
                            " outputs, got ", tree.results.size());
  }
  bool kept[kMaxStages] = {};
  for (size_t i = 0; i < tree.results.size(); ++i) {
    const int s = tree.results[i];
    if (tree.stages[static_cast<size_t>(s)].type != node.output_types[i]) {
      return invalid_argument("output ", i, " is ", node.output_types[i], ", stage ", s, " gives ",
                              tree.stages[static_cast<size_t>(s)].type);
    }
    f.stages_[static_cast<size_t>(s)].result = static_cast<int>(i);
    kept[s] = true;
  }
  f.results_ = tree.results;
  std::array<uint8_t, kMaxStages> all;
  for (size_t s = 0; s < f.stages_.size(); ++s) all[s] = static_cast<uint8_t>(s);
  int8_t slots[kMaxStages];
  f.num_slots_ = f.assign_slots({all.data(), f.stages_.size()}, kept, slots);
  for (size_t s = 0; s < f.stages_.size(); ++s) {
    Stage& stage = f.stages_[s];
    stage.slot = slots[s];
    if (stage.result >= 0) f.find_over(static_cast<int>(s), nullptr, stage.num_over, stage.over);
  }
  f.names_ = stage_texts(node, kStandsForAttr, f.stages_.size());
  f.lines_ = stage_texts(node, kStandsForLinesAttr, f.stages_.size());
  return f;
}

Status TreeFunction::failed(int stage, const Status& status) const {
  const size_t s = static_cast<size_t>(stage);
  if (names_[s].empty()) return status.with_prefix(str_cat("stage ", stage, ", ", ops_[s]));
  Status out = status.with_prefix(str_cat(ops_[s], " \"", names_[s], "\""));
  if (!lines_[s].empty()) out = out.with_line(lines_[s]);
  return out.with_line(str_cat("[[{{node ", names_[s], "}}]]"));
}

// Gives stages, in the order they run, slots of the scratch; one is free again after the last
// reader of its value.
int TreeFunction::assign_slots(std::span<const uint8_t> stages, const bool* kept,
                               int8_t* slots) const {
  std::array<int, kMaxStages> last_reader;
  last_reader.fill(-1);
  // Stages of other passes may be read here: they have none.
  std::fill_n(slots, kMaxStages, int8_t{-1});
  for (uint8_t s : stages) {
    for (uint8_t value : operands(stages_[s])) {
      if (value >= num_inputs_) last_reader[static_cast<size_t>(value - num_inputs_)] = s;
    }
  }
  int count = 0;
  uint64_t free = 0;
  for (uint8_t s : stages) {
    const std::span<const uint8_t> from = operands(stages_[s]);
    uint64_t released = 0;  // by this stage
    int over = -1;          // such a slot that it may write to
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] < num_inputs_) continue;
      const size_t o = static_cast<size_t>(from[i] - num_inputs_);
      if (slots[o] < 0 || last_reader[o] != s) continue;
      released |= uint64_t{1} << slots[o];
      if (stages_[s].function.in_place(static_cast<int>(i)) && stages_[o].size == stages_[s].size)
        over = slots[o];
    }
    if (!kept[s]) {
      if (over < 0 && free != 0) over = std::countr_zero(free);
      if (over < 0) over = count++;
      slots[s] = static_cast<int8_t>(over);
      free &= ~(uint64_t{1} << over);
      released &= ~(uint64_t{1} << over);
    }
    free |= released;
  }
  return count;
}

Status TreeFunction::compute(KernelContext& ctx) const {
  int widest;
  return one_pass(ctx, &widest) ? compute_one_pass(ctx, widest) : compute_passes(ctx);
}

// Whether every input has the shape of input `widest` or is a single element, and all stages have
// that shape.
bool TreeFunction::one_pass(const KernelContext& ctx, int* widest) const {
  int most = 0;
  for (int i = 1; i < num_inputs_; ++i) {
    const Shape& a = ctx.input(most).shape();
    const Shape& b = ctx.input(i).shape();
    if (b.num_elements() > a.num_elements() ||
        (b.num_elements() == a.num_elements() && b.rank() > a.rank()))
      most = i;
  }
  *widest = most;
  const Shape& shape = ctx.input(most).shape();
  uint64_t whole = 0;  // bit by value
  for (int i = 0; i < num_inputs_; ++i) {
    const Shape& own = ctx.input(i).shape();
    if (own == shape) {
      whole |= uint64_t{1} << i;
    } else if (own.num_elements() != 1 || own.rank() > shape.rank()) {
      return false;
    }
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    uint64_t read = 0;
    for (uint8_t value : operands(stages_[s])) read |= uint64_t{1} << value;
    const bool all = (read & ~whole) == 0;
    if ((read & whole) == 0 || !stages_[s].function.takes(all)) return false;
    whole |= uint64_t{1} << value_of(static_cast<int>(s));
  }
  return true;
}

Status TreeFunction::compute_one_pass(KernelContext& ctx, int widest) const {
  const Shape shape = ctx.input(widest).shape();
  Pass pass;
  pass.n = shape.num_elements();
  pass.num_slots = num_slots_;
  for (int i = 0; i < num_inputs_; ++i) {
    const Tensor& input = ctx.input(i);
    const bool dense = input.num_elements() == pass.n;
    pass.read_value(i, dense ? Pass::Where::kDense : Pass::Where::kRepeated,
                    dtype_size(input.dtype()), input.raw());
  }
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    Pass::Value& value = pass.values[static_cast<size_t>(value_of(s))];
    value = {Pass::Where::kScratch, stage.size, static_cast<int8_t>(stage.slot), 0, nullptr};
    pass.cost += stage.function.cost();
    if (stage.result >= 0) {
      MR_TRY_ASSIGN(Tensor * out,
                    make_output(ctx, stage.result, shape, stage.num_over, stage.over));
      value.where = Pass::Where::kDense;
      value.data = static_cast<char*>(out->mutable_raw());
    }
    pass.stages[static_cast<size_t>(pass.num_stages++)] = static_cast<uint8_t>(s);
  }
  if (pass.n > 0) run(ctx, pass);
  return ok_status();
}

Status TreeFunction::find_shapes(const KernelContext& ctx, Shapes& shapes) const {
  for (int i = 0; i < num_inputs_; ++i) shapes.of[static_cast<size_t>(i)] = &ctx.input(i).shape();
  shapes.stages.reserve(stages_.size());  // pointers to them stay
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    std::array<const Shape*, 64> of;
    size_t count = 0;
    for (uint8_t value : operands(stage)) of[count++] = shapes.of[value];
    Result<Shape> shape = stage.function.shape({of.data(), count});
    if (!shape.ok()) return failed(s, shape.status());
    shapes.of[static_cast<size_t>(value_of(s))] = &shapes.stages.emplace_back(std::move(*shape));
  }
  return ok_status();
}

// A stage has at least as many elements as what it reads (or none), so passes in the order of their
// sizes find all that they need.
void TreeFunction::make_passes(Shapes& shapes) const {
  const size_t count = stages_.size();
  for (size_t s = 0; s < count; ++s) {
    const auto same = std::find_if(shapes.first.begin(), shapes.first.end(), [&](int f) {
      return same_layout(shapes.stages[static_cast<size_t>(f)], shapes.stages[s]);
    });
    if (same == shapes.first.end()) shapes.first.push_back(static_cast<int>(s));
  }
  const auto elements = [&](int stage) {
    const int64_t n = shapes.stages[static_cast<size_t>(stage)].num_elements();
    return n == 0 ? INT64_MAX : n;
  };
  std::stable_sort(shapes.first.begin(), shapes.first.end(),
                   [&](int a, int b) { return elements(a) < elements(b); });
  for (size_t s = 0; s < count; ++s) {
    const auto own = std::find_if(shapes.first.begin(), shapes.first.end(), [&](int f) {
      return same_layout(shapes.stages[static_cast<size_t>(f)], shapes.stages[s]);
    });
    shapes.pass.push_back(static_cast<int>(own - shapes.first.begin()));
    shapes.kept.push_back(stages_[s].result >= 0);
    for (uint8_t value : operands(stages_[s])) {
      if (value < num_inputs_) continue;
      const size_t o = static_cast<size_t>(value - num_inputs_);
      if (shapes.pass[o] != shapes.pass[s]) shapes.kept[o] = true;
    }
  }
}

Status TreeFunction::compute_passes(KernelContext& ctx) const {
  Shapes shapes;
  MR_TRY(find_shapes(ctx, shapes));
  make_passes(shapes);
  std::vector<Tensor> kept(stages_.size());
  for (int which = 0; which < static_cast<int>(shapes.first.size()); ++which) {
    MR_TRY(run_pass_of(ctx, shapes, which, kept));
  }
  return ok_status();
}

Status TreeFunction::run_pass_of(KernelContext& ctx, const Shapes& shapes, int which,
                                 std::span<Tensor> kept) const {
  const Shape& shape = shapes.stages[static_cast<size_t>(shapes.first[static_cast<size_t>(which)])];
  Pass pass;
  pass.n = shape.num_elements();
  bool stored[kMaxStages];
  for (size_t s = 0; s < stages_.size(); ++s) {
    stored[s] = shapes.kept[s];
    if (shapes.pass[s] == which) {
      pass.stages[static_cast<size_t>(pass.num_stages++)] = static_cast<uint8_t>(s);
    }
  }
  int8_t slots[kMaxStages];
  pass.num_slots =
      assign_slots({pass.stages.data(), static_cast<size_t>(pass.num_stages)}, stored, slots);
  const auto tensor_of = [&](uint8_t value) -> const Tensor& {
    return value < num_inputs_ ? ctx.input(value) : kept[static_cast<size_t>(value - num_inputs_)];
  };
  uint64_t bound = 0;
  for (int i = 0; i < pass.num_stages; ++i) {
    const uint8_t s = pass.stages[static_cast<size_t>(i)];
    const Stage& stage = stages_[s];
    const std::span<const uint8_t> from = operands(stage);
    for (size_t k = 0; k < from.size() && pass.n > 0; ++k) {
      const uint8_t value = from[k];
      const Shape& own = *shapes.of[value];
      if (k == 0 && stage.function.picks_rows(own, shapes.stages[s])) {
        Shape rows = shapes.stages[s];
        for (int d = 1; d < rows.rank(); ++d) {
          MR_TRY_ASSIGN(rows, rows.with_dim(d, 1));
        }
        MR_TRY(pass.read_value(Pass::rows_of(s), tensor_of(value), rows, shape));
        pass.by_rows |= uint64_t{1} << s;
      } else if ((bound >> value & 1) == 0) {
        MR_TRY(pass.read_value(value, tensor_of(value), own, shape));
        bound |= uint64_t{1} << value;
      }
    }
    Pass::Value& value = pass.values[static_cast<size_t>(value_of(s))];
    value = {Pass::Where::kScratch, stage.size, slots[s], 0, nullptr};
    bound |= uint64_t{1} << value_of(s);
    pass.cost += stage.function.cost();
    if (!shapes.kept[s]) continue;
    value.where = Pass::Where::kDense;
    if (stage.result >= 0) {
      int count = 0;
      std::array<int, 3> over;
      find_over(s, &shapes, count, over);
      MR_TRY_ASSIGN(Tensor * out, make_output(ctx, stage.result, shapes.stages[s], count, over));
      kept[s] = *out;
    } else {
      MR_TRY_ASSIGN(kept[s],
                    ctx.allocate_temp(types_[static_cast<size_t>(value_of(s))], shapes.stages[s]));
    }
    value.data = static_cast<char*>(kept[s].mutable_raw());
  }
  if (pass.n > 0) run(ctx, pass);
  return ok_status();
}

// Whether element k of the input has been read by all when element k of the stage is written.
// Null shapes: all is one pass.
bool TreeFunction::may_lie_over(int stage, int input, const Shapes* shapes) const {
  const auto pass_of = [&](int s) {
    return shapes == nullptr ? 0 : shapes->pass[static_cast<size_t>(s)];
  };
  for (int t = 0; t < static_cast<int>(stages_.size()); ++t) {
    const Stage& reader = stages_[static_cast<size_t>(t)];
    const std::span<const uint8_t> from = operands(reader);
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k] != input) continue;
      if (t == stage) {
        if (!reader.function.in_place(static_cast<int>(k))) return false;
      } else if (pass_of(t) > pass_of(stage) || (pass_of(t) == pass_of(stage) && t > stage)) {
        return false;
      }
    }
  }
  return true;
}

void TreeFunction::find_over(int stage, const Shapes* shapes, int& count,
                             std::array<int, 3>& over) const {
  count = 0;
  for (int i = 0; i < num_inputs_ && count < static_cast<int>(over.size()); ++i) {
    if (!may_lie_over(stage, i, shapes)) continue;
    over[static_cast<size_t>(count++)] = i;
  }
  for (size_t k = static_cast<size_t>(count); count > 0 && k < over.size(); ++k) {
    over[k] = over[k - 1];
  }
}

Result<Tensor*> TreeFunction::make_output(KernelContext& ctx, int result, const Shape& shape,
                                          int count, const std::array<int, 3>& over) {
  if (count == 0) return ctx.allocate_output(result, shape);
  return ctx.forward_or_allocate_output({over[0], over[1], over[2]}, result, shape);
}

void TreeFunction::run(KernelContext& ctx, Pass& pass) const {
  pass.choose_block(largest_);
  const int64_t blocks = pass.num_blocks();
  const double block_cost = pass.cost * static_cast<double>(pass.block);
  if (blocks == 1 || pass.cost * static_cast<double>(pass.n) < kSerialNs) {
    return run_blocks(pass, 0, blocks);
  }
  ctx.parallel_for(blocks, block_cost,
                   [&](int64_t first, int64_t last) { run_blocks(pass, first, last); });
}

void TreeFunction::run_blocks(const Pass& pass, int64_t first, int64_t last) const {
  alignas(64) char scratch[kScratchBytes];
  std::array<const void*, kMaxInputs + 2 * kMaxStages> at;
  const auto slot = [&](const Pass::Value& value) {
    return scratch + value.slot * pass.slot_bytes;
  };
  for (int i = 0; i < pass.num_read; ++i) {
    const size_t v = pass.read[static_cast<size_t>(i)];
    const Pass::Value& value = pass.values[v];
    if (value.where != Pass::Where::kRepeated) continue;
    fill_elements(slot(value), value.data, value.size, std::min(pass.block, pass.n));
    at[v] = slot(value);
  }
  for (int64_t b = first; b < last; ++b) {
    const auto [begin, end] = pass.range(b);
    for (int i = 0; i < pass.num_read; ++i) {
      const size_t v = pass.read[static_cast<size_t>(i)];
      const Pass::Value& value = pass.values[v];
      if (value.where == Pass::Where::kDense) {
        at[v] = value.data + begin * value.size;
      } else if (value.where == Pass::Where::kBroadcast) {
        at[v] = pass.gather(value, begin, end, b > first, slot(value));
      }
    }
    for (int i = 0; i < pass.num_stages; ++i) {
      const uint8_t s = pass.stages[static_cast<size_t>(i)];
      const Stage& stage = stages_[s];
      const Pass::Value& value = pass.values[static_cast<size_t>(value_of(s))];
      char* const to =
          value.where == Pass::Where::kScratch ? slot(value) : value.data + begin * value.size;
      const void* from[64];
      int count = 0;
      for (uint8_t operand : operands(stage)) from[count++] = at[operand];
      if ((pass.by_rows >> s & 1) != 0) from[0] = at[static_cast<size_t>(Pass::rows_of(s))];
      stage.function(from, to, end - begin);
      at[static_cast<size_t>(value_of(s))] = to;
    }
  }
}

}  // namespace millrace
