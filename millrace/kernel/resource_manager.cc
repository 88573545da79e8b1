#include "millrace/kernel/resource_manager.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_map>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct KeyView {
  std::string_view container, type, name;
  uint64_t hash;

  KeyView(std::string_view c, std::string_view t, std::string_view n)
      : container(c), type(t), name(n) {
    hash = hash_bytes(name, hash_combine(hash_bytes(container), hash_bytes(type)));
  }
};

struct Key {
  std::string container, type, name;
  uint64_t hash;

  explicit Key(const KeyView& view)
      : container(view.container), type(view.type), name(view.name), hash(view.hash) {}
};

struct KeyHash {
  using is_transparent = void;
  size_t operator()(const Key& key) const { return key.hash; }
  size_t operator()(const KeyView& key) const { return key.hash; }
};

struct KeyEqual {
  using is_transparent = void;
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a.hash == b.hash && a.name == b.name && a.container == b.container && a.type == b.type;
  }
};

// Null while the resource is being made: then only lookup_or_create sees the entry.
using Resources = std::unordered_map<Key, Ref<Resource>, KeyHash, KeyEqual>;

Status missing(const KeyView& key) {
  return not_found("Resource ", key.container, "/", key.name, " of type ", key.type,
                   " does not exist");
}

}  // namespace

// Locks are held for a look at a table only, never while a resource is made, described or
// destroyed.
struct ResourceManager::Impl {
  struct alignas(64) Shard {
    Mutex mu;
    CondVar made;  // some resource was made, or could not be
    Resources resources MR_GUARDED_BY(mu);
  };
  static constexpr size_t kShards = 16;
  std::array<Shard, kShards> shards;

  // The top bits: the table uses the low ones.
  Shard& shard(const KeyView& key) { return shards[key.hash >> 60]; }

  // Takes out what `wanted` accepts; the caller drops it.
  template <class F>
  std::vector<Ref<Resource>> take_if(F wanted) {
    std::vector<Ref<Resource>> taken;
    for (Shard& shard : shards) {
      MutexLock lock(shard.mu);
      for (auto it = shard.resources.begin(); it != shard.resources.end();) {
        if (it->second && wanted(it->first)) {
          taken.push_back(std::move(it->second));
          it = shard.resources.erase(it);
        } else {
          ++it;
        }
      }
    }
    return taken;
  }
};

ResourceManager::ResourceManager() : impl_(new Impl) {
  static_assert(Impl::kShards == 16, "shard() uses four bits");
}

ResourceManager::~ResourceManager() {
  clear();
  delete impl_;
}

Result<Ref<Resource>> ResourceManager::lookup_any(std::string_view container, std::string_view type,
                                                  std::string_view name) const {
  KeyView key(container, type, name);
  Impl::Shard& shard = impl_->shard(key);
  MutexLock lock(shard.mu);
  auto it = shard.resources.find(key);
  if (it == shard.resources.end() || !it->second) return missing(key);
  return it->second;
}

Result<Ref<Resource>> ResourceManager::lookup_or_create_any(
    std::string_view container, std::string_view type, std::string_view name,
    FunctionRef<Result<Ref<Resource>>()> make) {
  KeyView key(container, type, name);
  Impl::Shard& shard = impl_->shard(key);
  {
    MutexLock lock(shard.mu);
    while (true) {
      auto it = shard.resources.find(key);
      if (it == shard.resources.end()) break;
      if (it->second) return it->second;
      shard.made.wait(shard.mu);
    }
    shard.resources.emplace(Key(key), nullptr);
  }
  Result<Ref<Resource>> made = make();
  MutexLock lock(shard.mu);
  // Nobody removes an entry that is being made.
  auto it = shard.resources.find(key);
  if (made.ok()) {
    it->second = *made;
  } else {
    shard.resources.erase(it);
  }
  shard.made.notify_all();
  return made;
}

Status ResourceManager::create_any(std::string_view container, std::string_view type,
                                   std::string_view name, Ref<Resource> resource) {
  KeyView key(container, type, name);
  Impl::Shard& shard = impl_->shard(key);
  MutexLock lock(shard.mu);
  if (shard.resources.find(key) != shard.resources.end()) {
    return already_exists("Resource ", container, "/", name, " of type ", type, " exists already");
  }
  shard.resources.emplace(Key(key), std::move(resource));
  return ok_status();
}

Status ResourceManager::remove_any(std::string_view container, std::string_view type,
                                   std::string_view name) {
  KeyView key(container, type, name);
  Impl::Shard& shard = impl_->shard(key);
  Ref<Resource> removed;  // let go after the lock
  MutexLock lock(shard.mu);
  auto it = shard.resources.find(key);
  if (it == shard.resources.end() || !it->second) return missing(key);
  removed = std::move(it->second);
  shard.resources.erase(it);
  return ok_status();
}

void ResourceManager::clear_container(std::string_view container) {
  impl_->take_if([&](const Key& key) { return key.container == container; });
}

std::string ResourceManager::session_name(std::string_view session, std::string_view node) {
  return str_cat("_", session, "/", node);
}

void ResourceManager::clear_session(std::string_view session) {
  const std::string prefix = session_name(session, "");
  impl_->take_if([&](const Key& key) { return key.name.starts_with(prefix); });
}

void ResourceManager::clear() {
  impl_->take_if([](const Key&) { return true; });
}

std::vector<ResourceManager::Entry> ResourceManager::list() const {
  std::vector<std::pair<Entry, Ref<Resource>>> found;
  for (Impl::Shard& shard : impl_->shards) {
    MutexLock lock(shard.mu);
    for (const auto& [key, resource] : shard.resources) {
      if (resource) found.push_back({{key.container, key.type, key.name, {}, {}}, resource});
    }
  }
  std::vector<Entry> entries;
  entries.reserve(found.size());
  for (auto& [entry, resource] : found) {
    entry.description = resource->describe();
    entry.fill = resource->fill();
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.container, a.type, a.name) < std::tie(b.container, b.type, b.name);
  });
  return entries;
}

}  // namespace millrace
