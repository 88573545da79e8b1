#include "millrace/runtime/loop_analysis.h"

#include "millrace/graph/op_def.h"

namespace millrace {
namespace {

// Whether a kernel's effects, or those of others on what it reads, can be seen.
bool has_effects(const PlanStep& step) {
  const OpTraits& traits = step.node->op->traits;
  if (traits.stateful || traits.step_state || traits.owns_state) return true;
  const auto shared = [](DType type) { return is_ref(type) || type == DType::kResource; };
  return std::any_of(step.node->input_types.begin(), step.node->input_types.end(), shared) ||
         std::any_of(step.node->output_types.begin(), step.node->output_types.end(), shared);
}

}  // namespace

bool LoopAnalysis::run(const std::vector<int32_t>& order) {
  if (!find_shape()) return false;
  for (int32_t unit : order) {
    const bool ok = units_.is_loop(unit) ? add_inner(unit) : add_step(unit);
    if (!ok) return false;
  }
  return true;
}

int32_t LoopAnalysis::flags_of(int32_t s) const {
  const auto it = flags_.find(s);
  return it == flags_.end() ? -1 : it->second;
}

bool LoopAnalysis::find_shape() {
  loop_.enters = units_.enters(loop_.frame);
  loop_.exits = units_.exits(loop_.frame);
  loop_.loop_cond = -1;
  for (int32_t s : units_.members(loop_.frame)) {
    if (step(s).control_flow != ControlFlow::kLoopCond) continue;
    if (loop_.loop_cond >= 0) return false;
    loop_.loop_cond = s;
  }
  if (loop_.loop_cond < 0) return false;
  for (int32_t s : loop_.enters) {
    const int32_t value = units_.output(s, 0);
    found_.stored[at(value)] = value;
    found_.kept[at(value)] = step(s).constant_enter;
    if (step(s).constant_enter || step(s).num_edges == 0) continue;
    const PlanEdge& edge = plan_.edges[nth(step(s).first_edge, 0)];
    if (step(s).num_edges > 1 || edge.input < 0 || !is_variable(edge.step)) return false;
  }
  return true;
}

bool LoopAnalysis::is_variable(int32_t s) const {
  const PlanStep& merge = step(s);
  if (merge.kind != StepKind::kMerge || merge.num_inputs != 2) return false;
  const PlanStep& a = producer(units_.input(s, 0));
  const PlanStep& b = producer(units_.input(s, 1));
  const auto enters = [](const PlanStep& from) { return is_enter(from) && !from.constant_enter; };
  return (enters(a) && is_next(b)) || (is_next(a) && enters(b));
}

Guard LoopAnalysis::guard_of(int32_t s) const {
  Guard guard;
  for (int k = 0; k < step(s).num_inputs; ++k) {
    guard = both(guard, found_.value_guard[at(units_.input(s, k))]);
  }
  for (int32_t from : units_.controls(s)) {
    const int32_t source = units_.source(from, loop_.frame);
    if (source >= 0) guard = both(guard, found_.unit_guard[at(source)]);
  }
  return guard;
}

bool LoopAnalysis::hangs_on_variable(int32_t s) const {
  const auto varies = [&](int32_t from) {
    const int32_t source = units_.source(from, loop_.frame);
    return source >= 0 && found_.varies[at(source)];
  };
  for (int k = 0; k < step(s).num_inputs; ++k) {
    if (varies(units_.producer(units_.input(s, k)))) return true;
  }
  const std::vector<int32_t>& controls = units_.controls(s);
  return std::any_of(controls.begin(), controls.end(), varies);
}

bool LoopAnalysis::add_inner(int32_t unit) {
  const PlanLoop* inner = plan_.loop_of(unit - units_.num_steps());
  if (inner == nullptr || inner->loose_effects) return false;
  Guard guard;
  for (int32_t s : inner->enters) {
    guard = both(guard, guard_of(s));
    found_.varies[at(unit)] = found_.varies[at(unit)] || hangs_on_variable(s);
  }
  if (contains(guard, kOver) && contains(guard, kGoesOn)) return false;
  // Where only some of its variables came, frames would begin it.
  for (int32_t s : inner->enters) {
    if (inner->has_effects && !step(s).constant_enter && guard_of(s) != guard) return false;
  }
  for (int32_t s : inner->exits) set_output(s, 0, guard);
  found_.unit_guard[at(unit)] = std::move(guard);
  note_effects(unit, inner->has_effects);
  return true;
}

bool LoopAnalysis::add_step(int32_t s) {
  found_.varies[at(s)] = hangs_on_variable(s);
  switch (step(s).kind) {
    case StepKind::kKernel:
      return add_kernel(s);
    case StepKind::kForward:
      return add_forward(s);
    case StepKind::kSwitch:
      return add_switch(s);
    case StepKind::kMerge:
      return is_variable(s) ? add_variable(s) : add_merge(s);
    default:
      return false;
  }
}

void LoopAnalysis::set_output(int32_t s, int k, const Guard& guard) {
  const int32_t value = units_.output(s, k);
  found_.stored[at(value)] = value;
  found_.value_guard[at(value)] = guard;
}

void LoopAnalysis::note_effects(int32_t unit, bool effects) {
  loop_.has_effects |= effects;
  const bool always = phase_of(found_.unit_guard[at(unit)]) == Phase::kCondition;
  loop_.loose_effects |= effects && always && !found_.varies[at(unit)];
}

bool LoopAnalysis::add_kernel(int32_t s) {
  const PlanStep& kernel = step(s);
  if (kernel.async || kernel.blocks || kernel.runs_when_dead) return false;
  const Guard guard = guard_of(s);
  if (contains(guard, kOver) && contains(guard, kGoesOn)) return false;
  found_.unit_guard[at(s)] = guard;
  for (int k = 0; k < kernel.num_outputs; ++k) set_output(s, k, guard);
  found_.left_out[at(s)] = only_orders(s);
  found_.once[at(s)] = is_same_every_time(s);
  for (int k = 0; k < kernel.num_outputs; ++k) {
    found_.kept[at(units_.output(s, k))] = found_.once[at(s)];
  }
  note_effects(s, has_effects(kernel));
  return true;
}

bool LoopAnalysis::only_orders(int32_t s) const {
  const OpDef& op = *step(s).node->op;
  if (has_effects(step(s)) || op.attrs.size() > 1) return false;
  if (step(s).num_outputs == 0) return step(s).num_inputs == 0 && op.attrs.empty();
  return op.traits.forwards && step(s).num_inputs == 1 && step(s).num_outputs == 1 &&
         !units_.is_read(units_.output(s, 0));
}

bool LoopAnalysis::is_same_every_time(int32_t s) const {
  const Guard& guard = found_.unit_guard[at(s)];
  if (step(s).num_outputs == 0 || found_.left_out[at(s)] || has_effects(step(s))) return false;
  if (!guard.empty() && guard != Guard{kGoesOn}) return false;
  for (int k = 0; k < step(s).num_inputs; ++k) {
    const int32_t value = stored(units_.input(s, k));
    if (!found_.kept[at(value)] || is_ref(units_.type(value))) return false;
  }
  // Nothing that may fail comes before it.
  const std::vector<int32_t>& controls = units_.controls(s);
  return std::all_of(controls.begin(), controls.end(), [&](int32_t from) {
    const int32_t source = units_.source(from, loop_.frame);
    if (source < 0) return true;
    if (units_.is_loop(source)) return false;
    return step(source).kind != StepKind::kKernel || found_.left_out[at(source)] ||
           found_.once[at(source)];
  });
}

bool LoopAnalysis::add_forward(int32_t s) {
  const int32_t input = units_.input(s, 0);
  if (is_ref(units_.type(stored(input)))) return false;
  const Guard guard = guard_of(s);
  found_.unit_guard[at(s)] = guard;
  if (is_next(step(s))) {
    for (int k = 0; k < step(s).num_edges; ++k) {
      const PlanEdge& edge = plan_.edges[nth(step(s).first_edge, k)];
      if (edge.input < 0 || !is_variable(edge.step)) return false;
    }
    return guard == Guard{kGoesOn};
  }
  if (is_exit(step(s))) return guard == Guard{kOver};
  const int32_t output = units_.output(s, 0);
  found_.stored[at(output)] = stored(input);
  return guard.empty();  // the LoopCond
}

bool LoopAnalysis::add_variable(int32_t s) {
  if (!units_.controls(s).empty() || units_.is_read(units_.output(s, 1))) return false;
  for (int k = 0; k < 2; ++k) {
    if (is_ref(units_.type(units_.input(s, k)))) return false;
  }
  set_output(s, 0, {});
  found_.variable[at(units_.output(s, 0))] = true;
  found_.varies[at(s)] = true;
  return true;
}

bool LoopAnalysis::add_switch(int32_t s) {
  const Guard guard = guard_of(s);
  if (contains(guard, kOver) && contains(guard, kGoesOn)) return false;
  found_.unit_guard[at(s)] = guard;
  const int32_t count = step(s).num_outputs;
  if (units_.producer(units_.input(s, 1)) == loop_.loop_cond) {
    const int32_t data = stored(units_.input(s, 0));
    if (!guard.empty() || count != 2 || is_ref(units_.type(data))) return false;
    for (int k = 0; k < count; ++k) {
      set_output(s, k, {k == 0 ? kOver : kGoesOn});
      found_.stored[at(units_.output(s, k))] = data;
    }
    return true;
  }
  // All that have one predicate share its flags.
  const std::pair predicate(stored(units_.input(s, 1)), count);
  const auto [it, added] = branches_.try_emplace(predicate, plan_.num_flags);
  if (added) {
    plan_.num_flags += count;
    for (int k = 0; k < count; ++k) group_[it->second + k] = {it->second, count};
  }
  flags_[s] = it->second;
  for (int k = 0; k < count; ++k) set_output(s, k, both(guard, {kFirstFlag + it->second + k}));
  return true;
}

bool LoopAnalysis::add_merge(int32_t s) {
  const int count = step(s).num_inputs;
  Guard common = found_.value_guard[at(units_.input(s, 0))];
  for (int k = 1; k < count; ++k) {
    const Guard& other = found_.value_guard[at(units_.input(s, k))];
    Guard rest;
    std::set_intersection(common.begin(), common.end(), other.begin(), other.end(),
                          std::back_inserter(rest));
    common = std::move(rest);
  }
  const Phase phase = phase_of(common);
  Guard ways;
  for (int k = 0; k < count; ++k) {
    const Guard& guard = found_.value_guard[at(units_.input(s, k))];
    if (phase_of(guard) != phase) return false;
    if (guard.size() != common.size() + 1) continue;
    Guard way;
    std::set_difference(guard.begin(), guard.end(), common.begin(), common.end(),
                        std::back_inserter(way));
    ways = both(ways, way);
  }
  for (int32_t from : units_.controls(s)) {
    const int32_t source = units_.source(from, loop_.frame);
    if (source < 0) continue;
    const Phase before = phase_of(found_.unit_guard[at(source)]);
    if (before != phase && before != Phase::kCondition) return false;
  }
  if (!are_all_branches(ways, count)) {
    flags_[s] = plan_.num_flags;
    common = both(common, {kFirstFlag + plan_.num_flags});
    ++plan_.num_flags;
  }
  found_.unit_guard[at(s)] = common;
  for (int k = 0; k < step(s).num_outputs; ++k) set_output(s, k, common);
  return true;
}

bool LoopAnalysis::are_all_branches(const Guard& ways, int count) const {
  if (static_cast<int>(ways.size()) != count) return false;
  const auto group = group_.find(ways[0] - kFirstFlag);
  return group != group_.end() && group->second.second == count &&
         group->second.first == ways[0] - kFirstFlag && ways.back() - ways.front() == count - 1;
}

}  // namespace millrace
