#include "millrace/session/session_backend.h"

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Backends {
  Mutex mu;
  std::vector<std::pair<std::string, BackendFactory>> factories MR_GUARDED_BY(mu);
};

Backends& backends() {
  static Backends* all = new Backends;
  return *all;
}

}  // namespace

Status register_session_backend(std::string_view scheme, BackendFactory factory) {
  Backends& all = backends();
  MutexLock lock(all.mu);
  for (const auto& [name, existing] : all.factories) {
    if (name == scheme) return already_exists("a session backend for '", scheme, "' exists");
  }
  all.factories.emplace_back(scheme, factory);
  return ok_status();
}

Result<Ref<SessionBackend>> make_session_backend(const SessionOptions& options) {
  if (options.target.empty()) return make_local_backend(options);
  std::string scheme = options.target.substr(0, options.target.find("://"));
  Backends& all = backends();
  BackendFactory factory = nullptr;
  std::vector<std::string> known;
  {
    MutexLock lock(all.mu);
    for (const auto& [name, candidate] : all.factories) {
      known.push_back(name + "://");
      if (name == scheme) factory = candidate;
    }
  }
  if (factory != nullptr) return factory(options);
  return not_found("no session backend for target '", options.target, "'; there is \"\"",
                   known.empty() ? "" : ", ", str_join(known, ", "));
}

}  // namespace millrace
