#pragma once

#include <cstdint>
#include <vector>

#include "millrace/runtime/plan.h"

// How the steps of a plan with loops hang together, for who looks for loops that need no frames.

namespace millrace {

inline size_t at(int32_t i) { return static_cast<size_t>(i); }

inline bool is_enter(const PlanStep& step) { return step.control_flow == ControlFlow::kEnter; }
inline bool is_exit(const PlanStep& step) { return step.control_flow == ControlFlow::kExit; }
inline bool is_next(const PlanStep& step) {
  return step.control_flow == ControlFlow::kNextIteration;
}

// The steps of a plan as units of their frames: a step, or a whole loop inside of the frame. Values
// are numbered over all frames.
class FrameUnits {
 public:
  explicit FrameUnits(const Plan& plan);

  int32_t num_steps() const { return static_cast<int32_t>(plan_.steps.size()); }
  int32_t num_units() const { return num_steps() + static_cast<int32_t>(plan_.frames.size()); }
  int32_t num_values() const { return num_values_; }
  int32_t input(int32_t s, int k) const {
    const PlanStep& step = plan_.steps[at(s)];
    return first_value_[at(step.frame)] + plan_.inputs[nth(step.first_input, k)];
  }
  int32_t output(int32_t s, int k) const {
    const PlanStep& step = plan_.steps[at(s)];
    return first_value_[at(step.output_frame)] + step.first_output + k;
  }
  int32_t producer(int32_t value) const { return producer_[at(value)]; }
  DType type(int32_t value) const {
    const int32_t s = producer(value);
    return plan_.steps[at(s)].output_types[value - output(s, 0)];
  }
  bool is_read(int32_t value) const {
    const PlanStep& from = plan_.steps[at(producer(value))];
    const int32_t slot = value - first_value_[at(from.output_frame)];
    return plan_.frames[at(from.output_frame)].initial_uses[at(slot)] > 0;
  }
  // The steps that run in a frame, without those that enter others.
  const std::vector<int32_t>& members(int32_t frame) const { return members_[at(frame)]; }
  const std::vector<int32_t>& enters(int32_t frame) const { return enters_[at(frame)]; }
  const std::vector<int32_t>& exits(int32_t frame) const { return exits_[at(frame)]; }
  const std::vector<int32_t>& children(int32_t frame) const { return children_[at(frame)]; }
  // The steps that step `s` waits for without reading from them.
  const std::vector<int32_t>& controls(int32_t s) const { return controls_[at(s)]; }

  // The unit of a loop, numbered after the steps.
  int32_t loop_unit(int32_t frame) const { return num_steps() + frame; }
  bool is_loop(int32_t unit) const { return unit >= num_steps(); }
  // The unit that step `s` is, or begins.
  int32_t unit_of(int32_t s) const {
    const PlanStep& step = plan_.steps[at(s)];
    return is_enter(step) ? loop_unit(step.output_frame) : s;
  }
  // The unit in frame `frame` that a step's outputs are of; -1: they come in from around the frame.
  int32_t source(int32_t s, int32_t frame) const {
    const PlanStep& step = plan_.steps[at(s)];
    if (is_enter(step)) return -1;
    return step.frame == frame ? s : loop_unit(step.frame);
  }

 private:
  const Plan& plan_;
  std::vector<int32_t> first_value_;  // by frame
  int32_t num_values_ = 0;
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> members_, enters_, exits_, children_;  // by frame
  std::vector<std::vector<int32_t>> controls_;                             // by step
};

// Orders the units of frames, each after all that it waits for.
class Orders {
 public:
  Orders(const Plan& plan, const FrameUnits& units);

  // Units of a frame; those that wait for themselves, or for such ones, are left out.
  std::vector<int32_t> of(int32_t frame);
  // Whether of() left this one out.
  bool left_out(int32_t unit) const { return pending_[at(unit)] > 0; }

 private:
  void add_edge(int32_t from, int32_t to);
  int32_t place(int32_t unit) const;

  const Plan& plan_;
  const FrameUnits& units_;
  std::vector<std::vector<int32_t>> consumers_;
  std::vector<int32_t> pending_;
};

}  // namespace millrace
