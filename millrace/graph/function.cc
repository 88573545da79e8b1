#include "millrace/graph/function.h"

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/graph/function_body.h"
#include "millrace/graph/function_calls.h"

namespace millrace {
namespace {

// A function with values for its attributes, built against one registry.
struct InstanceKey {
  std::string name;
  AttrMap attrs;
  const OpRegistry* registry;
  friend bool operator==(const InstanceKey&, const InstanceKey&) = default;
};

struct InstanceHash {
  size_t operator()(const InstanceKey& key) const {
    size_t h = std::hash<std::string>()(key.name);
    for (const auto& [name, value] : key.attrs) {
      h = h * 31 + std::hash<std::string>()(name);
      h = h * 31 + static_cast<size_t>(value.hash());
    }
    return h;
  }
};

}  // namespace

struct FunctionLibrary::Impl {
  Mutex mu;
  std::map<std::string, Ref<Function>, std::less<>> functions MR_GUARDED_BY(mu);
  std::unordered_map<InstanceKey, Ref<FunctionBody>, InstanceHash> instances MR_GUARDED_BY(mu);
  // Per base name, the suffix that unique_name() tries next.
  std::map<std::string, int64_t, std::less<>> next_suffix MR_GUARDED_BY(mu);
};

FunctionLibrary::FunctionLibrary() : impl_(new Impl) {}
FunctionLibrary::~FunctionLibrary() { delete impl_; }

Status FunctionLibrary::add(Ref<Function> function) {
  const std::string& name = function->signature.name;
  if (name.empty()) return invalid_argument("function: expected a name, found none");
  MutexLock lock(impl_->mu);
  auto [it, fresh] = impl_->functions.try_emplace(name, function);
  if (!fresh && !same_function(*it->second, *function)) {
    return invalid_argument("function \"", name,
                            "\": expected the definition that is there, found another one");
  }
  return ok_status();
}

Ref<Function> FunctionLibrary::find(std::string_view name) const {
  MutexLock lock(impl_->mu);
  auto it = impl_->functions.find(name);
  return it == impl_->functions.end() ? nullptr : it->second;
}

std::vector<std::string> FunctionLibrary::names() const {
  MutexLock lock(impl_->mu);
  std::vector<std::string> names;
  for (const auto& [name, function] : impl_->functions) names.push_back(name);
  return names;
}

std::string FunctionLibrary::unique_name(std::string_view base) {
  MutexLock lock(impl_->mu);
  int64_t& suffix = impl_->next_suffix.try_emplace(std::string(base), 0).first->second;
  std::string name;
  do {
    name = suffix == 0 ? std::string(base) : str_cat(base, "_", suffix);
    ++suffix;
  } while (impl_->functions.contains(name));
  return name;
}

Result<Ref<FunctionBody>> FunctionLibrary::instantiate(std::string_view name, const AttrMap& attrs,
                                                       const OpRegistry& registry) const {
  Ref<Function> function = find(name);
  if (!function) return not_found("expected a function named \"", name, "\", found none");
  // Attributes of the call itself (placement, colocation) do not change the body.
  InstanceKey key = {std::string(name), {}, &registry};
  for (const auto& [attr, value] : attrs) {
    if (!attr.starts_with('_')) key.attrs.set(attr, value);
  }
  auto annotate = [&](const Status& s) {
    return s.with_prefix(str_cat("function \"", name, "\""));
  };
  if (Status status = check_attrs(function->signature, key.attrs); !status.ok())
    return annotate(status);
  {
    MutexLock lock(impl_->mu);
    auto it = impl_->instances.find(key);
    if (it != impl_->instances.end()) return it->second;
  }
  // Built outside the lock: another thread may build the same body, then the first one stays.
  auto find_function = [this](std::string_view n) { return find(n); };
  Result<Ref<FunctionBody>> body =
      build_function_body(*function, key.attrs, registry, find_function);
  if (!body.ok()) return annotate(body.status());
  MutexLock lock(impl_->mu);
  return impl_->instances.try_emplace(std::move(key), *std::move(body)).first->second;
}

}  // namespace millrace
