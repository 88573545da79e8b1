#include "millrace/session/plan_cache.h"

#include <utility>

namespace millrace {

Result<Ref<Prepared>> PlanCache::find_or_build(const Signature& signature,
                                               FunctionRef<Result<Ref<Prepared>>()> build) {
  const std::string key = signature.key();
  Ref<Building> mine;
  {
    MutexLock lock(mu_);
    if (auto it = by_key_.find(key); it != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->prepared;
    }
    Ref<Building>& building = building_[key];
    if (building) {
      const Ref<Building> other = building;
      while (!other->over) built_.wait(mu_);
      return other->result;
    }
    building = mine = make_ref<Building>();
  }
  Result<Ref<Prepared>> result = build();
  std::list<Entry> dropped;
  MutexLock lock(mu_);
  building_.erase(key);
  mine->result = result;
  mine->over = true;
  built_.notify_all();
  if (result.ok()) dropped = insert(key, *result);
  lock.unlock();
  return result;
}

std::list<PlanCache::Entry> PlanCache::insert(const std::string& key,
                                              const Ref<Prepared>& prepared) {
  entries_.push_front({key, prepared, prepared->bytes()});
  by_key_.emplace(key, entries_.begin());
  bytes_ += entries_.front().bytes;
  return drop_oldest();
}

std::list<PlanCache::Entry> PlanCache::drop_oldest() {
  std::list<Entry> dropped;
  while (bytes_ > max_bytes_ && entries_.size() > kAlwaysKept) {
    bytes_ -= entries_.back().bytes;
    by_key_.erase(entries_.back().key);
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
  }
  return dropped;
}

void PlanCache::weigh(const Prepared& prepared) {
  const std::string key = prepared.signature.key();
  std::list<Entry> dropped;
  MutexLock lock(mu_);
  auto it = by_key_.find(key);
  // The signature may have been dropped, and prepared anew, since.
  if (it == by_key_.end() || it->second->prepared.get() != &prepared) return;
  bytes_ -= std::exchange(it->second->bytes, prepared.bytes());
  bytes_ += it->second->bytes;
  dropped = drop_oldest();
  lock.unlock();
}

bool PlanCache::has_room(int64_t bytes) const {
  MutexLock lock(mu_);
  return bytes <= max_bytes_ - bytes_;
}

void PlanCache::clear() {
  std::list<Entry> dropped;
  MutexLock lock(mu_);
  by_key_.clear();
  dropped.swap(entries_);
  bytes_ = 0;
  lock.unlock();
}

size_t PlanCache::size() const {
  MutexLock lock(mu_);
  return entries_.size();
}

}  // namespace millrace
