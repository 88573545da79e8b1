#include "millrace/graph/origin.h"

#include <deque>
#include <unordered_map>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/base/str_cat.h"

namespace millrace {

namespace {

struct OriginHash {
  size_t operator()(const Origin* o) const {
    uint64_t h = hash_combine(hash_bytes(o->file), static_cast<uint64_t>(o->line));
    return hash_combine(hash_combine(h, hash_bytes(o->function)), hash_bytes(o->code));
  }
};
struct OriginEqual {
  bool operator()(const Origin* a, const Origin* b) const { return *a == *b; }
};

struct Table {
  Mutex mu;
  // A deque: elements stay where they are as it grows.
  std::deque<Origin> origins MR_GUARDED_BY(mu) = std::deque<Origin>(1);
  std::unordered_map<const Origin*, OriginId, OriginHash, OriginEqual> ids MR_GUARDED_BY(mu);
};

// Never destroyed: nodes name their origins until the process ends.
Table& table() {
  static Table& table = *new Table;
  return table;
}

}  // namespace

OriginId intern_origin(const Origin& origin) {
  if (origin == Origin()) return 0;
  Table& t = table();
  MutexLock lock(t.mu);
  auto it = t.ids.find(&origin);
  if (it != t.ids.end()) return it->second;
  const OriginId id = static_cast<OriginId>(t.origins.size());
  t.origins.push_back(origin);
  t.ids.emplace(&t.origins.back(), id);
  return id;
}

const Origin& origin_of(OriginId id) {
  Table& t = table();
  MutexLock lock(t.mu);
  if (id < 0 || static_cast<size_t>(id) >= t.origins.size()) id = 0;
  return t.origins[static_cast<size_t>(id)];
}

std::string describe_origin(OriginId id) {
  if (id == 0) return "";
  const Origin& origin = origin_of(id);
  std::string out = str_cat("defined at ", origin.file, ":", origin.line);
  if (!origin.code.empty()) out += "  " + origin.code;
  return out;
}

}  // namespace millrace
