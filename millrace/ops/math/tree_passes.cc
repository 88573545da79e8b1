#include <algorithm>
#include <array>
#include <cstring>

#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/reshape.h"
#include "millrace/ops/math/tree_pass.h"
#include "millrace/ops/reduce/reduce.h"

// Trees whose values have several shapes: which stages make a pass, and what passes hand each
// other.

namespace millrace {
namespace {

// Rows of more bytes do not stay in the second-level cache with all that is made of them.
constexpr int64_t kMaxRowBytes = 64 << 10;
// With fewer rows, threads share the pieces of each, where there are that many elements.
constexpr int64_t kFewRows = 8;
constexpr int64_t kManyElements = 16 << 10;
// With fewer elements, finding chains takes longer than they save.
constexpr int64_t kWorthJoining = 512;

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

// Whether `own`, broadcast to `whole`, is the same all along each row of `row` elements, and
// another one for each.
bool is_one_a_row(const Shape& own, const Shape& whole, int64_t row) {
  int64_t within = 1;
  for (int i = 1; i <= whole.rank(); ++i) {
    const int64_t size = whole.dim(whole.rank() - i);
    if (size == 1) continue;
    const bool inside = within < row;
    if ((i <= own.rank() ? own.dim(own.rank() - i) : 1) != (inside ? 1 : size)) return false;
    if (inside) within *= size;
  }
  return within == row;
}

// The numbers in a list of sizes.
Result<std::vector<int64_t>> read_sizes(const Tensor& list) {
  if (list.rank() != 1) {
    return invalid_argument("a shape must be a vector, got ", list.dtype(), " ", list.shape());
  }
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < list.num_elements(); ++i) numbers.push_back(int_at(list, i));
  return numbers;
}

}  // namespace

Status TreeFunction::find_shapes(const KernelContext& ctx, Layout& layout) const {
  for (int i = 0; i < num_inputs_; ++i) layout.of[static_cast<size_t>(i)] = &ctx.input(i).shape();
  layout.stages.reserve(stages_.size());  // pointers to them stay
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    Result<Shape> shape = find_shape(ctx, s, layout);
    if (!shape.ok()) return failed(s, shape.status());
    layout.of[static_cast<size_t>(value_of(s))] = &layout.stages.emplace_back(std::move(*shape));
  }
  return ok_status();
}

Result<Shape> TreeFunction::find_shape(const KernelContext& ctx, int s, Layout& layout) const {
  const Stage& stage = stages_[static_cast<size_t>(s)];
  const std::span<const uint8_t> from = operands(stage);
  const Shape& x = layout.shape(from[0]);
  switch (stage.kind) {
    case Kind::kMap: {
      std::array<const Shape*, 64> of;
      size_t count = 0;
      for (uint8_t value : from) of[count++] = layout.of[value];
      return stage.function.shape({of.data(), count});
    }
    case Kind::kSame:
      return find_same_shape(ctx, stage, x);
    case Kind::kFold:
      break;
  }
  ReduceDims dims;
  MR_TRY_ASSIGN(Shape shape,
                read_reduction(ctx.input(stage.host_operand), x, stage.keep_dims, dims));
  int64_t& length = layout.row[static_cast<size_t>(s)];
  const int last = dims.count() - 1;
  if (x.num_elements() == 0) {
    length = 0;
  } else if (dims.num_reduced() == 0) {
    length = 1;
  } else if (dims.num_reduced() == 1 && dims.reduced(last)) {
    length = dims.size(last);
  } else {
    length = Layout::kNoRows;
  }
  return shape;
}

// The shape in which a stage hands on what it reads, a tensor of shape x.
Result<Shape> TreeFunction::find_same_shape(const KernelContext& ctx, const Stage& stage,
                                            const Shape& x) {
  if (stage.list == List::kNone) return x;
  const Tensor& list = ctx.input(stage.host_operand);
  if (stage.list == List::kDim) {
    if (list.num_elements() != 1) {
      return invalid_argument("dim must be one number, got shape ", list.shape());
    }
    return with_dim_inserted(x, int_at(list, 0));
  }
  MR_TRY_ASSIGN(std::vector<int64_t> sizes, read_sizes(list));
  if (stage.list == List::kElements) return reshaped(x, sizes);
  MR_TRY_ASSIGN(Shape shape, Shape::make(sizes));
  MR_TRY(check_broadcast_to(x, shape));
  return shape;
}

// Whether the stage may be computed in pass `current`, the last one, when what it reads of stages
// is computed in it or before.
bool TreeFunction::joins(int s, int current, Layout& layout) const {
  Layout::OfPass& pass = layout.passes[static_cast<size_t>(current)];
  const Shape& whole = layout.shape(pass.shape);
  const Stage& stage = stages_[static_cast<size_t>(s)];
  const auto computed_here = [&](int value) {
    return value >= num_inputs_ && layout.pass_of(value - num_inputs_) == current;
  };
  const auto row_made_here = [&](int value) {
    return computed_here(value) && layout.is_by_row(value - num_inputs_);
  };
  const std::span<const uint8_t> from = operands(stage);
  if (pass.alone) return false;
  if (stage.kind == Kind::kFold) {
    const Shape& x = layout.shape(from[0]);
    const int64_t length = layout.row[static_cast<size_t>(s)];
    if (length <= 0 || !same_layout(x, whole) || row_made_here(from[0]) ||
        (pass.row != 0 && pass.row != length)) {
      return false;
    }
    if (pass.row == 0) {
      pass.row = length;
      pass.in_pieces = length * largest_ > kMaxRowBytes ||
                       (x.num_elements() / length < kFewRows && x.num_elements() > kManyElements);
    }
    layout.by_row |= uint64_t{1} << s;
    return true;
  }
  const Shape& own = layout.shape(value_of(s));
  if (same_layout(own, whole)) {
    return std::all_of(from.begin(), from.end(), [&](int value) {
      return !row_made_here(value) ||
             (!pass.in_pieces && is_one_a_row(layout.shape(value), whole, pass.row));
    });
  }
  // One element for each row.
  if (pass.row == 0 || pass.in_pieces || own.num_elements() != whole.num_elements() / pass.row) {
    return false;
  }
  bool any = false;
  for (size_t k = 0; k < from.size(); ++k) {
    const Shape& read = layout.shape(from[k]);
    const bool here = computed_here(from[k]);
    if (here && !row_made_here(from[k])) return false;
    const bool as_many = read.num_elements() == own.num_elements() && stage.only_moves_dims();
    if ((read.num_elements() != 1 || here) && !as_many && !same_layout(read, own)) return false;
    if (k == 0 && stage.kind == Kind::kMap && picks_rows(stage, read, own)) return false;
    any |= here;
  }
  if (any) layout.by_row |= uint64_t{1} << s;
  return any;
}

// Passes of few elements first, so that what is broadcast is computed before, once.
void TreeFunction::make_passes(Layout& layout) const {
  const int count = static_cast<int>(stages_.size());
  layout.pass.fill(-1);
  const auto is_ready = [&](int s) {
    const std::span<const uint8_t> from = operands(stages_[static_cast<size_t>(s)]);
    return layout.pass_of(s) < 0 && std::all_of(from.begin(), from.end(), [&](int value) {
             return value < num_inputs_ || layout.pass_of(value - num_inputs_) >= 0;
           });
  };
  for (int left = count; left > 0;) {
    int64_t fewest = 0;
    int first = -1;
    for (int s = 0; s < count; ++s) {
      if (!is_ready(s)) continue;
      const int64_t n = layout.shape(computes_over(s)).num_elements();
      if (first >= 0 && n >= fewest) continue;
      first = s;
      fewest = n;
    }
    const int current = layout.num_passes++;
    Layout::OfPass& pass = layout.passes[static_cast<size_t>(current)];
    pass.shape = computes_over(first);
    pass.alone = stages_[static_cast<size_t>(first)].kind == Kind::kFold &&
                 layout.row[static_cast<size_t>(first)] == Layout::kNoRows;
    for (int s = first; s < count; ++s) {
      if (!is_ready(s) || (!joins(s, current, layout) && s != first)) continue;
      layout.pass[static_cast<size_t>(s)] = static_cast<int8_t>(current);
      --left;
    }
  }
  for (int s = 0; s < count; ++s) {
    const Stage& stage = stages_[static_cast<size_t>(s)];
    const bool in_pieces = layout.passes[static_cast<size_t>(layout.pass_of(s))].in_pieces;
    if (stage.result >= 0 || (in_pieces && stage.kind == Kind::kFold)) {
      layout.kept |= uint64_t{1} << s;
    }
    for (uint8_t value : operands(stage)) {
      if (value < num_inputs_) continue;
      const int o = value - num_inputs_;
      if (layout.pass_of(o) != layout.pass_of(s)) layout.kept |= uint64_t{1} << o;
    }
  }
}

// The value over whose elements the stage goes.
int TreeFunction::computes_over(int s) const {
  const Stage& stage = stages_[static_cast<size_t>(s)];
  return stage.kind == Kind::kFold ? operands(stage)[0] : value_of(s);
}

bool TreeFunction::picks_rows(const Stage& stage, const Shape& condition, const Shape& result) {
  return condition.num_elements() > 1 && stage.function.picks_rows(condition, result);
}

Status TreeFunction::compute_passes(KernelContext& ctx) const {
  Layout layout;
  MR_TRY(find_shapes(ctx, layout));
  make_passes(layout);
  std::vector<Tensor> kept(stages_.size());
  for (int which = 0; which < layout.num_passes; ++which) {
    MR_TRY(run_pass_of(ctx, layout, which, kept));
    drop_unread(layout, which, kept);
  }
  return ok_status();
}

// Lets go of what no later pass reads.
void TreeFunction::drop_unread(const Layout& layout, int which, std::span<Tensor> kept) const {
  if (which + 1 == layout.num_passes) return;
  uint64_t read = 0;
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    if (layout.pass_of(s) <= which) continue;
    for (uint8_t value : operands(stages_[static_cast<size_t>(s)])) {
      if (value >= num_inputs_) read |= uint64_t{1} << (value - num_inputs_);
    }
  }
  for (size_t s = 0; s < kept.size(); ++s) {
    if ((read >> s & 1) == 0) kept[s] = Tensor();
  }
}

// Sees to it that the pass has what a stage reads. `bound` says what it has, bit by value: values
// as they are, and by row.
Status TreeFunction::bind_operand(KernelContext& ctx, const Layout& layout, int which, int s,
                                  int value, bool by_row, std::span<const Tensor> kept, Pass& pass,
                                  uint64_t (&bound)[2]) const {
  if ((bound[by_row] >> value & 1) != 0) return ok_status();
  bound[by_row] |= uint64_t{1} << value;
  const int own = value - num_inputs_;
  if (own >= 0 && layout.pass_of(own) == which) {
    // One for each row, read by who goes over all elements.
    pass.view(value) = {Pass::Where::kScratch, stages_[static_cast<size_t>(own)].size, 0, 0,
                        nullptr};
    pass.add_step(Do::kSpread, s, Pass::by_row(value), value);
    return ok_status();
  }
  const Tensor& tensor = own < 0 ? ctx.input(value) : kept[static_cast<size_t>(own)];
  if (by_row) {
    pass.read_rows(Pass::by_row(value), tensor);
    return ok_status();
  }
  return pass.read_tensor(value, tensor, layout.shape(value), layout.shape_of_pass(which));
}

// Reads the condition of a Select that picks rows.
Status TreeFunction::bind_condition(KernelContext& ctx, const Layout& layout, int which, int s,
                                    std::span<const Tensor> kept, Pass& pass) const {
  const int value = operands(stages_[static_cast<size_t>(s)])[0];
  Shape rows = layout.shape(value_of(s));
  for (int d = 1; d < rows.rank(); ++d) {
    MR_TRY_ASSIGN(rows, rows.with_dim(d, 1));
  }
  pass.picks_rows |= uint64_t{1} << s;
  const Tensor& condition =
      value < num_inputs_ ? ctx.input(value) : kept[static_cast<size_t>(value - num_inputs_)];
  return pass.read_tensor(Pass::condition_of(s), condition, rows, layout.shape_of_pass(which));
}

// Memory for what others read of a stage.
Status TreeFunction::keep(KernelContext& ctx, const Layout& layout, int s, Tensor& kept) const {
  const Stage& stage = stages_[static_cast<size_t>(s)];
  const Shape& shape = layout.shape(value_of(s));
  if (stage.result < 0) {
    MR_TRY_ASSIGN(kept, ctx.allocate_temp(types_[static_cast<size_t>(value_of(s))], shape));
    return ok_status();
  }
  int count = 0;
  std::array<int, 3> over;
  if (stage.kind == Kind::kMap && !layout.is_by_row(s)) find_over(s, &layout, count, over);
  MR_TRY_ASSIGN(Tensor * out, make_output(ctx, stage.result, shape, count, over));
  kept = *out;
  return ok_status();
}

Status TreeFunction::run_pass_of(KernelContext& ctx, const Layout& layout, int which,
                                 std::span<Tensor> kept) const {
  const Layout::OfPass& about = layout.passes[static_cast<size_t>(which)];
  if (about.alone) return fold_alone(ctx, layout, which, kept);
  Pass pass;
  pass.n = layout.shape_of_pass(which).num_elements();
  pass.row = about.row;
  pass.in_pieces = about.in_pieces;
  uint64_t bound[2] = {};
  std::vector<std::pair<int, Tensor>> partials;  // of stages
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s) {
    if (layout.pass_of(s) != which) continue;
    const Stage& stage = stages_[static_cast<size_t>(s)];
    Tensor& own = kept[static_cast<size_t>(s)];
    if (layout.is_kept(s)) MR_TRY(keep(ctx, layout, s, own));
    if (pass.n == 0) {
      if (stage.kind == Kind::kFold && own.valid()) {
        stage.fold.fill_empty(own.mutable_raw(), own.num_elements());
      }
      continue;
    }
    const bool by_row = layout.is_by_row(s), folds = stage.kind == Kind::kFold;
    const std::span<const uint8_t> from = operands(stage);
    const int repeated = repeated_operand(layout, s, pass, bound);
    for (size_t k = 0; k < from.size(); ++k) {
      if (static_cast<int>(k) == repeated) continue;
      if (k == 0 && stage.kind == Kind::kMap &&
          picks_rows(stage, layout.shape(from[k]), layout.shape(value_of(s)))) {
        MR_TRY(bind_condition(ctx, layout, which, s, kept, pass));
      } else {
        MR_TRY(bind_operand(ctx, layout, which, s, from[k], by_row && !folds, kept, pass, bound));
      }
    }
    bound[by_row] |= uint64_t{1} << value_of(s);
    Tensor partial;
    if (pass.in_pieces && folds) {
      const int64_t pieces = (pass.row + RowFold::kPiece - 1) / RowFold::kPiece;
      const int64_t bytes = static_cast<int64_t>(stage.fold.partial_bytes());
      MR_TRY_ASSIGN(partial,
                    ctx.allocate_temp(DType::kUInt8, Shape{pass.n / pass.row * pieces * bytes}));
      partials.emplace_back(s, partial);
    }
    add_stage(pass, s, by_row, repeated, partial.valid() ? &partial : own.valid() ? &own : nullptr);
  }
  if (pass.n == 0) return ok_status();
  if (pass.n >= kWorthJoining) join_steps(pass);
  assign_slots(pass);
  MR_TRY(run(ctx, pass));
  for (auto& [s, partial] : partials) {
    const RowFold& fold = stages_[static_cast<size_t>(s)].fold;
    const int64_t rows = pass.n / pass.row, bytes = static_cast<int64_t>(partial.bytes()) / rows;
    Tensor& out = kept[static_cast<size_t>(s)];
    for (int64_t r = 0; r < rows; ++r) {
      fold.finish(static_cast<char*>(partial.mutable_raw()) + r * bytes, pass.row,
                  static_cast<char*>(out.mutable_raw()) + r * stages_[static_cast<size_t>(s)].size);
    }
  }
  return ok_status();
}

// Computes a pass that is one fold, of other dimensions than the last.
Status TreeFunction::fold_alone(KernelContext& ctx, const Layout& layout, int which,
                                std::span<Tensor> kept) const {
  const int s = static_cast<int>(std::ranges::find(layout.pass, which) - layout.pass.begin());
  if (!layout.is_kept(s)) return ok_status();
  const Stage& stage = stages_[static_cast<size_t>(s)];
  Tensor& out = kept[static_cast<size_t>(s)];
  MR_TRY(keep(ctx, layout, s, out));
  const int from = operands(stage)[0];
  const Tensor& x =
      from < num_inputs_ ? ctx.input(from) : kept[static_cast<size_t>(from - num_inputs_)];
  ReduceDims dims;
  const Tensor& axes = ctx.input(stage.host_operand);
  MR_TRY(read_reduction(axes, layout.shape(from), stage.keep_dims, dims).status());
  return fold_tensor(ctx, stage.fold.kind(), x, dims, out);
}

// The operand of which a stage over all elements takes the one for the row as it is; -1: none.
int TreeFunction::repeated_operand(const Layout& layout, int s, const Pass& pass,
                                   const uint64_t (&bound)[2]) const {
  const Stage& stage = stages_[static_cast<size_t>(s)];
  const std::span<const uint8_t> from = operands(stage);
  if (stage.kind != Kind::kMap || layout.is_by_row(s) || from.size() != 2 || from[0] == from[1] ||
      pass.row < kLongRow) {
    return -1;
  }
  // What is spread already is taken from there.
  const auto is_single = [&](int value) {
    const int own = value - num_inputs_;
    return own >= 0 && layout.pass_of(own) == layout.pass_of(s) && layout.is_by_row(own) &&
           (bound[0] >> value & 1) == 0;
  };
  for (int k : {0, 1}) {
    if (is_single(from[static_cast<size_t>(k)]) && !is_single(from[static_cast<size_t>(1 - k)]) &&
        stage.function.takes_repeated(k)) {
      return k;
    }
  }
  return -1;
}

// Adds what computes the stage, once what it reads is there. Its elements go to `memory`, or to
// the scratch.
void TreeFunction::add_stage(Pass& pass, int s, bool by_row, int repeated, Tensor* memory) const {
  using Where = Pass::Where;
  const Stage& stage = stages_[static_cast<size_t>(s)];
  const bool folds = stage.kind == Kind::kFold;
  const int to = by_row ? Pass::by_row(value_of(s)) : value_of(s);
  int from = operands(stage)[0];
  if (by_row && !folds) from = Pass::by_row(from);
  if (repeated >= 0) from = Pass::by_row(operands(stage)[static_cast<size_t>(repeated)]);
  pass.cost += stage.cost() / static_cast<double>(by_row && !folds ? pass.row : 1);
  Pass::View& view = pass.view(to);
  view = {Where::kScratch, stage.size, 0, 0, nullptr};
  if (memory != nullptr) {
    view.where = Where::kDense;
    view.data = static_cast<char*>(memory->mutable_raw());
    if (folds && pass.in_pieces) view.size = static_cast<uint8_t>(stage.fold.partial_bytes());
  } else if (stage.kind == Kind::kSame && pass.view(from).where != Where::kDense) {
    view.where = Where::kAs;
    view.slot =
        pass.view(from).where == Where::kAs ? pass.view(from).slot : static_cast<uint8_t>(from);
  } else if (by_row) {
    view.slot = static_cast<uint8_t>(pass.num_row_slots++);
  }
  const Do what = repeated >= 0               ? Do::kMapRepeated
                  : folds                     ? Do::kFold
                  : stage.kind == Kind::kSame ? Do::kCopy
                  : by_row                    ? Do::kMapRows
                                              : Do::kMap;
  pass.add_step(what, s, from, to);
}

}  // namespace millrace
