#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/subgraph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What a signature runs by where its feeds have certain shapes: beside its general plan, those that
// were made for the shapes that it keeps seeing (docs/plans.md). A plan that was added stays as
// long as the signature is kept, so who found it needs no lock. Thread-safe.
class ShapePlans {
 public:
  // So many plans; feeds of yet other shapes have the general one.
  static constexpr size_t kMost = 4;
  // Feeds of the same shapes have come so often when a plan is made for them.
  static constexpr int kRuns = 8;
  // Of so many combinations of shapes the runs are counted, those seen last.
  static constexpr size_t kCounted = 16;

  // `graph` is placed and rewritten, but for the passes that are last. `most`: at most kMost.
  explicit ShapePlans(Subgraph graph, size_t most = kMost);
  ~ShapePlans();

  // The plan for exactly these shapes; null: the general one. `variables_hold`: the shapes of
  // variables are still as declared; a plan that counts on it is not found otherwise.
  const Executable* find(std::span<const Tensor> feeds, bool variables_hold) const {
    for (const std::atomic<const Entry*>& place : entries_) {
      const Entry* const entry = place.load(std::memory_order_acquire);
      if (entry == nullptr) return nullptr;
      if (entry->fits(feeds) && (variables_hold || !entry->counts_on_variables)) {
        return entry->executable.get();
      }
    }
    return nullptr;
  }
  // Counts a run of the general plan. True for one caller: the kRuns-th with these shapes, who is
  // to have a plan made, and then to call add() or give_up(). Nobody else is told so until then.
  bool count(std::span<const Tensor> feeds);
  // False once no further plan will be made.
  bool open() const { return open_.load(std::memory_order_relaxed); }

  // The graph, with the shapes of these feeds as facts, and if they hold those of variables too.
  Result<Subgraph> graph_for(std::span<const Shape> feeds, bool variables_hold) const;
  void add(std::vector<Shape> feeds, bool counts_on_variables, Ref<Executable> executable);
  // No plan is worth its memory: none is made from now on.
  void give_up();

  // About how much memory the plans hold, and the graph that others would be made of.
  int64_t bytes() const;
  // For people: the shapes, with the plans made for them.
  std::string to_string() const;

 private:
  struct Entry {
    std::vector<Shape> feeds;
    bool counts_on_variables = false;
    Ref<Executable> executable;
    bool fits(std::span<const Tensor> tensors) const;
  };
  struct Seen {
    std::vector<Shape> feeds;
    int runs = 0;
  };
  void close() MR_REQUIRES(mu_);

  const size_t most_;
  std::array<std::atomic<const Entry*>, kMost> entries_{};  // owned; from the front
  std::atomic<bool> open_{true};
  mutable Mutex mu_;
  // Null once it is of no more use.
  std::shared_ptr<const Subgraph> graph_ MR_GUARDED_BY(mu_);
  std::list<Seen> seen_ MR_GUARDED_BY(mu_);  // last first
  bool making_ MR_GUARDED_BY(mu_) = false;
};

// The shapes of these tensors.
std::vector<Shape> shapes_of(std::span<const Tensor> tensors);

}  // namespace millrace
