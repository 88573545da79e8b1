#include "millrace/base/file_systems.h"

#include <cctype>
#include <map>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Registry {
  Mutex mu;
  std::map<std::string, FileSystem*, std::less<>> by_scheme MR_GUARDED_BY(mu) = {
      {"file", &posix_file_system()},
      {"memory", &memory_file_system()},
      {"ram", &memory_file_system()}};
};

Registry& registry() {
  static Registry* const instance = new Registry;  // files may outlive static objects
  return *instance;
}

bool is_scheme(std::string_view text) {
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text[0])) == 0) return false;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '+' && c != '-' && c != '.') {
      return false;
    }
  }
  return true;
}

}  // namespace

Status register_file_system(std::string_view scheme, FileSystem& fs) {
  if (!is_scheme(scheme)) {
    return invalid_argument("'", scheme, "' is no scheme: expected a letter, then letters, digits",
                            " and '+', '-' or '.'");
  }
  Registry& all = registry();
  MutexLock lock(all.mu);
  if (!all.by_scheme.emplace(scheme, &fs).second) {
    return already_exists("the scheme '", scheme, "' has a file system already");
  }
  return ok_status();
}

std::vector<std::string> file_system_schemes() {
  Registry& all = registry();
  MutexLock lock(all.mu);
  std::vector<std::string> schemes;
  for (const auto& [scheme, fs] : all.by_scheme) schemes.push_back(scheme);
  return schemes;
}

Result<FilePlace> find_file(std::string_view path) {
  if (path.empty()) return invalid_argument("expected a path, got an empty string");
  if (path.find('\0') != std::string_view::npos) {
    return invalid_argument("expected a path, got '", path.substr(0, path.find('\0')),
                            "' followed by a zero byte");
  }
  constexpr size_t kLongest = 4096;  // as the system's
  if (path.size() > kLongest) {
    return invalid_argument("expected a path of at most ", kLongest, " bytes, got ", path.size(),
                            ": '", path.substr(0, 64), "...'");
  }
  const size_t colon = path.find("://");
  if (colon == std::string_view::npos || !is_scheme(path.substr(0, colon))) {
    return FilePlace{&posix_file_system(), "", std::string(path)};
  }
  const std::string_view scheme = path.substr(0, colon);
  FileSystem* fs = nullptr;
  {
    Registry& all = registry();
    MutexLock lock(all.mu);
    const auto found = all.by_scheme.find(scheme);
    if (found != all.by_scheme.end()) fs = found->second;
  }
  if (fs == nullptr) {
    return unimplemented("File system scheme '", scheme, "' not implemented (file: '", path,
                         "'); there are ", str_join(file_system_schemes(), ", "));
  }
  const std::string_view rest = path.substr(colon + 3);
  if (rest.empty()) return invalid_argument("expected a path after '", path, "', got none");
  if (fs == &posix_file_system()) return FilePlace{fs, "", std::string(rest)};
  return FilePlace{fs, std::string(scheme), std::string(rest)};
}

}  // namespace millrace
