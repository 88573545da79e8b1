#include "millrace/session/shape_plans.h"

#include <algorithm>

#include "millrace/runtime/subgraph_facts.h"

namespace millrace {
namespace {

bool same(const std::vector<Shape>& shapes, std::span<const Tensor> tensors) {
  return std::equal(
      shapes.begin(), shapes.end(), tensors.begin(), tensors.end(),
      [](const Shape& shape, const Tensor& tensor) { return shape == tensor.shape(); });
}

bool makes_reference(const SubNode& node) {
  return node.output_types.size() == 1 && is_ref(node.output_types[0]);
}

}  // namespace

std::vector<Shape> shapes_of(std::span<const Tensor> tensors) {
  std::vector<Shape> shapes;
  shapes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) shapes.push_back(tensor.shape());
  return shapes;
}

bool ShapePlans::Entry::fits(std::span<const Tensor> tensors) const { return same(feeds, tensors); }

ShapePlans::ShapePlans(Subgraph graph, size_t most)
    : most_(std::min(most, kMost)), graph_(std::make_shared<const Subgraph>(std::move(graph))) {}

ShapePlans::~ShapePlans() {
  for (const auto& place : entries_) delete place.load(std::memory_order_acquire);
}

bool ShapePlans::count(std::span<const Tensor> feeds) {
  MutexLock lock(mu_);
  if (making_ || !open()) return false;
  auto it = std::find_if(seen_.begin(), seen_.end(),
                         [&](const Seen& seen) { return same(seen.feeds, feeds); });
  if (it == seen_.end()) {
    if (seen_.size() == kCounted) seen_.pop_back();
    seen_.push_front({shapes_of(feeds), 0});
  } else {
    seen_.splice(seen_.begin(), seen_, it);
  }
  if (++seen_.front().runs < kRuns) return false;
  seen_.pop_front();
  // Another thread may have looked for a plan before it was added.
  if (find(feeds, /*variables_hold=*/true) != nullptr) return false;
  return making_ = true;
}

Result<Subgraph> ShapePlans::graph_for(std::span<const Shape> feeds, bool variables_hold) const {
  std::shared_ptr<const Subgraph> graph;
  {
    MutexLock lock(mu_);
    graph = graph_;
  }
  if (!graph) return failed_precondition("no further plans are made of this graph");
  Subgraph out = *graph;
  for (SubNode& node : out.nodes()) {
    if (variables_hold && node.op->traits.owns_state && makes_reference(node)) {
      node.set_attr(kHeldShapeAttr, true);
    }
    if (!node.op->traits.argument) continue;
    MR_TRY_ASSIGN(const int64_t position, node.attr<int64_t>("index"));
    if (position < 0 || static_cast<size_t>(position) >= feeds.size()) {
      return internal("feed ", position, " of ", feeds.size());
    }
    node.set_attr(kFeedShapeAttr, PartialShape(feeds[static_cast<size_t>(position)]));
  }
  return out;
}

void ShapePlans::add(std::vector<Shape> feeds, bool counts_on_variables,
                     Ref<Executable> executable) {
  MutexLock lock(mu_);
  making_ = false;
  size_t used = 0;
  while (used < most_ && entries_[used].load(std::memory_order_relaxed) != nullptr) ++used;
  if (used == most_) return;
  entries_[used].store(new Entry{std::move(feeds), counts_on_variables, std::move(executable)},
                       std::memory_order_release);
  if (used + 1 == most_) close();
}

void ShapePlans::give_up() {
  MutexLock lock(mu_);
  making_ = false;
  close();
}

void ShapePlans::close() {
  open_.store(false, std::memory_order_relaxed);
  graph_.reset();
  seen_.clear();
}

int64_t ShapePlans::bytes() const {
  constexpr int64_t kPerNode = 600;
  int64_t bytes = 0;
  {
    MutexLock lock(mu_);
    if (graph_) bytes = kPerNode * graph_->size();
  }
  for (const auto& place : entries_) {
    const Entry* const entry = place.load(std::memory_order_acquire);
    if (entry != nullptr) bytes += entry->executable->bytes();
  }
  return bytes;
}

std::string ShapePlans::to_string() const {
  std::string out;
  for (const auto& place : entries_) {
    const Entry* const entry = place.load(std::memory_order_acquire);
    if (entry == nullptr) break;
    append_to(out, "for feeds of the shapes");
    for (const Shape& shape : entry->feeds) append_to(out, str_cat(" ", shape));
    append_to(out, str_cat(":\n", entry->executable->to_string()));
    out += entry->executable->history();
  }
  return out;
}

}  // namespace millrace
