#include "millrace/base/env.h"

#include <charconv>
#include <cstdlib>

#include "millrace/base/log.h"

namespace millrace {

std::string_view env_string(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

int64_t env_int(const char* name, int64_t fallback, int64_t min, int64_t max) {
  const std::string_view text = env_string(name);
  if (text.empty()) return fallback;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result r = std::from_chars(text.data(), end, value);
  if (r.ec != std::errc() || r.ptr != end || value < min || value > max) {
    MR_LOG(kWarning, name, "=", text, " is ignored: expected a whole number from ", min, " to ",
           max, "; using ", fallback);
    return fallback;
  }
  return value;
}

}  // namespace millrace
