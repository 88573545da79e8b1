#include "millrace/ops/op_library.h"

#include <dlfcn.h>

#include <map>
#include <set>

#include "millrace/base/mutex.h"
#include "millrace/graph/op_registry.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

using RegisterFunction = void (*)(Registry&);

struct Loaded {
  Mutex mu;
  std::map<void*, std::vector<std::string>> libraries MR_GUARDED_BY(mu);
};

Loaded& loaded() {
  static Loaded& all = *new Loaded;
  return all;
}

std::set<std::string> op_names() {
  std::set<std::string> names;
  for (const OpDef* op : OpRegistry::global().list()) names.insert(op->name);
  return names;
}

Status check_version(void* library, const std::string& path) {
  auto* version = static_cast<const int*>(dlsym(library, "millrace_op_library_version"));
  if (version == nullptr) {
    return invalid_argument("\"", path, "\" is no op library: expected MILLRACE_OP_LIBRARY in it");
  }
  if (*version != kOpLibraryVersion) {
    return failed_precondition("\"", path, "\" was built for version ", *version,
                               " of op libraries, expected version ", kOpLibraryVersion);
  }
  return ok_status();
}

}  // namespace

Result<std::vector<std::string>> load_op_library(const std::string& path) {
  MR_TRY(register_ops());
  MutexLock lock(loaded().mu);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return not_found("cannot load op library \"", path,
                     "\": ", reason != nullptr ? reason : "unknown reason");
  }
  auto known = loaded().libraries.find(library);
  if (known != loaded().libraries.end()) {
    dlclose(library);  // counted once already
    return known->second;
  }
  Status status = check_version(library, path);
  auto* register_function =
      reinterpret_cast<RegisterFunction>(dlsym(library, "millrace_op_library_register"));
  if (status.ok() && register_function == nullptr) {
    status = invalid_argument("\"", path, "\" is no op library: it registers nothing");
  }
  if (!status.ok()) {
    dlclose(library);
    return status;
  }
  std::set<std::string> before = op_names();
  Registry registry(OpRegistry::global(), KernelRegistry::global());
  register_function(registry);
  // From here on the registries may point into the library: it stays.
  MR_TRY(registry.status().with_prefix(str_cat("op library \"", path, "\"")));
  std::vector<std::string> added;
  for (const std::string& name : op_names()) {
    if (!before.contains(name)) added.push_back(name);
  }
  for (const std::string& name : added) mark_reach({name}, Reach::kLibraries);
  loaded().libraries.emplace(library, added);
  return added;
}

}  // namespace millrace
