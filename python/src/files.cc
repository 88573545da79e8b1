#include <nanobind/stl/string.h>

#include "millrace/base/file_access.h"
#include "python/src/binding.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// Files on all file systems that the library knows.

namespace millrace::python {

namespace {

Status write_whole(const std::string& path, const nb::bytes& contents) {
  const std::string_view data(contents.c_str(), contents.size());
  WithoutGil gil;
  MR_TRY_ASSIGN(FilePlace place, FileAccess::all()->resolve(path, FileAccess::Use::kWrite));
  return write_file_atomically(*place.fs, place.path, data);
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def("write_file_atomically", [](const std::string& path, const nb::bytes& contents) {
    check(write_whole(path, contents));
  });
}

}  // namespace millrace::python
