#pragma once

#include <cstdint>

#include "millrace/runtime/straight_calls.h"

namespace millrace {

// Runs loops of a plan without frames, on this thread: in both gears.
class LoopRun {
 public:
  // `watch`: what else than the step's token may end the run; null: nothing. With `measured` the
  // first iterations measure their steps.
  LoopRun(StraightCalls& calls, Watch* watch, bool measured)
      : calls_(calls), watch_(watch), measured_(measured), timed_(measured || traced()) {}

  // How an execution ended.
  enum class End : uint8_t {
    kLeft,     // the outputs have their values
    kStopped,  // between two iterations, because frames seem better: take_entries() tells where
  };
  // Runs a loop whose inputs are there and live; takes those that `movable` has bits for, and sets
  // its outputs. With `may_stop` it may end early; otherwise it ends when the loop does, or the
  // step. An error comes with its place.
  Result<End> run(PlanLoop& loop, Value* const* inputs, uint64_t movable, Value* outputs,
                  StraightCalls::Where where, bool may_stop = false);
  // After kStopped: gives the loop's inputs the values with which it goes on from there.
  void take_entries(const PlanLoop& loop, Value* const* inputs);

 private:
  // How many iterations of a loop are measured in a run.
  static constexpr uint64_t kMeasured = 8;

  bool traced() const { return calls_.step().trace != nullptr; }
  Status enter(const PlanLoop& loop, Value* const* inputs, uint64_t movable);
  template <bool kTimed>
  Status run_steps(const PlanLoop& loop, PlanLoop::Range range, StraightCalls::Where where);
  Status run_range(const PlanLoop& loop, PlanLoop::Range range, StraightCalls::Where where);
  Status run_other(const StraightStep& step, size_t index, StraightCalls::Where where);
  // Whether the steps behind a guard are to be left out; what follows from that is done.
  bool is_guarded(const PlanLoop::Guard& guard);
  Status run_switch(const StraightStep& step, int32_t flags);
  Status run_merge(const StraightStep& step, int32_t flags);
  Result<bool> goes_on(const PlanLoop& loop) const;
  void move(const PlanLoop::Move& move, Value* to);
  Status end_if_asked();

  StraightCalls& calls_;
  Watch* const watch_;
  const bool measured_;
  bool timed_;  // the iteration at hand is measured or traced
  // The clock is read every so many iterations.
  uint32_t stride_ = 1;
  uint32_t until_look_ = 1;
  int64_t looked_at_ns_ = 0;
};

}  // namespace millrace
