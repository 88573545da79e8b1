#include "millrace/graph/spec.h"

#include <set>
#include <string>

#include "millrace/base/mutex.h"

namespace millrace {

std::string_view SpecText::keep(std::string_view text) {
  static Mutex mu;
  // Never destroyed: definitions are read while the process ends.
  static auto* texts = new std::set<std::string, std::less<>>;
  MutexLock lock(mu);
  return *texts->emplace(text).first;
}

}  // namespace millrace
