#include "millrace/graph/op_registry.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"

namespace millrace {

namespace {

// Open addressing with linear probing; never more than half full, so a probe ends. Slots go from
// null to a definition once.
struct Table {
  explicit Table(size_t capacity)
      : mask(capacity - 1), slots(new std::atomic<const OpDef*>[capacity]()) {}

  void insert(const OpDef* op) {
    size_t i = hash_bytes(op->name) & mask;
    while (slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & mask;
    slots[i].store(op, std::memory_order_release);
  }
  const OpDef* find(std::string_view name) const {
    for (size_t i = hash_bytes(name) & mask;; i = (i + 1) & mask) {
      const OpDef* op = slots[i].load(std::memory_order_acquire);
      if (op == nullptr || op->name == name) return op;
    }
  }

  const size_t mask;
  std::unique_ptr<std::atomic<const OpDef*>[]> slots;
};

// Levenshtein distance, or `limit` when it is not less.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    size_t best = row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
      best = std::min(best, row[j + 1]);
    }
    if (best >= limit) return limit;
  }
  return std::min(row[b.size()], limit);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

struct OpRegistry::Impl {
  static constexpr size_t kFirstCapacity = 256;

  std::atomic<const Table*> table;
  Mutex mu;
  std::deque<OpDef> ops MR_GUARDED_BY(mu);
  // All tables there ever were: a reader may still be in an old one.
  std::vector<std::unique_ptr<Table>> tables MR_GUARDED_BY(mu);
};

OpRegistry::OpRegistry() : impl_(new Impl) {
  MutexLock lock(impl_->mu);
  impl_->tables.push_back(std::make_unique<Table>(Impl::kFirstCapacity));
  impl_->table.store(impl_->tables.back().get(), std::memory_order_release);
}

OpRegistry::~OpRegistry() { delete impl_; }

OpRegistry& OpRegistry::global() {
  static OpRegistry& registry = *new OpRegistry;
  return registry;
}

Status OpRegistry::add(OpDef def) {
  MutexLock lock(impl_->mu);
  Table* table = impl_->tables.back().get();
  if (table->find(def.name) != nullptr) {
    return already_exists("Op '", def.name, "' is registered already");
  }
  impl_->ops.push_back(std::move(def));
  if (impl_->ops.size() * 2 <= table->mask) {
    table->insert(&impl_->ops.back());
    return ok_status();
  }
  auto grown = std::make_unique<Table>((table->mask + 1) * 2);
  for (const OpDef& op : impl_->ops) grown->insert(&op);
  impl_->table.store(grown.get(), std::memory_order_release);
  impl_->tables.push_back(std::move(grown));
  return ok_status();
}

const OpDef* OpRegistry::find(std::string_view name) const {
  return impl_->table.load(std::memory_order_acquire)->find(name);
}

Result<const OpDef*> OpRegistry::lookup(std::string_view name) const {
  if (const OpDef* op = find(name)) return op;
  constexpr size_t kLongest = 100;
  constexpr size_t kMost = 3;
  std::string message = str_cat("Op type not registered '", name.substr(0, kLongest), "'");
  if (name.size() > kLongest) return Status(Code::kNotFound, message);
  const std::string wanted = lower(name);
  const size_t limit = std::min<size_t>(4, name.size() / 3 + 2);
  std::vector<std::pair<size_t, std::string_view>> nearest;
  for (const OpDef* op : list()) {
    const size_t distance = edit_distance(wanted, lower(op->name), limit);
    if (distance < limit) nearest.emplace_back(distance, op->name);
  }
  std::sort(nearest.begin(), nearest.end());
  for (size_t i = 0; i < std::min(nearest.size(), kMost); ++i) {
    message += str_cat(i == 0 ? "; near names: '" : ", '", nearest[i].second, "'");
  }
  return Status(Code::kNotFound, message);
}

std::vector<const OpDef*> OpRegistry::list() const {
  std::vector<const OpDef*> out;
  {
    MutexLock lock(impl_->mu);
    out.reserve(impl_->ops.size());
    for (const OpDef& op : impl_->ops) out.push_back(&op);
  }
  std::sort(out.begin(), out.end(),
            [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  return out;
}

}  // namespace millrace
