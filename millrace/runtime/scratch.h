#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/value.h"
#include "millrace/runtime/plan.h"

namespace millrace {

struct Frame;

// The values of one straight run, or of one loop that runs without frames: one slot per live value,
// and for every input of every step a pointer to its slot, made once.
struct StraightArena {
  explicit StraightArena(const Plan& plan);
  std::unique_ptr<Value[]> slots;  // all empty between runs
  std::unique_ptr<Value*[]> inputs;
  // Memory for the value that a slot gets next, as KernelContext::Args says; null: none is planned,
  // as in every arena until a planner fills it.
  std::unique_ptr<Ref<Buffer>[]> planned;
  // By flag: whether that output of a Switch or a Merge is dead in the iteration at hand.
  std::unique_ptr<bool[]> dead;
};

// One iteration of one frame in a parallel run: values, and what steps wait for.
struct Iteration {
  explicit Iteration(const PlanFrame& desc);
  // Ready for another use: all counters as at the start, all slots empty.
  void reset(const PlanFrame& desc);
  // As reset(), for use in the same frame: what is kept there stays.
  void recycle(const PlanFrame& desc);

  Frame* frame = nullptr;
  int64_t number = 0;
  // Steps of this iteration that are ready or running, plus one for each of: an Enter that has not
  // come (iteration 0), the iteration before, a frame started from here. At 0 the iteration is
  // over. Not kept for the root.
  std::atomic<int64_t> outstanding{0};
  std::unique_ptr<Value[]> slots;
  std::unique_ptr<std::atomic<int32_t>[]> uses;      // per slot: inputs that still read it
  std::unique_ptr<std::atomic<uint64_t>[]> pending;  // per step; see pending.h
  std::unique_ptr<std::atomic<int32_t>[]> chosen;    // per step: a Merge's live input
  std::vector<Frame*> children;                      // guarded by the mutex of `frame`
};

// Memory that runs of a plan take and give back. Thread-safe.
struct PlanScratch {
  explicit PlanScratch(const Plan& plan);

  std::unique_ptr<StraightArena> take_arena();
  void give_back(std::unique_ptr<StraightArena> arena);
  // A reset iteration of static frame `frame`.
  Iteration* take_iteration(int frame);
  void give_back(int frame, Iteration* iteration);
  ~PlanScratch();

 private:
  static constexpr size_t kKept = 64;
  const Plan& plan_;
  // One that is free, without the lock: all that runs one after the other need.
  std::atomic<StraightArena*> spare_{nullptr};
  Mutex mu_;
  std::vector<std::unique_ptr<StraightArena>> arenas_ MR_GUARDED_BY(mu_);
  std::vector<std::vector<Iteration*>> iterations_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
