#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "millrace/base/check.h"
#include "millrace/ops/math/sweep_loops.h"
#include "millrace/ops/math/tree_pass.h"
#include "millrace/ops/stream.h"

// Steps of a pass that become one sweep: each is read by the next and by nobody else.

namespace millrace {
namespace {

// Rows that are not longer are folded element by element (FoldLoops::rows).
constexpr int64_t kSerialFold = 16;

}  // namespace

// By step: which others it goes together with.
struct TreeFunction::Joins {
  static constexpr int8_t kNone = -1;
  std::array<bool, 2 * kMaxStages> sweeps;        // its stage is an op of SweepLoops
  std::array<bool, 2 * kMaxStages> gone;          // into another's sweep
  std::array<bool, 2 * kMaxStages> sweeps_alone;  // a fold of what is there
  std::array<int8_t, 2 * kMaxStages> from;  // the step whose result it takes over, or that it folds
  std::array<int8_t, 2 * kMaxStages> fold;  // the step that folds its result
  std::array<uint8_t, Pass::kViews> reads;  // by view: how often it is read
};

void TreeFunction::join_steps(Pass& pass) const {
  const int count = pass.num_steps;
  Joins joins;
  joins.reads.fill(0);
  std::array<int8_t, Pass::kViews> maker;  // by view: the step whose result it is
  maker.fill(Joins::kNone);
  int written = 0;  // outputs so far: what comes later may not go before them, nor they before it
  std::array<int8_t, 2 * kMaxStages> outputs;
  const auto read = [&](int view, int times) {
    joins.reads[static_cast<size_t>(pass.root(view))] += static_cast<uint8_t>(times);
  };
  for (int i = 0; i < count; ++i) {
    const size_t k = static_cast<size_t>(i);
    const Step& step = pass.steps[k];
    const Stage& stage = stages_[step.stage];
    const bool maps = step.what == Do::kMap || step.what == Do::kMapRepeated;
    joins.sweeps[k] = maps && stage.function.sweep_op() >= 0;
    joins.gone[k] = joins.sweeps_alone[k] = false;
    joins.from[k] = joins.fold[k] = Joins::kNone;
    if (maps) {
      for (uint8_t value : operands(stage)) {
        if (step.what != Do::kMapRepeated || Pass::by_row(value) != step.from) read(value, 1);
      }
    } else if (step.what != Do::kMapRows && !Pass::is_by_row(step.from)) {
      read(step.from, step.what == Do::kFold ? 1 : 2);
    }
    if (!Pass::is_by_row(step.to)) {
      maker[step.to] = static_cast<int8_t>(i);
      written += pass.view(step.to).where == Pass::Where::kDense;
    }
    outputs[k] = static_cast<int8_t>(written);
  }
  const int64_t last_piece = pass.row % RowFold::kPiece;
  const auto sums_floats = [&](const Stage& stage, int s) {
    const Reduction kind = stage.fold.kind();
    return types_[static_cast<size_t>(value_of(s))] == DType::kFloat &&
           (kind == Reduction::kSum || kind == Reduction::kMean);
  };
  const bool folds = pass.row >= kLongRow && (last_piece == 0 || last_piece > kSerialFold);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const size_t k = static_cast<size_t>(i);
    const Step& step = pass.steps[k];
    const Stage& stage = stages_[step.stage];
    if (step.what == Do::kFold && folds && sums_floats(stage, step.stage)) {
      const int8_t from = maker[static_cast<size_t>(pass.root(step.from))];
      if (from < 0) {
        joins.sweeps_alone[k] = any = true;
      } else if (joins.sweeps[static_cast<size_t>(from)] &&
                 joins.fold[static_cast<size_t>(from)] == Joins::kNone) {
        joins.fold[static_cast<size_t>(from)] = static_cast<int8_t>(i);
        joins.gone[k] = any = true;
      }
    }
    if (!joins.sweeps[k]) continue;
    for (uint8_t value : operands(stage)) {
      if (step.what == Do::kMapRepeated && Pass::by_row(value) == step.from) continue;
      const int view = pass.root(value);
      const int8_t from = maker[static_cast<size_t>(view)];
      // An output may lie over what the stages before it read.
      if (from < 0 || joins.reads[static_cast<size_t>(view)] != 1 ||
          pass.view(view).where != Pass::Where::kScratch ||
          !joins.sweeps[static_cast<size_t>(from)] ||
          outputs[k] - (pass.view(step.to).where == Pass::Where::kDense) !=
              outputs[static_cast<size_t>(from)]) {
        continue;
      }
      joins.from[k] = std::max(joins.from[k], from);
    }
    if (joins.from[k] >= 0) joins.gone[static_cast<size_t>(joins.from[k])] = any = true;
  }
  if (!any) return;
  Steps joined;
  for (int i = 0; i < count; ++i) {
    const size_t k = static_cast<size_t>(i);
    if (joins.gone[k]) continue;
    if (joins.from[k] >= 0 || joins.fold[k] >= 0 || joins.sweeps_alone[k]) {
      add_sweep(pass, joins, i, joined);
    } else {
      joined.steps[static_cast<size_t>(joined.num_steps++)] = pass.steps[k];
    }
  }
  static_cast<Steps&>(pass) = joined;
  if (pass.row >= kLongRow && !pass.in_pieces) read_in_place(pass, joins);
}

// The sweep that ends with step `last`.
void TreeFunction::add_sweep(const Pass& pass, const Joins& joins, int last, Steps& to) const {
  const size_t end = static_cast<size_t>(last);
  const Step& ends = pass.steps[end];
  if (joins.sweeps_alone[end]) {
    to.steps[static_cast<size_t>(to.num_steps++)] = {Do::kSweep, ends.stage,
                                                     static_cast<uint8_t>(to.num_sweeps), ends.to};
    to.sweeps[static_cast<size_t>(to.num_sweeps++)] = {.x = ends.from,
                                                       .first = 0,
                                                       .count = 0,
                                                       .by_rows = true,
                                                       .hints = 0,
                                                       .out = kNoView,
                                                       .fold = ends.to,
                                                       .fold_stage = ends.stage};
    return;
  }
  std::array<int8_t, kMaxStages> chain;
  int length = 0;
  for (int8_t at = static_cast<int8_t>(last); at >= 0; at = joins.from[static_cast<size_t>(at)]) {
    chain[static_cast<size_t>(length++)] = at;
  }
  std::reverse(chain.begin(), chain.begin() + length);
  const uint8_t result = ends.to;
  Sweep sweep{.x = kNoView,
              .first = static_cast<uint8_t>(to.num_links),
              .count = static_cast<uint8_t>(length),
              .by_rows = false,
              .hints = 0,
              .only_written = joins.reads[result] == 0,
              .out = result,
              .fold = kNoView,
              .fold_stage = 0};
  if (joins.fold[end] >= 0) {
    const Step& fold = pass.steps[static_cast<size_t>(joins.fold[end])];
    sweep.fold = fold.to;
    sweep.fold_stage = fold.stage;
    sweep.by_rows = true;
    if (joins.reads[result] == 1 && pass.view(result).where == Pass::Where::kScratch) {
      sweep.out = kNoView;
    }
  }
  int before = -1;  // the view of the value so far
  for (int c = 0; c < length; ++c) {
    const Step& step = pass.steps[static_cast<size_t>(chain[static_cast<size_t>(c)])];
    const Stage& stage = stages_[step.stage];
    const std::span<const uint8_t> from = operands(stage);
    Link link{static_cast<uint8_t>(stage.function.sweep_op()), 0, kNoView};
    const bool repeats = step.what == Do::kMapRepeated;
    // Which of two operands comes from the step before, or begins.
    const size_t own = from.size() == 1 ? 0
                       : repeats        ? Pass::by_row(from[0]) == step.from
                       : c > 0          ? pass.root(from[0]) != before
                                        : pass.view(from[0]).where == Pass::Where::kRepeated;
    if (from.size() == 2) {
      link.view = repeats ? step.from : from[1 - own];
      if (own == 1) link.form |= SweepStep::kSwapped;
      if (repeats) link.form |= SweepStep::kSingle;
      sweep.by_rows |= repeats;
    }
    if (c == 0) sweep.x = from[own];
    before = step.to;
    to.links[static_cast<size_t>(to.num_links++)] = link;
  }
  to.steps[static_cast<size_t>(to.num_steps++)] = {Do::kSweep, ends.stage,
                                                   static_cast<uint8_t>(to.num_sweeps),
                                                   sweep.out == kNoView ? sweep.fold : sweep.out};
  to.sweeps[static_cast<size_t>(to.num_sweeps++)] = sweep;
}

// What is the same for every row, and read by sweeps alone, needs no copies side by side.
void TreeFunction::read_in_place(Pass& pass, const Joins& joins) {
  std::array<uint8_t, Pass::kViews> reads{};
  for (int i = 0; i < pass.num_sweeps; ++i) {
    const Sweep& sweep = pass.sweeps[static_cast<size_t>(i)];
    ++reads[sweep.x];
    for (int l = sweep.first; l < sweep.first + sweep.count; ++l) {
      const uint8_t view = pass.links[static_cast<size_t>(l)].view;
      if (view != kNoView) ++reads[view];
    }
  }
  uint8_t slots = 0;
  const auto is_same_in_all_rows = [&](const Pass::View& view, size_t v) {
    if (view.where != Pass::Where::kBroadcast || reads[v] != joins.reads[v]) return false;
    const BroadcastPlan& plan = pass.plans[static_cast<size_t>(view.plan)];
    return plan.step(1) == 1 && plan.run_length() == pass.row && plan.repeats_every_run(1);
  };
  for (int i = 0; i < pass.num_read; ++i) {
    const uint8_t v = pass.read[static_cast<size_t>(i)];
    if (Pass::is_by_row(v)) continue;
    Pass::View& view = pass.view(v);
    if (is_same_in_all_rows(view, v)) view.where = Pass::Where::kEachRow;
    if (view.where == Pass::Where::kRepeated || view.where == Pass::Where::kBroadcast) {
      view.slot = slots++;
    }
  }
  pass.num_slots = slots;
  for (int i = 0; i < pass.num_sweeps; ++i) {
    Sweep& sweep = pass.sweeps[static_cast<size_t>(i)];
    const auto see = [&](uint8_t view) {
      sweep.by_rows |= view != kNoView && pass.view(view).where == Pass::Where::kEachRow;
    };
    see(sweep.x);
    for (int l = sweep.first; l < sweep.first + sweep.count; ++l) {
      see(pass.links[static_cast<size_t>(l)].view);
    }
  }
}

// Processors do not see by themselves which block comes next: the first sweep that reads large
// memory asks for what lies behind. Results that no cache holds are written around them.
void TreeFunction::give_hints(Pass& pass) {
  constexpr int64_t kLarge = 256 << 10;  // bytes
  constexpr int64_t kSize = sizeof(float);
  if (pass.num_sweeps == 0 || pass.n * kSize < kLarge) return;
  std::array<bool, Pass::kViews> seen;
  seen.fill(true);
  for (int i = 0; i < pass.num_read; ++i) {
    const uint8_t v = pass.read[static_cast<size_t>(i)];
    seen[v] = Pass::is_by_row(v) || pass.view(v).where != Pass::Where::kDense;
  }
  const auto is_read = [&](const char* data) {
    return std::any_of(pass.read.begin(), pass.read.begin() + pass.num_read,
                       [&](uint8_t v) { return pass.view(v).data == data; });
  };
  for (int i = 0; i < pass.num_sweeps; ++i) {
    Sweep& sweep = pass.sweeps[static_cast<size_t>(i)];
    if (!std::exchange(seen[sweep.x], true)) sweep.hints |= SweepLoops::kAheadOfX;
    for (int l = sweep.first; l < sweep.first + sweep.count; ++l) {
      Link& link = pass.links[static_cast<size_t>(l)];
      if (link.view != kNoView && !std::exchange(seen[link.view], true)) {
        link.form |= SweepStep::kAhead;
      }
    }
    if (sweep.out == kNoView || pass.view(sweep.out).where != Pass::Where::kDense ||
        is_read(pass.view(sweep.out).data)) {
      continue;
    }
    const bool around = sweep.only_written && pass.n * kSize >= kStreamBytes;
    sweep.hints |= around ? SweepLoops::kAroundCache : SweepLoops::kAheadOfOut;
    pass.streams |= around;
  }
}

void TreeFunction::run_sweep(const Pass& pass, const Sweep& sweep, Block& block) const {
  static const SweepLoops& loops = isa_table<SweepLoops>();
  std::array<SweepStep, SweepLoops::kMaxSteps> steps;
  std::array<int64_t, SweepLoops::kMaxSteps> advance;  // from row to row
  const auto row_step = [&](int view) {
    return pass.view(view).where == Pass::Where::kEachRow ? int64_t{0} : pass.row;
  };
  for (size_t k = 0; k < sweep.count; ++k) {
    const Link& link = pass.links[sweep.first + k];
    steps[k] = {link.op, link.form, nullptr};
    advance[k] = 0;
    if (link.view == kNoView) continue;
    steps[k].operand = static_cast<const float*>(block.at[link.view]);
    if (pass.view(link.view).where == Pass::Where::kRepeated) steps[k].form |= SweepStep::kSingle;
    advance[k] = Pass::is_by_row(link.view) ? 1 : row_step(link.view);
  }
  const float* x = static_cast<const float*>(block.at[sweep.x]);
  float* out = nullptr;
  if (sweep.out != kNoView) {
    out = reinterpret_cast<float*>(block.target(pass, sweep.out));
    block.at[sweep.out] = out;
  }
  if (!sweep.by_rows || pass.in_pieces) {
    float* const sum =
        sweep.fold == kNoView ? nullptr : reinterpret_cast<float*>(block.partial(pass, sweep.fold));
    return loops.run(x, steps.data(), sweep.count, block.n, out, sum, sweep.hints);
  }
  float* sums = nullptr;
  if (sweep.fold != kNoView) {
    sums = reinterpret_cast<float*>(block.target(pass, sweep.fold));
    block.at[sweep.fold] = sums;
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    run_row(pass, sweep, x, {steps.data(), sweep.count}, out, sums);
    x += row_step(sweep.x);
    if (out != nullptr) out += pass.row;
    if (sums != nullptr) ++sums;
    for (size_t k = 0; k < sweep.count; ++k) {
      if (steps[k].operand != nullptr) steps[k].operand += advance[k];
    }
  }
}

// One row of a sweep by rows.
void TreeFunction::run_row(const Pass& pass, const Sweep& sweep, const float* x,
                           std::span<SweepStep> steps, float* out, float* sum) const {
  static const SweepLoops& loops = isa_table<SweepLoops>();
  const int count = static_cast<int>(steps.size());
  if (sum == nullptr) return loops.run(x, steps.data(), count, pass.row, out, sum, sweep.hints);
  constexpr int64_t kMostPieces = 64;
  float partials[kMostPieces];
  const RowFold& fold = stages_[sweep.fold_stage].fold;
  std::array<SweepStep, SweepLoops::kMaxSteps> piece;
  std::copy(steps.begin(), steps.end(), piece.begin());
  MR_CHECK(pass.row <= kMostPieces * RowFold::kPiece);
  for (int64_t at = 0; at < pass.row; at += RowFold::kPiece) {
    const int64_t n = std::min(RowFold::kPiece, pass.row - at);
    for (size_t k = 0; k < steps.size(); ++k) {
      if (steps[k].operand == nullptr || (steps[k].form & SweepStep::kSingle) != 0) continue;
      piece[k].operand = steps[k].operand + at;
    }
    loops.run(x + at, piece.data(), count, n, out == nullptr ? nullptr : out + at,
              partials + at / RowFold::kPiece, sweep.hints);
  }
  fold.finish(partials, pass.row, sum);
}

}  // namespace millrace
