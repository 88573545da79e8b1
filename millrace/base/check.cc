#include "millrace/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "millrace/base/status.h"

namespace millrace {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

void check_ok_failed(const char* file, int line, const Status& status) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, status.to_string().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace millrace
