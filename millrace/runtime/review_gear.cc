#include <algorithm>
#include <vector>

#include "millrace/base/loop_threads.h"
#include "millrace/runtime/executor.h"

// Which way a plan is to run, by what was measured.

namespace millrace {
namespace {

// Sharing costs some microseconds; it pays when the longest path is well below the sum.
constexpr uint64_t kWorthSharing = 50'000;
bool is_worth_sharing(uint64_t total, uint64_t longest) {
  return total > kWorthSharing && longest * 4 < total * 3;
}

// Some iterations of a loop as if there were a thread for each step: how long all take, and how
// long the path from the first to the last is.
class Iterations {
 public:
  Iterations(const Plan& plan, const PlanLoop& loop)
      : plan_(plan),
        loop_(loop),
        ready_(static_cast<size_t>(loop.num_slots)),
        waits_(plan.steps.size()) {}

  bool are_worth_sharing() {
    constexpr uint64_t kCount = 4;
    run(loop_.before);
    run(loop_.first_time);
    total_ = longest_ = 0;
    for (uint64_t k = 0; k < kCount; ++k) {
      std::fill(waits_.begin(), waits_.end(), 0);
      begin_ = 0;
      run(loop_.condition);
      begin_ = ready_at(loop_.predicate);
      run(loop_.body);
      for (const PlanLoop::Move& move : loop_.moves) {
        ready_at(move.to) = std::max(begin_, ready_at(move.from));
      }
    }
    return is_worth_sharing(total_ / kCount, longest_ / kCount);
  }

 private:
  uint64_t& ready_at(int32_t slot) { return ready_[static_cast<size_t>(slot - loop_.first_slot)]; }

  void run(PlanLoop::Range range) {
    for (int32_t i = range.first; i < range.last; ++i) {
      const StraightStep& step = plan_.loop_steps[static_cast<size_t>(i)];
      if (step.kind == StepKind::kGuard) continue;
      uint64_t& waits = waits_[static_cast<size_t>(step.step)];
      uint64_t begin = std::max(begin_, waits);
      for (int k = 0; k < step.num_inputs; ++k) {
        begin = std::max(begin, ready_at(plan_.straight_inputs[nth(step.first_input, k)]));
      }
      const uint64_t ns =
          plan_.step_ns[static_cast<size_t>(step.step)].load(std::memory_order_relaxed);
      total_ += ns;
      longest_ = std::max(longest_, begin + ns);
      for (int k = 0; k < step.num_outputs; ++k) ready_at(step.first_output + k) = begin + ns;
      if (step.kind == StepKind::kLoop) continue;
      const PlanStep& from = plan_.steps[static_cast<size_t>(step.step)];
      for (int k = 0; k < from.num_edges; ++k) {
        const PlanEdge& edge = plan_.edges[nth(from.first_edge, k)];
        if (edge.input >= 0) continue;
        uint64_t& other = waits_[static_cast<size_t>(edge.step)];
        other = std::max(other, begin + ns);
      }
    }
  }

  const Plan& plan_;
  const PlanLoop& loop_;
  std::vector<uint64_t> ready_;  // by slot: when it has its value
  std::vector<uint64_t> waits_;  // by step: when those are over that it only waits for
  uint64_t begin_ = 0;           // before that nothing starts
  uint64_t total_ = 0, longest_ = 0;
};

}  // namespace

void Plan::review_gear() {
  std::vector<bool> worth(frames.size(), false);  // by frame
  for (const std::unique_ptr<PlanLoop>& loop : loops) {
    const size_t frame = static_cast<size_t>(loop->frame);
    // One inside of it that pays has frames only where this one has.
    worth[frame] = worth[frame] || Iterations(*this, *loop).are_worth_sharing();
    loop->worth_frames.store(worth[frame], std::memory_order_relaxed);
    if (worth[frame]) worth[static_cast<size_t>(frames[frame].parent)] = true;
  }
  if (straight.empty()) return;
  uint64_t total = 0, longest = 0;
  std::vector<uint64_t> finish(steps.size(), 0);
  const auto pass_on = [&](const PlanStep& from, uint64_t ns) {
    for (int k = 0; k < from.num_edges; ++k) {
      const int32_t to = edges[nth(from.first_edge, k)].step;
      const PlanStep& step = steps[static_cast<size_t>(to)];
      const PlanLoop* into =
          step.control_flow == ControlFlow::kEnter ? loop_of(step.output_frame) : nullptr;
      uint64_t& other = finish[static_cast<size_t>(into != nullptr ? into->loop_cond : to)];
      other = std::max(other, ns);
    }
  };
  for (const StraightStep& s : straight) {
    const size_t i = static_cast<size_t>(s.step);
    const uint64_t ns = step_ns[i].load(std::memory_order_relaxed);
    total += ns;
    finish[i] += ns;
    longest = std::max(longest, finish[i]);
    if (s.kind != StepKind::kLoop) {
      pass_on(steps[i], finish[i]);
      continue;
    }
    for (int32_t exit : loop_of(steps[i].frame)->exits) {
      pass_on(steps[static_cast<size_t>(exit)], finish[i]);
    }
  }
  worth_sharing.store(worth[0] || is_worth_sharing(total, longest), std::memory_order_relaxed);
}

namespace {

// Of a plan whose steps may pay side by side: kernels share their loops as well, and which of the
// two is quicker only runs tell. Now and then two that follow each other go the other way.
bool takes_less_straight(const Plan& plan) {
  constexpr uint64_t kTogether = 2, kFirstPeriod = 4;
  constexpr uint32_t kLongest = 1'000'000'000;
  const uint32_t straight = plan.straight_ns.load(std::memory_order_relaxed);
  const uint32_t parallel = plan.parallel_ns.load(std::memory_order_relaxed);
  if (parallel == 0 || parallel > kLongest) return false;
  const bool better = straight != 0 && takes_no_longer(straight, parallel);
  const uint64_t known = better ? straight : parallel, other = better ? parallel : straight;
  const uint64_t period = straight == 0 ? kFirstPeriod : period_of_tries(known, other);
  const uint64_t turn = plan.runs.load(std::memory_order_relaxed) / kTogether + 1;
  return better != (turn % period == 0);
}

}  // namespace

bool runs_straight(const Plan& plan, Gear gear) {
  if (!plan.straight_allowed() || gear == Gear::kParallel) return false;
  if (gear == Gear::kStraight) return true;
  if (plan.many_blocking) return false;
  return !plan.worth_sharing.load(std::memory_order_relaxed) || takes_less_straight(plan);
}

}  // namespace millrace
