#include "millrace/runtime/compiled_loops.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "millrace/runtime/loop_analysis.h"

namespace millrace {
namespace {

// Writes the steps of a loop that was found to do without frames.
class LoopWriter {
 public:
  LoopWriter(Plan& plan, const FrameUnits& units, const Findings& found,
             const LoopAnalysis& analysis, PlanLoop& loop)
      : plan_(plan), units_(units), found_(found), analysis_(analysis), loop_(loop) {}

  void run(const std::vector<int32_t>& order) {
    loop_.first_slot = plan_.straight_slots;
    sort(order);
    find_last_reads();
    enter();
    place_ = 0;
    loop_.before = write(before_, /*once=*/true);
    loop_.condition = write(condition_);
    ++place_;  // the predicate is read
    loop_.first_time = write(first_time_, /*once=*/true);
    loop_.body = write(body_);
    loop_.after = write(after_);
    loop_.predicate = slot(predicate());
    add_moves();
    leave();
    add_clears();
    loop_.num_slots = plan_.straight_slots - loop_.first_slot;
  }

 private:
  using Units = std::vector<int32_t>;
  // Who reads a value last while the loop goes on: by place in the order of its steps.
  struct LastRead {
    int32_t place = -1;
    int32_t inputs = 0;  // how many of that step
    bool after = false;  // read after the loop as well
  };
  static constexpr int32_t kMoves = INT32_MAX;

  const PlanStep& step(int32_t s) const { return plan_.steps[at(s)]; }
  int32_t stored(int32_t value) const { return found_.stored[at(value)]; }
  int32_t predicate() const { return stored(units_.input(loop_.loop_cond, 0)); }
  const PlanLoop& inner(int32_t unit) const { return *plan_.loop_of(unit - units_.num_steps()); }
  std::vector<int32_t> inputs_of(int32_t unit) const {
    std::vector<int32_t> out;
    if (units_.is_loop(unit)) {
      for (int32_t s : inner(unit).enters) out.push_back(stored(units_.input(s, 0)));
    } else {
      for (int k = 0; k < step(unit).num_inputs; ++k) {
        out.push_back(stored(units_.input(unit, k)));
      }
    }
    return out;
  }
  std::vector<int32_t> outputs_of(int32_t unit) const {
    std::vector<int32_t> out;
    if (units_.is_loop(unit)) {
      for (int32_t s : inner(unit).exits) out.push_back(units_.output(s, 0));
    } else {
      for (int k = 0; k < step(unit).num_outputs; ++k) out.push_back(units_.output(unit, k));
      // The number of the input that came is seldom asked for.
      const bool merge = step(unit).kind == StepKind::kMerge;
      if (merge && !units_.is_read(out.back())) out.pop_back();
    }
    return out;
  }
  // The variables, by the Merges that join them.
  std::vector<int32_t> variables() const {
    std::vector<int32_t> out;
    for (int32_t s : units_.members(loop_.frame)) {
      if (step(s).kind == StepKind::kMerge && found_.variable[at(units_.output(s, 0))]) {
        out.push_back(s);
      }
    }
    return out;
  }

  void sort(const Units& order) {
    for (int32_t unit : order) {
      if (!units_.is_loop(unit) && !is_written(unit)) continue;
      switch (phase_of(found_.unit_guard[at(unit)])) {
        case Phase::kCondition:
          (found_.once[at(unit)] ? before_ : condition_).push_back(unit);
          break;
        case Phase::kBody:
          (found_.once[at(unit)] ? first_time_ : body_).push_back(unit);
          break;
        case Phase::kAfter:
          after_.push_back(unit);
      }
    }
  }
  bool is_written(int32_t s) const {
    switch (step(s).kind) {
      case StepKind::kKernel:
        return !found_.left_out[at(s)];
      case StepKind::kSwitch:
        return analysis_.flags_of(s) >= 0;
      case StepKind::kMerge:
        return !found_.variable[at(units_.output(s, 0))];
      default:
        return false;
    }
  }

  void find_last_reads() {
    int32_t place = 0;
    const auto read = [&](int32_t value, int32_t at_place) {
      LastRead& last = last_[value];
      last.inputs = last.place == at_place ? last.inputs + 1 : 1;
      last.place = at_place;
    };
    const auto read_all = [&](const Units& units) {
      for (int32_t unit : units) {
        for (int32_t value : inputs_of(unit)) read(value, place);
        ++place;
      }
    };
    read_all(before_);
    read_all(condition_);
    end_of_condition_ = place;
    read(predicate(), place++);
    read_all(first_time_);
    read_all(body_);
    for (int32_t unit : after_) {
      for (int32_t value : inputs_of(unit)) last_[value].after = true;
    }
    for (int32_t s : loop_.exits) last_[stored(units_.input(s, 0))].after = true;
    for (int32_t s : variables()) read(next_value(s), kMoves);
  }

  // What a variable is in the next iteration.
  int32_t next_value(int32_t merge) const {
    const int k = is_next(step(units_.producer(units_.input(merge, 0)))) ? 0 : 1;
    return stored(units_.input(units_.producer(units_.input(merge, k)), 0));
  }

  int32_t& slot(int32_t value) {
    const auto [it, added] = slots_.try_emplace(value, plan_.straight_slots);
    if (added) ++plan_.straight_slots;
    return it->second;
  }

  void enter() {
    for (size_t i = 0; i < loop_.enters.size(); ++i) {
      const int32_t s = loop_.enters[i];
      int32_t value = units_.output(s, 0);
      if (!step(s).constant_enter) {
        if (step(s).num_edges == 0) continue;
        value = units_.output(plan_.edges[nth(step(s).first_edge, 0)].step, 0);
      }
      loop_.entries.push_back({.input = static_cast<int32_t>(i),
                               .slot = slot(value),
                               .read = !is_ref(step(s).node->input_types[0])});
    }
  }

  // The rest of a unit's guard: the branch inside of an iteration that it is in. A Merge looks for
  // itself.
  Guard branch_of(int32_t unit) const {
    if (!units_.is_loop(unit) && step(unit).kind == StepKind::kMerge) return {};
    Guard guard = found_.unit_guard[at(unit)];
    std::erase_if(guard, [](int32_t literal) { return literal < kFirstFlag; });
    return guard;
  }

  PlanLoop::Range write(const Units& units, bool once = false) {
    PlanLoop::Range range;
    range.first = static_cast<int32_t>(plan_.loop_steps.size());
    for (size_t i = 0; i < units.size();) {
      const Guard branch = branch_of(units[i]);
      size_t end = i + 1;
      while (!branch.empty() && end < units.size() && branch_of(units[end]) == branch) ++end;
      if (!branch.empty()) {
        write_branch(branch, std::span(units).subspan(i, end - i));
      } else {
        write_unit(units[i], once);
      }
      i = end;
    }
    range.last = static_cast<int32_t>(plan_.loop_steps.size());
    return range;
  }

  void write_branch(const Guard& branch, std::span<const int32_t> units) {
    StraightStep& head = add(StepKind::kGuard, -1);
    head.step = static_cast<int32_t>(loop_.guards.size());
    PlanLoop::Guard guard;
    guard.skip = static_cast<int32_t>(units.size());
    for (int32_t literal : branch) guard.flags.push_back(literal - kFirstFlag);
    std::vector<int32_t> made;
    const auto is_made = [&](int32_t s) { return std::count(made.begin(), made.end(), s) > 0; };
    const int32_t end = place_ + static_cast<int32_t>(units.size());
    for (int32_t unit : units) {
      for (int32_t value : outputs_of(unit)) {
        made.push_back(slot(value));
        const auto last = last_.find(value);
        if (last != last_.end() && (last->second.after || last->second.place >= end)) {
          guard.kill.push_back(slot(value));
        }
      }
      const StraightStep& written = write_unit(unit, /*once=*/false);
      for (int k = 0; k < written.num_releases; ++k) {
        const int32_t released = plan_.releases[nth(written.first_release, k)];
        if (!is_made(released)) guard.clear.push_back(released);
      }
    }
    loop_.guards.push_back(std::move(guard));
  }

  StraightStep& add(StepKind kind, int32_t flags) {
    StraightStep& out = plan_.loop_steps.emplace_back();
    plan_.loop_flags.push_back(flags);
    out.kind = kind;
    out.first_input = static_cast<int32_t>(plan_.straight_inputs.size());
    out.first_release = static_cast<int32_t>(plan_.releases.size());
    return out;
  }

  const StraightStep& write_unit(int32_t unit, bool once) {
    const bool is_loop = units_.is_loop(unit);
    const int32_t s = is_loop ? inner(unit).loop_cond : unit;
    const PlanStep& from = step(s);
    StraightStep& out = add(is_loop ? StepKind::kLoop : from.kind, analysis_.flags_of(s));
    out.step = s;
    out.node = from.node;
    const std::vector<int32_t> outputs = outputs_of(unit);
    out.num_outputs = static_cast<int32_t>(outputs.size());
    if (!is_loop) {
      out.kernel = from.kernel;
      out.output_types = from.output_types;
      out.host_outputs = from.host_outputs;
      out.needs_preparation = from.needs.any();
    }
    write_outputs(outputs, out);
    const std::vector<int32_t> inputs = inputs_of(unit);
    out.num_inputs = static_cast<int32_t>(inputs.size());
    for (size_t k = 0; k < inputs.size(); ++k) {
      plan_.straight_inputs.push_back(slot(inputs[k]));
      if (once || !is_last_read(inputs[k])) continue;
      if (last_[inputs[k]].inputs == 1 && k < 64) out.movable |= uint64_t{1} << k;
      if (!is_released(out, slot(inputs[k]))) plan_.releases.push_back(slot(inputs[k]));
      out.num_releases = static_cast<int32_t>(plan_.releases.size()) - out.first_release;
    }
    ++place_;
    return out;
  }

  // Slots in a row; those that nobody reads are empty again at once.
  void write_outputs(const std::vector<int32_t>& outputs, StraightStep& out) {
    if (!outputs.empty()) out.first_output = slot(outputs[0]);
    for (int32_t value : outputs) {
      const int32_t to = slot(value);
      if (!last_.contains(value)) plan_.releases.push_back(to);
    }
    out.num_releases = static_cast<int32_t>(plan_.releases.size()) - out.first_release;
  }
  bool is_released(const StraightStep& out, int32_t slot) const {
    const auto first = plan_.releases.begin() + out.first_release;
    return std::find(first, plan_.releases.end(), slot) != plan_.releases.end();
  }

  // Whether the step that is written now is the last to read a value, so that it may have it.
  bool is_last_read(int32_t value) {
    const LastRead& last = last_[value];
    if (found_.kept[at(value)] || last.place != place_) return false;
    return place_ > end_of_condition_ || !last.after;
  }

  void add_moves() {
    std::map<int32_t, int32_t> readers;  // by value: moves that are still to come
    std::vector<std::pair<int32_t, int32_t>> moves;
    for (int32_t merge : variables()) {
      const int32_t value = next_value(merge), variable = units_.output(merge, 0);
      ++readers[value];
      if (value != variable) moves.emplace_back(value, variable);
    }
    const auto add_move = [&](int32_t value, int32_t to) {
      const bool take = --readers[value] == 0 && !found_.kept[at(value)];
      loop_.moves.push_back({.from = slot(value), .to = to, .take = take});
    };
    // A variable that becomes another waits elsewhere until that has been read.
    std::vector<PlanLoop::Move> second;
    for (const auto& [value, variable] : moves) {
      if (!found_.variable[at(value)]) continue;
      const int32_t spare = plan_.straight_slots++;
      add_move(value, spare);
      second.push_back({.from = spare, .to = slot(variable), .take = true});
    }
    for (const auto& [value, variable] : moves) {
      if (!found_.variable[at(value)]) add_move(value, slot(variable));
    }
    loop_.moves.insert(loop_.moves.end(), second.begin(), second.end());
  }

  void leave() {
    std::map<int32_t, int32_t> readers;
    for (int32_t s : loop_.exits) ++readers[stored(units_.input(s, 0))];
    for (size_t i = 0; i < loop_.exits.size(); ++i) {
      const int32_t value = stored(units_.input(loop_.exits[i], 0));
      const bool take = --readers[value] == 0;
      loop_.leaving.push_back({.from = slot(value), .to = static_cast<int32_t>(i), .take = take});
    }
  }

  // What no step of the body lets go of.
  void add_clears() {
    for (int32_t unit : condition_) {
      for (int32_t value : outputs_of(unit)) {
        const auto last = last_.find(value);
        if (last == last_.end()) continue;
        const bool read_later = last->second.place > end_of_condition_;
        if (!read_later && (last->second.after || last->second.place == end_of_condition_)) {
          loop_.clear.push_back(slot(value));
        }
      }
    }
  }

  Plan& plan_;
  const FrameUnits& units_;
  const Findings& found_;
  const LoopAnalysis& analysis_;
  PlanLoop& loop_;
  Units before_, condition_, first_time_, body_, after_;
  std::map<int32_t, LastRead> last_;  // by value
  std::map<int32_t, int32_t> slots_;  // by value
  int32_t place_ = 0;
  int32_t end_of_condition_ = 0;  // the place where the predicate is read
};

// Frames with the loops that are in them.
class LoopsOfPlan {
 public:
  explicit LoopsOfPlan(Plan& plan)
      : plan_(plan),
        units_(plan),
        orders_(plan, units_),
        found_(units_.num_units(), units_.num_values()) {}

  std::vector<int32_t> run() {
    for (size_t f = plan_.frames.size(); f-- > 1;) add_frame(static_cast<int32_t>(f));
    std::vector<int32_t> order = order_of(0);
    for (int32_t child : units_.children(0)) {
      plan_.all_loops = plan_.all_loops && plan_.loop_of(child) != nullptr;
    }
    if (!plan_.all_loops) return {};
    for (int32_t& unit : order) {
      if (units_.is_loop(unit)) unit = plan_.loop_of(unit - units_.num_steps())->loop_cond;
    }
    return order;
  }

 private:
  // Loops that wait for themselves have frames, whatever is inside of them.
  std::vector<int32_t> order_of(int32_t frame) {
    std::vector<int32_t> order = orders_.of(frame);
    for (int32_t child : units_.children(frame)) {
      if (orders_.left_out(units_.loop_unit(child))) {
        plan_.loop_of_frame[static_cast<size_t>(child)] = -1;
      }
    }
    return order;
  }

  void add_frame(int32_t frame) {
    const std::vector<int32_t> order = order_of(frame);
    for (int32_t child : units_.children(frame)) {
      if (plan_.loop_of(child) == nullptr) return;
    }
    auto loop = std::make_unique<PlanLoop>();
    loop->frame = frame;
    LoopAnalysis analysis(plan_, units_, found_, *loop);
    if (!analysis.run(order)) return;
    LoopWriter(plan_, units_, found_, analysis, *loop).run(order);
    plan_.loop_of_frame[at(frame)] = static_cast<int32_t>(plan_.loops.size());
    plan_.loops.push_back(std::move(loop));
  }

  Plan& plan_;
  FrameUnits units_;
  Orders orders_;
  Findings found_;
};

}  // namespace

std::vector<int32_t> add_loops(Plan& plan) {
  plan.loop_of_frame.assign(plan.frames.size(), -1);
  if (plan.has_frames && !plan.enqueues) return LoopsOfPlan(plan).run();
  plan.all_loops = !plan.has_frames;
  std::vector<int32_t> order(plan.steps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  return order;
}

}  // namespace millrace
