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

struct FunctionLibrary::Functions : RefCounted {
  Mutex mu;
  std::map<std::string, Ref<Function>, std::less<>> by_name MR_GUARDED_BY(mu);
  // Per base name, the suffix that unique_name() tries next.
  std::map<std::string, int64_t, std::less<>> next_suffix MR_GUARDED_BY(mu);
};

struct FunctionLibrary::Impl {
  const Ref<Functions> functions;
  Mutex mu;
  std::unordered_map<InstanceKey, Ref<FunctionBody>, InstanceHash> instances MR_GUARDED_BY(mu);

  explicit Impl(Ref<Functions> shared) : functions(std::move(shared)) {}
};

FunctionLibrary::FunctionLibrary() : impl_(new Impl(make_ref<Functions>())) {}
FunctionLibrary::~FunctionLibrary() { delete impl_; }

Ref<FunctionLibrary> FunctionLibrary::share() const {
  return Ref<FunctionLibrary>(new FunctionLibrary(new Impl(impl_->functions)));
}

Status FunctionLibrary::add(Ref<Function> function) {
  const std::string& name = function->signature.name;
  if (name.empty()) return invalid_argument("function: expected a name, found none");
  Functions& functions = *impl_->functions;
  MutexLock lock(functions.mu);
  auto [it, fresh] = functions.by_name.try_emplace(name, function);
  if (!fresh && !same_function(*it->second, *function)) {
    return invalid_argument("function \"", name,
                            "\": expected the definition that is there, found another one");
  }
  return ok_status();
}

Ref<Function> FunctionLibrary::find(std::string_view name) const {
  Functions& functions = *impl_->functions;
  MutexLock lock(functions.mu);
  auto it = functions.by_name.find(name);
  return it == functions.by_name.end() ? nullptr : it->second;
}

std::vector<std::string> FunctionLibrary::names() const {
  Functions& functions = *impl_->functions;
  MutexLock lock(functions.mu);
  std::vector<std::string> names;
  for (const auto& [name, function] : functions.by_name) names.push_back(name);
  return names;
}

std::string FunctionLibrary::unique_name(std::string_view base) {
  Functions& functions = *impl_->functions;
  MutexLock lock(functions.mu);
  int64_t& suffix = functions.next_suffix.try_emplace(std::string(base), 0).first->second;
  std::string name;
  do {
    name = suffix == 0 ? std::string(base) : str_cat(base, "_", suffix);
    ++suffix;
  } while (functions.by_name.contains(name));
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
  Result<Ref<FunctionBody>> body = build_function_body(*function, key.attrs, registry, share());
  if (!body.ok()) return annotate(body.status());
  MutexLock lock(impl_->mu);
  return impl_->instances.try_emplace(std::move(key), *std::move(body)).first->second;
}

Result<std::vector<Ref<Function>>> reachable_functions(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    names.push_back(graph.node(id).op_name());
    for (const auto& [name, value] : graph.node(id).attrs()) collect_functions(value, names);
  }
  return check_no_recursion(names,
                            [&](std::string_view name) { return graph.functions().find(name); });
}

}  // namespace millrace
