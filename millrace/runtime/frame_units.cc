#include "millrace/runtime/frame_units.h"

#include <functional>
#include <queue>
#include <utility>

namespace millrace {

FrameUnits::FrameUnits(const Plan& plan) : plan_(plan) {
  const size_t frames = plan.frames.size();
  for (const PlanFrame& frame : plan.frames) {
    first_value_.push_back(num_values_);
    num_values_ += frame.num_slots;
  }
  members_.resize(frames);
  enters_.resize(frames);
  exits_.resize(frames);
  children_.resize(frames);
  producer_.assign(at(num_values_), -1);
  controls_.resize(plan.steps.size());
  for (int32_t s = 0; s < num_steps(); ++s) {
    const PlanStep& step = plan.steps[at(s)];
    for (int k = 0; k < step.num_outputs; ++k) producer_[at(output(s, k))] = s;
    if (is_enter(step)) {
      enters_[at(step.output_frame)].push_back(s);
    } else {
      members_[at(step.frame)].push_back(s);
    }
    if (is_exit(step)) exits_[at(step.frame)].push_back(s);
    for (int k = 0; k < step.num_edges; ++k) {
      const PlanEdge& edge = plan.edges[nth(step.first_edge, k)];
      if (edge.input < 0) controls_[at(edge.step)].push_back(s);
    }
  }
  for (size_t f = 1; f < frames; ++f) {
    children_[at(plan.frames[f].parent)].push_back(static_cast<int32_t>(f));
  }
}

Orders::Orders(const Plan& plan, const FrameUnits& units) : plan_(plan), units_(units) {
  consumers_.resize(at(units.num_units()));
  pending_.assign(consumers_.size(), 0);
  for (int32_t s = 0; s < units.num_steps(); ++s) {
    const PlanStep& step = plan.steps[at(s)];
    for (int k = 0; k < step.num_inputs; ++k) {
      const int32_t from = units.producer(units.input(s, k));
      const bool back = is_next(plan.steps[at(from)]) && step.kind == StepKind::kMerge;
      if (!back) add_edge(from, s);
    }
    for (int32_t from : units.controls(s)) add_edge(from, s);
  }
}

std::vector<int32_t> Orders::of(int32_t frame) {
  using Entry = std::pair<int32_t, int32_t>;  // the place in the plan, the unit
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto offer = [&](int32_t unit) {
    if (pending_[at(unit)] == 0) ready.emplace(place(unit), unit);
  };
  for (int32_t s : units_.members(frame)) offer(s);
  for (int32_t child : units_.children(frame)) offer(units_.loop_unit(child));
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t unit = ready.top().second;
    ready.pop();
    order.push_back(unit);
    for (int32_t to : consumers_[at(unit)]) {
      --pending_[at(to)];
      offer(to);
    }
  }
  return order;
}
void Orders::add_edge(int32_t from, int32_t to) {
  const int32_t source = units_.source(from, plan_.steps[at(to)].frame);
  if (source < 0) return;
  const int32_t unit = units_.unit_of(to);
  consumers_[at(source)].push_back(unit);
  ++pending_[at(unit)];
}

int32_t Orders::place(int32_t unit) const {
  if (!units_.is_loop(unit)) return unit;
  return units_.enters(unit - units_.num_steps()).back();
}

}  // namespace millrace
