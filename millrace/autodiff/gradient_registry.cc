#include "millrace/autodiff/gradient_registry.h"

#include <map>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Rules {
  Mutex mu;
  std::map<std::string, GradientFunction, std::less<>> by_name MR_GUARDED_BY(mu);
  int64_t next MR_GUARDED_BY(mu) = 0;
};

Rules& rules() {
  static Rules& all = *new Rules;
  return all;
}

}  // namespace

Status register_gradient(std::string_view name, GradientFunction rule) {
  MutexLock lock(rules().mu);
  if (!rules().by_name.try_emplace(std::string(name), std::move(rule)).second) {
    return already_exists("there is a gradient named '", name, "'");
  }
  return ok_status();
}

std::string register_unique_gradient(std::string_view base, GradientFunction rule) {
  MutexLock lock(rules().mu);
  std::string name;
  do {
    name = str_cat(base, "_", rules().next++);
  } while (rules().by_name.contains(name));
  rules().by_name.emplace(name, std::move(rule));
  return name;
}

void unregister_gradient(std::string_view name) {
  GradientFunction rule;  // its end may run code of the caller's
  MutexLock lock(rules().mu);
  auto it = rules().by_name.find(name);
  if (it == rules().by_name.end()) return;
  rule = std::move(it->second);
  rules().by_name.erase(it);
}

GradientFunction find_gradient(std::string_view name) {
  MutexLock lock(rules().mu);
  auto it = rules().by_name.find(name);
  return it == rules().by_name.end() ? GradientFunction() : it->second;
}

}  // namespace millrace
