#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "millrace/runtime/frame_units.h"

namespace millrace {

// When a value is there: a set of literals, all of which must hold. Literal 0: the loop is over; 1:
// it goes on; 2 + f: flag f is not up. Sorted.
using Guard = std::vector<int32_t>;
constexpr int32_t kOver = 0, kGoesOn = 1, kFirstFlag = 2;

inline bool contains(const Guard& guard, int32_t literal) {
  return std::binary_search(guard.begin(), guard.end(), literal);
}
inline Guard both(const Guard& a, const Guard& b) {
  Guard out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

enum class Phase : uint8_t { kCondition, kBody, kAfter };
inline Phase phase_of(const Guard& guard) {
  if (contains(guard, kOver)) return Phase::kAfter;
  return contains(guard, kGoesOn) ? Phase::kBody : Phase::kCondition;
}

// What is found out about units and values of the frames done so far.
struct Findings {
  Findings(int32_t units, int32_t values)
      : unit_guard(at(units)),
        varies(at(units), false),
        once(at(units), false),
        left_out(at(units), false),
        value_guard(at(values)),
        stored(at(values), -1),
        kept(at(values), false),
        variable(at(values), false) {}
  std::vector<Guard> unit_guard;
  std::vector<bool> varies;    // the unit hangs on a variable of the loop
  std::vector<bool> once;      // it runs once, as no iteration changes what it computes
  std::vector<bool> left_out;  // it only hands on what nobody reads
  std::vector<Guard> value_guard;
  std::vector<int32_t> stored;  // by value: the one in whose slot it is
  std::vector<bool> kept;       // the value is the same in every iteration
  std::vector<bool> variable;   // it is a variable of the loop
};

// Finds out whether a frame can be a PlanLoop.
class LoopAnalysis {
 public:
  LoopAnalysis(Plan& plan, const FrameUnits& units, Findings& found, PlanLoop& loop)
      : plan_(plan), units_(units), found_(found), loop_(loop) {}

  // `order`: all units of the frame.
  bool run(const std::vector<int32_t>& order);

  // The first flag of a Switch, or of a Merge that needs one; else -1.
  int32_t flags_of(int32_t s) const;

 private:
  const PlanStep& step(int32_t s) const { return plan_.steps[at(s)]; }
  const PlanStep& producer(int32_t value) const { return step(units_.producer(value)); }
  int32_t stored(int32_t value) const { return found_.stored[at(value)]; }

  // What enters and leaves, and the one LoopCond.
  bool find_shape();
  // A Merge of what entered and what comes back.
  bool is_variable(int32_t s) const;

  // What the step waits for, its data and its control inputs.
  Guard guard_of(int32_t s) const;
  bool hangs_on_variable(int32_t s) const;

  // One of these for each unit, in order; false where the loop needs a frame because of it.
  bool add_inner(int32_t unit);
  bool add_step(int32_t s);
  bool add_kernel(int32_t s);
  bool add_forward(int32_t s);
  bool add_variable(int32_t s);
  bool add_switch(int32_t s);
  // A Merge of all branches of one predicate is there when that is; one of anything else has a flag
  // of its own.
  bool add_merge(int32_t s);
  bool are_all_branches(const Guard& ways, int count) const;

  void set_output(int32_t s, int k, const Guard& guard);
  void note_effects(int32_t unit, bool effects);

  // Whether the step is there for its control edges only, and cannot fail: a NoOp, an Identity that
  // nobody reads.
  bool only_orders(int32_t s) const;

  // Whether no iteration changes what the step computes, so that once is enough.
  bool is_same_every_time(int32_t s) const;

  Plan& plan_;
  const FrameUnits& units_;
  Findings& found_;
  PlanLoop& loop_;
  std::map<std::pair<int32_t, int32_t>, int32_t> branches_;  // predicate, outputs -> first flag
  std::map<int32_t, std::pair<int32_t, int32_t>> group_;     // flag -> first flag, how many
  std::map<int32_t, int32_t> flags_;                         // by step
};

}  // namespace millrace
