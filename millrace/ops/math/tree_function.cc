#include "millrace/ops/math/tree_function.h"

#include <algorithm>
#include <array>

#include "millrace/ops/math/tree_pass.h"

namespace millrace {
namespace {

// The texts of the stages in an attribute of a node that stands for several; empty ones otherwise.
std::vector<std::string> stage_texts(const KernelNode& node, std::string_view attr, size_t count) {
  std::vector<std::string> out;
  if (const AttrValue* value = node.attrs.find(attr)) {
    if (const auto* list = value->get<std::vector<std::string>>()) out = *list;
  }
  out.resize(count);
  return out;
}

}  // namespace

Result<TreeFunction> TreeFunction::make(const KernelNode& node) {
  MR_TRY_ASSIGN(const ElementwiseTree tree, ElementwiseTree::read(node.attrs, node.num_inputs()));
  TreeFunction f;
  f.num_inputs_ = node.num_inputs();
  for (DType type : node.input_types) f.types_.push_back(base_type(type));
  for (const ElementwiseTree::Stage& stage : tree.stages) {
    std::vector<DType> read;
    for (int o : stage.operands) read.push_back(f.types_[static_cast<size_t>(o)]);
    MR_TRY_ASSIGN(Stage made, make_stage(stage, f.num_inputs_, read));
    made.first_operand = static_cast<int>(f.operands_.size());
    for (int o : std::span(stage.operands).first(static_cast<size_t>(made.num_operands))) {
      f.operands_.push_back(static_cast<uint8_t>(o));
      f.largest_ =
          std::max(f.largest_, static_cast<int>(dtype_size(f.types_[static_cast<size_t>(o)])));
    }
    f.largest_ = std::max(f.largest_, int{made.size});
    f.all_map_ &= made.kind == Kind::kMap;
    f.types_.push_back(stage.type);
    f.stages_.push_back(made);
    f.ops_.push_back(stage.op);
  }
  if (static_cast<int>(tree.results.size()) != node.num_outputs()) {
    return invalid_argument("'results' must name a stage for each of ", node.num_outputs(),
                            " outputs, got ", tree.results.size());
  }
  for (size_t i = 0; i < tree.results.size(); ++i) {
    const int s = tree.results[i];
    if (tree.stages[static_cast<size_t>(s)].type != node.output_types[i]) {
      return invalid_argument("output ", i, " is ", node.output_types[i], ", stage ", s, " gives ",
                              tree.stages[static_cast<size_t>(s)].type);
    }
    f.stages_[static_cast<size_t>(s)].result = static_cast<int>(i);
  }
  if (f.all_map_) f.prepare_one_pass();
  f.names_ = stage_texts(node, kStandsForAttr, f.stages_.size());
  f.lines_ = stage_texts(node, kStandsForLinesAttr, f.stages_.size());
  return f;
}

Result<TreeFunction::Stage> TreeFunction::make_stage(const ElementwiseTree::Stage& stage,
                                                     int num_inputs, std::span<const DType> read) {
  Stage made;
  made.size = static_cast<uint8_t>(dtype_size(stage.type));
  made.num_operands = static_cast<int>(stage.operands.size());
  const bool lists = read.size() == 2 && stage.operands[1] < num_inputs && read[0] == stage.type &&
                     is_plain(stage.type) && kIndexTypes.contains(read[1]);
  if (stage.op == "StopGradient" && read.size() == 1 && read[0] == stage.type &&
      is_plain(read[0])) {
    made.kind = Kind::kSame;
    return made;
  }
  made.list = stage.op == "BroadcastTo"  ? List::kSizes
              : stage.op == "Reshape"    ? List::kElements
              : stage.op == "ExpandDims" ? List::kDim
                                         : List::kNone;
  if (made.list != List::kNone && lists) {
    made.kind = Kind::kSame;
  } else if (lists) {
    if (Result<RowFold> fold = RowFold::make(stage.op, stage.type); fold.ok()) {
      made.kind = Kind::kFold;
      made.keep_dims = stage.keep_dims;
      made.fold = *fold;
    }
  }
  if (made.kind != Kind::kMap) {
    made.num_operands = 1;
    made.host_operand = stage.operands[1];
    return made;
  }
  if (stage.keep_dims) return invalid_argument(stage.op, " has no dimensions to keep");
  MR_TRY_ASSIGN(made.function, StageFunction::make(stage.op, read, stage.type));
  return made;
}

Result<std::optional<StageFunction>> TreeFunction::function_of(const ElementwiseTree::Stage& stage,
                                                               int num_inputs,
                                                               std::span<const DType> operands) {
  MR_TRY_ASSIGN(const Stage made, make_stage(stage, num_inputs, operands));
  return made.kind == Kind::kMap ? std::optional(made.function) : std::nullopt;
}

// Works out what is the same in every run in which all values have one shape.
void TreeFunction::prepare_one_pass() {
  // Inputs are read whether a stage needs them or not.
  for (DType type : types_) largest_ = std::max(largest_, static_cast<int>(dtype_size(type)));
  Pass pass;
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    Stage& stage = stages_[static_cast<size_t>(s)];
    const auto where = stage.result < 0 ? Pass::Where::kScratch : Pass::Where::kDense;
    pass.view(value_of(s)) = {where, stage.size, 0, 0, nullptr};
    pass.add_step(Do::kMap, s, 0, value_of(s));
    if (stage.result >= 0) find_over(s, nullptr, stage.num_over, stage.over);
  }
  for (int i = 0; i < num_inputs_; ++i) pass.view(i).where = Pass::Where::kDense;
  join_steps(pass);
  assign_slots(pass);
  steps_ = pass;
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    stages_[static_cast<size_t>(s)].slot = pass.view(value_of(s)).slot;
  }
  num_slots_ = pass.num_slots;
}

Status TreeFunction::failed(int stage, const Status& status) const {
  const size_t s = static_cast<size_t>(stage);
  if (names_[s].empty()) return status.with_prefix(str_cat("stage ", stage, ", ", ops_[s]));
  Status out = status.with_prefix(str_cat(ops_[s], " \"", names_[s], "\""));
  if (!lines_[s].empty()) out = out.with_line(lines_[s]);
  return out.with_line(str_cat("[[{{node ", names_[s], "}}]]"));
}

Status TreeFunction::compute(KernelContext& ctx) const {
  int widest;
  return all_map_ && one_pass(ctx, &widest) ? compute_one_pass(ctx, widest) : compute_passes(ctx);
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
    pass.read_as(i, dense ? Pass::Where::kDense : Pass::Where::kRepeated, dtype_size(input.dtype()),
                 input.raw());
  }
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    Pass::View& view = pass.view(value_of(s));
    view = {Pass::Where::kScratch, stage.size, static_cast<uint8_t>(stage.slot), 0, nullptr};
    pass.cost += stage.function.cost();
    if (stage.result >= 0) {
      MR_TRY_ASSIGN(Tensor * out,
                    make_output(ctx, stage.result, shape, stage.num_over, stage.over));
      view.where = Pass::Where::kDense;
      view.data = static_cast<char*>(out->mutable_raw());
    }
  }
  static_cast<Steps&>(pass) = steps_;
  for (int i = 0; i < pass.num_sweeps; ++i) {
    Sweep& sweep = pass.sweeps[static_cast<size_t>(i)];
    if (pass.view(sweep.x).where != Pass::Where::kRepeated) continue;
    Link& link = pass.links[sweep.first];
    std::swap(sweep.x, link.view);
    link.form ^= SweepStep::kSwapped;
  }
  return pass.n > 0 ? run(ctx, pass) : ok_status();
}

// Whether element k of the input has been read by all when element k of the stage is written.
// Null layout: all is one pass.
bool TreeFunction::may_lie_over(int stage, int input, const Layout* layout) const {
  const auto pass_of = [&](int s) { return layout == nullptr ? 0 : layout->pass_of(s); };
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

void TreeFunction::find_over(int stage, const Layout* layout, int& count,
                             std::array<int, 3>& over) const {
  count = 0;
  for (int i = 0; i < num_inputs_ && count < static_cast<int>(over.size()); ++i) {
    if (!may_lie_over(stage, i, layout)) continue;
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

}  // namespace millrace
