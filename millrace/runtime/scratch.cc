#include "millrace/runtime/scratch.h"

namespace millrace {

StraightArena::StraightArena(const Plan& plan)
    : slots(std::make_unique<Value[]>(static_cast<size_t>(plan.straight_slots))),
      inputs(std::make_unique<Value*[]>(plan.straight_inputs.size())),
      dead(std::make_unique<bool[]>(static_cast<size_t>(plan.num_flags))) {
  for (size_t i = 0; i < plan.straight_inputs.size(); ++i) {
    inputs[i] = &slots[static_cast<size_t>(plan.straight_inputs[i])];
  }
}

Iteration::Iteration(const PlanFrame& desc)
    : slots(std::make_unique<Value[]>(static_cast<size_t>(desc.num_slots))),
      uses(std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(desc.num_slots))),
      pending(std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(desc.num_steps))),
      chosen(std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(desc.num_steps))),
      children(static_cast<size_t>(desc.num_children), nullptr) {
  for (size_t i = 0; i < static_cast<size_t>(desc.num_slots); ++i) {
    uses[i].store(desc.initial_uses[i], std::memory_order_relaxed);
  }
  recycle(desc);
}

void Iteration::reset(const PlanFrame& desc) {
  for (size_t i = 0; i < static_cast<size_t>(desc.num_slots); ++i) slots[i].clear();
  recycle(desc);
}

void Iteration::recycle(const PlanFrame& desc) {
  for (size_t i = 0; i < static_cast<size_t>(desc.num_slots); ++i) {
    if (desc.initial_uses[i] == PlanFrame::kKept) continue;
    slots[i].clear();
    uses[i].store(desc.initial_uses[i], std::memory_order_relaxed);
  }
  for (size_t i = 0; i < static_cast<size_t>(desc.num_steps); ++i) {
    pending[i].store(desc.initial_pending[i], std::memory_order_relaxed);
  }
}

PlanScratch::PlanScratch(const Plan& plan) : plan_(plan), iterations_(plan.frames.size()) {}

PlanScratch::~PlanScratch() {
  delete spare_.load(std::memory_order_acquire);
  for (std::vector<Iteration*>& list : iterations_) {
    for (Iteration* iteration : list) delete iteration;
  }
}

std::unique_ptr<StraightArena> PlanScratch::take_arena() {
  if (StraightArena* spare = spare_.exchange(nullptr, std::memory_order_acquire)) {
    return std::unique_ptr<StraightArena>(spare);
  }
  {
    MutexLock lock(mu_);
    if (!arenas_.empty()) {
      std::unique_ptr<StraightArena> arena = std::move(arenas_.back());
      arenas_.pop_back();
      return arena;
    }
  }
  return std::make_unique<StraightArena>(plan_);
}

void PlanScratch::give_back(std::unique_ptr<StraightArena> arena) {
  StraightArena* none = nullptr;
  if (spare_.compare_exchange_strong(none, arena.get(), std::memory_order_acq_rel)) {
    (void)arena.release();
    return;
  }
  MutexLock lock(mu_);
  if (arenas_.size() < kKept) arenas_.push_back(std::move(arena));
}

Iteration* PlanScratch::take_iteration(int frame) {
  {
    MutexLock lock(mu_);
    std::vector<Iteration*>& list = iterations_[static_cast<size_t>(frame)];
    if (!list.empty()) {
      Iteration* iteration = list.back();
      list.pop_back();
      return iteration;
    }
  }
  return new Iteration(plan_.frames[static_cast<size_t>(frame)]);
}

void PlanScratch::give_back(int frame, Iteration* iteration) {
  iteration->reset(plan_.frames[static_cast<size_t>(frame)]);
  {
    MutexLock lock(mu_);
    std::vector<Iteration*>& list = iterations_[static_cast<size_t>(frame)];
    if (list.size() < kKept) {
      list.push_back(iteration);
      return;
    }
  }
  delete iteration;
}

}  // namespace millrace
