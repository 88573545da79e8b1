#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/step.h"

namespace millrace::data {

class Dataset;

// What iterators use of the process around them. It outlives the step that made an iterator: calls
// of functions and waits end with its own token.
class Environment final : public RefCounted {
 public:
  // `functions` may be null: then nothing that calls one can be iterated. Falls with `parent`,
  // which may be null.
  Environment(Ref<FunctionRunner> functions, Ref<Device> device,
              Ref<CancellationToken> parent = nullptr);
  // One that falls with `parent` and may be stopped alone: for a part of the tree that works ahead.
  static Ref<Environment> make_child(const Environment& parent);

  // Null when there are none.
  FunctionRunner* functions() const { return functions_.get(); }
  Device& device() const { return *device_; }
  // The caller of functions.
  Step& step() const { return *step_; }
  CancellationToken& cancel() const { return *step_->cancel; }
  bool stopped() const { return step_->cancel->cancelled(); }
  // OK, or why everything is to end.
  Status status() const { return step_->cancel->status(); }
  // Ends all calls and waits.
  void stop();

  // The session that it belongs to, as its nodes' session_prefix.
  std::string session;
  // How many bytes a stage that works ahead may keep; 0: as many as its buffer holds.
  int64_t memory_budget = 0;
  // Parallel stages may give elements in the order in which they are made, where they do not say
  // otherwise themselves.
  bool any_order = false;

 private:
  ~Environment() override;

  const Ref<FunctionRunner> functions_;
  const Ref<Device> device_;
  const Ref<Step> step_;
};

// Wakes all who wait for `changed` when everything is to end. What it is given outlives it.
class WakeOnStop {
 public:
  WakeOnStop(Environment& environment, Mutex& mu, CondVar& changed);
  ~WakeOnStop();
  WakeOnStop(const WakeOnStop&) = delete;
  WakeOnStop& operator=(const WakeOnStop&) = delete;

 private:
  Environment& environment_;
  const uint64_t ticket_;
};

// What is known of a stage while it runs. Any thread may read; written by whoever iterates.
class Stage {
 public:
  void add_elements(int64_t count) { bump(elements_, count); }
  void add_sample(int64_t nanoseconds) {
    bump(samples_, 1);
    bump(sampled_ns_, nanoseconds);
  }
  // How much of a buffer was filled when somebody asked.
  void add_fill(int64_t filled, int64_t capacity) {
    bump(fill_samples_, 1);
    bump(filled_, filled);
    capacity_.store(capacity, std::memory_order_relaxed);
  }
  // The number of the next iteration of a dataset that is iterated again and again.
  int64_t next_epoch() { return epoch_.fetch_add(1, std::memory_order_relaxed); }
  void set_next_epoch(int64_t epoch) { epoch_.store(epoch, std::memory_order_relaxed); }

  int64_t elements() const { return elements_.load(std::memory_order_relaxed); }
  // Mean time of an element, with all that came before it on the same thread; 0 before a sample.
  double mean_ns() const;
  // Mean number of elements in the buffer, -1 where there is none.
  double mean_fill() const;
  int64_t capacity() const { return capacity_.load(std::memory_order_relaxed); }

 private:
  // There is one writer, so no locked instruction; should there be two, a count may be lost.
  static void bump(std::atomic<int64_t>& value, int64_t by) {
    value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::atomic<int64_t> elements_{0}, samples_{0}, sampled_ns_{0};
  std::atomic<int64_t> fill_samples_{0}, filled_{0}, capacity_{0};
  std::atomic<int64_t> epoch_{0};
};

// The stages of one tree of datasets.
class StageTable final : public RefCounted {
 public:
  // Lists `root`, which it keeps, and all before it.
  explicit StageTable(const Dataset& root);
  ~StageTable() override;
  // Null for a dataset of another tree.
  Stage* find(const Dataset& dataset);
  // A line for each stage, the last one first: elements, time of its own and fill of its buffer.
  std::string to_string() const;

 private:
  struct Row {
    const Dataset* dataset;
    int depth;
    std::unique_ptr<Stage> stage;
  };
  void add(const Dataset& dataset, int depth);

  const Ref<const Dataset> root_;
  std::vector<Row> rows_;
};

// What a dataset is iterated in.
struct Iteration {
  Ref<Environment> environment;
  Ref<StageTable> stages;

  // Of a whole tree.
  static Iteration of(const Dataset& root, Ref<Environment> environment);
  // The same stages in another environment.
  Iteration within(Ref<Environment> other) const { return {std::move(other), stages}; }
};

}  // namespace millrace::data
