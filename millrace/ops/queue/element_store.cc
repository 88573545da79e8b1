#include "millrace/ops/queue/element_store.h"

#include <array>
#include <deque>
#include <map>
#include <random>
#include <utility>

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

// Philox 4x32-10, its words one by one.
class RandomWords {
 public:
  RandomWords(uint64_t seed, uint64_t seed2)
      : key_{low(seed), high(seed)}, counter_{0, 0, low(seed2), high(seed2)} {}

  uint32_t next() {
    if (used_ == block_.size()) {
      block_ = encrypt(counter_, key_);
      used_ = 0;
      for (uint32_t& word : counter_) {
        if (++word != 0) break;
      }
    }
    return block_[used_++];
  }

 private:
  using Block = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  static uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
  static Block encrypt(Block c, Key key) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
      c = {high(p1) ^ c[1] ^ key[0], low(p1), high(p0) ^ c[3] ^ key[1], low(p0)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return c;
  }

  const Key key_;
  Block counter_;
  Block block_ = {};
  size_t used_ = 4;
};

class ShuffleStore final : public ElementStore {
 public:
  ShuffleStore(uint64_t seed, uint64_t seed2) : words_(seed, seed2) {}

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
  RandomWords words_;
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
          given ? static_cast<uint64_t>(spec.seed) : random_seed(),
          given ? static_cast<uint64_t>(spec.seed2) : random_seed());
    }
    case QueueKind::kPriority:
      return std::make_unique<PriorityStore>();
  }
  return nullptr;
}

}  // namespace millrace
