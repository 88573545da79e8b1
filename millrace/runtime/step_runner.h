#pragma once

#include <cstdint>
#include <span>

#include "millrace/base/clock.h"
#include "millrace/kernel/kernel.h"
#include "millrace/runtime/plan.h"

// What both gears of the executor do around a kernel.

namespace millrace {

inline Status uninitialized(const RefCell& cell) {
  return failed_precondition("Attempting to use uninitialized value ", cell.name,
                             "; run its initializer first, for example with "
                             "sess.run(tf.global_variables_initializer())");
}

// Reads a reference for a step that wants the value; FAILED_PRECONDITION for a variable without
// one.
inline Status read_reference(const Value& reference, Value& value) {
  value = Value::of(reference.cell->read());
  if (value.tensor.valid()) [[likely]]
    return ok_status();
  return uninitialized(*reference.cell);
}

// Whether inputs must go through prepare_inputs().
inline bool needs_preparation(const PlanStep& step) { return step.reads_refs || step.retains != 0; }
// Replaces the pointers of inputs that the step cannot take as they are by pointers to `copies` (as
// many as inputs): references wanted by value are read; borrowed memory that the step would keep is
// copied. A reference wanted as such must point to an initialised variable unless the op allows
// less.
Status prepare_inputs(const PlanStep& step, Value** inputs, Value* copies);

// The error of output i, which the kernel did not set, or not to the declared type.
Status wrong_output(const Value& output, int i, DType declared);

// INTERNAL unless the kernel set every output, each to the declared type. A step of either gear.
template <class Step>
Status check_outputs(const Step& step, const Value* outputs) {
  for (int i = 0; i < step.num_outputs; ++i) {
    DType declared = step.output_types[i];
    const Value& v = outputs[i];
    if (v.state == Value::State::kTensor ? v.tensor.dtype() == declared
                                         : v.state != Value::State::kEmpty) [[likely]] {
      continue;
    }
    return wrong_output(v, i, declared);
  }
  return ok_status();
}

// The value of a fetch: the variable's own storage is copied, so that later updates do not show.
Result<Tensor> fetch_value(Value& input, bool movable);

// `status`, an INVALID_ARGUMENT about what a step was given, with a line that says what it was
// given: "inputs: float32 [2,3], int32 []". Other errors as they are.
Status with_inputs(const Status& status, std::span<Value* const> inputs);

// Measures one execution of a step: for the plan's own statistics when the run was chosen to be
// measured, and for the step's trace when there is one. Costs nothing otherwise.
class StepTimer {
 public:
  StepTimer(Plan& plan, int32_t step, bool measured, TraceCollector* trace,
            int64_t scheduled_ns = 0)
      : plan_(plan), trace_(trace), scheduled_ns_(scheduled_ns), step_(step), measured_(measured) {
    if (measured_ || trace_ != nullptr) start_ns_ = monotonic_nanos();
  }
  // `outputs`: what the step made, for the trace; may be null.
  void stop(const Value* outputs) {
    if (measured_ || trace_ != nullptr) [[unlikely]]
      record(outputs);
  }

 private:
  void record(const Value* outputs);

  Plan& plan_;
  TraceCollector* trace_;
  int64_t scheduled_ns_;
  int64_t start_ns_ = 0;
  int32_t step_;
  bool measured_;
};

// Counts a run of the plan and says whether to measure its steps: the first few, then one in 64.
inline bool begin_run(Plan& plan) {
  uint64_t run = plan.runs.fetch_add(1, std::memory_order_relaxed);
  // Often at first, and again for as long as the plan lives: what is fed may change.
  if (run > 0 && ((run < 512 && (run & (run - 1)) == 0) || run % 1024 == 0)) plan.review_gear();
  return run < 4 || run % 64 == 0;
}

}  // namespace millrace
