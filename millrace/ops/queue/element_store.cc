#include "millrace/ops/queue/element_store.h"

#include <deque>
#include <map>
#include <random>
#include <utility>

#include "millrace/ops/random/philox.h"

namespace millrace {
namespace {

class FifoStore final : public ElementStore {
 public:
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  void put(QueueElement element) override { elements_.push_back(std::move(element)); }
  QueueElement pick() override {
    QueueElement element = std::move(elements_.front());
    elements_.pop_front();
    return element;
  }
  void put_back(QueueElement element) override { elements_.push_front(std::move(element)); }

 private:
  std::deque<QueueElement> elements_;
};

class ShuffleStore final : public ElementStore {
 public:
  explicit ShuffleStore(Philox stream) : words_(stream) {}

  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  void put(QueueElement element) override { elements_.push_back(std::move(element)); }
  QueueElement pick() override {
    const size_t chosen = words_.next() % elements_.size();
    std::swap(elements_[chosen], elements_.back());
    QueueElement element = std::move(elements_.back());
    elements_.pop_back();
    return element;
  }
  void put_back(QueueElement element) override { elements_.push_back(std::move(element)); }

 private:
  std::vector<QueueElement> elements_;
  PhiloxWords words_;
};

// Smallest number first, equal ones in the order they came.
class PriorityStore final : public ElementStore {
 public:
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  void put(QueueElement element) override { insert(std::move(element), next_++); }
  QueueElement pick() override {
    QueueElement element = std::move(elements_.begin()->second);
    elements_.erase(elements_.begin());
    return element;
  }
  void put_back(QueueElement element) override { insert(std::move(element), --first_); }

 private:
  void insert(QueueElement element, int64_t turn) {
    const int64_t priority = element[0].item<int64_t>();
    elements_.emplace(std::pair(priority, turn), std::move(element));
  }

  std::map<std::pair<int64_t, int64_t>, QueueElement> elements_;
  // Turns in use are in [first_, next_).
  int64_t first_ = 0;
  int64_t next_ = 0;
};

uint64_t random_seed() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

std::string_view queue_kind_name(QueueKind kind) {
  switch (kind) {
    case QueueKind::kFifo:
      return "FIFOQueue";
    case QueueKind::kPaddingFifo:
      return "PaddingFIFOQueue";
    case QueueKind::kRandomShuffle:
      return "RandomShuffleQueue";
    case QueueKind::kPriority:
      return "PriorityQueue";
  }
  return "Queue";
}

std::unique_ptr<ElementStore> make_element_store(const QueueSpec& spec) {
  switch (spec.kind) {
    case QueueKind::kFifo:
    case QueueKind::kPaddingFifo:
      return std::make_unique<FifoStore>();
    case QueueKind::kRandomShuffle: {
      const bool given = spec.seed != 0 || spec.seed2 != 0;
      return std::make_unique<ShuffleStore>(
          given ? Philox(static_cast<uint64_t>(spec.seed), static_cast<uint64_t>(spec.seed2))
                : Philox(random_seed(), random_seed()));
    }
    case QueueKind::kPriority:
      return std::make_unique<PriorityStore>();
  }
  return nullptr;
}

}  // namespace millrace
