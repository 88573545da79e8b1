#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"

namespace millrace {

// Time and chance of a simulation, both from a seed: what is to happen later, in order, and a pool
// without threads for what happens now. All of it happens on the thread that calls run_one(), so
// the same seed gives the same run. Not thread-safe.
class SimulatedTime : public RefCounted {
 public:
  explicit SimulatedTime(uint64_t seed) : state_(seed) {}
  ~SimulatedTime() override;

  int64_t now_ns() const { return now_ns_; }
  // For kernels, and whatever else asks for a pool.
  ThreadPool& pool() { return pool_; }

  // Does `task` when so much time has passed; in the order of the calls at one moment. A ticket for
  // remove(), never 0.
  uint64_t schedule(int64_t delay_ns, UniqueFunction<void()> task);
  bool remove(uint64_t ticket);
  // Lets time pass until the next thing happens, with all that it leaves to the pool. False: there
  // is nothing.
  bool run_one();

  // Drops all that was to happen: what it holds may hold this.
  void clear();

  uint64_t random();
  // At least `low`, below `high`.
  int64_t between(int64_t low, int64_t high);
  bool chance(double probability);

  // A number that tells runs apart: of all that has happened and when.
  uint64_t digest() const { return digest_; }
  void note(uint64_t what);

 private:
  using Moment = std::pair<int64_t, uint64_t>;  // and the ticket

  uint64_t state_;
  int64_t now_ns_ = 0;
  uint64_t last_ticket_ = 0;
  uint64_t digest_ = 0;
  std::map<Moment, UniqueFunction<void()>> tasks_;
  std::unordered_map<uint64_t, int64_t> moments_;  // by ticket
  ThreadPool pool_{ThreadPool::WithoutThreads()};
};

// The timer of one process: nothing of it happens any more once the process has ended.
class ProcessTimer final : public Timer {
 public:
  explicit ProcessTimer(Ref<SimulatedTime> time) : time_(std::move(time)) {}

  int64_t now_ns() const override { return time_->now_ns(); }
  uint64_t schedule(int64_t delay_ns, UniqueFunction<void()> task) override;
  bool remove(uint64_t ticket) override;

  void stop();

 private:
  const Ref<SimulatedTime> time_;
  bool stopped_ = false;
  std::set<uint64_t> tickets_;
};

}  // namespace millrace
