#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "millrace/base/file_access.h"
#include "millrace/base/mutex.h"
#include "python/src/binding.h"
#include "python/src/gil.h"
#include "python/src/python_file_system.h"
#include "python/src/status.h"

// Files on all file systems that the library knows, for Python: io/file_systems.py gives them their
// public form. All is done without the interpreter's lock.

namespace millrace::python {

namespace {

using Use = FileAccess::Use;

// What f, which gives a Status or a Result, gives for a path; raises its error.
template <class F>
auto with_file(const std::string& path, Use use, F f) {
  auto result = [&] {
    const WithoutGil gil;
    return [&]() -> decltype(f(std::declval<FilePlace&>())) {
      MR_TRY_ASSIGN(FilePlace place, FileAccess::all()->resolve(path, use));
      return f(place);
    }();
  }();
  if constexpr (std::is_same_v<decltype(result), Status>) {
    check(result);
  } else {
    return unwrap(std::move(result));
  }
}

class PyReadableFile {
 public:
  explicit PyReadableFile(const std::string& path) {
    file_ = with_file(path, Use::kRead,
                      [](FilePlace& place) { return place.fs->open_readable(place.path); });
  }
  ~PyReadableFile() {
    const WithoutGil gil;
    file_ = {};
  }

  nb::bytes read_at(uint64_t offset, size_t size) const {
    std::string data;
    Result<size_t> got = [&]() -> Result<size_t> {
      const WithoutGil gil;
      MR_TRY_ASSIGN(const uint64_t length, file_->size());
      data.resize(std::min<uint64_t>(size, length - std::min(offset, length)));
      return file_->read_at(offset, data.size(), data.data());
    }();
    return nb::bytes(data.data(), unwrap(std::move(got)));
  }
  uint64_t size() const {
    return unwrap([&] {
      const WithoutGil gil;
      return file_->size();
    }());
  }

 private:
  Ref<ReadableFile> file_;
};

class PyWritableFile {
 public:
  PyWritableFile(const std::string& path, bool append) {
    file_ = with_file(path, Use::kWrite, [&](FilePlace& place) {
      return append ? place.fs->open_append(place.path) : place.fs->open_writable(place.path);
    });
  }
  ~PyWritableFile() {
    const WithoutGil gil;
    file_ = {};
  }

  void append(const nb::bytes& data) {
    const std::string_view view(data.c_str(), data.size());
    call([&] { return file_->append(view); });
  }
  void flush() {
    call([&] { return file_->flush(); });
  }
  void close() {
    call([&] { return file_->close(); });
  }

 private:
  template <class F>
  void call(F f) {
    check([&] {
      const WithoutGil gil;
      const MutexLock lock(mu_);
      return f();
    }());
  }

  Mutex mu_;
  Ref<WritableFile> file_;
};

std::tuple<uint64_t, bool, int64_t> info(const std::string& path) {
  const FileInfo found =
      with_file(path, Use::kRead, [](FilePlace& place) { return place.fs->info(place.path); });
  return {found.size, found.is_directory, found.modified_ns};
}

void rename(const std::string& from, const std::string& to) {
  with_file(from, Use::kWrite, [&](FilePlace& old_place) -> Status {
    MR_TRY_ASSIGN(const FilePlace place, FileAccess::all()->resolve(to, Use::kWrite));
    if (place.fs != old_place.fs) {
      return unimplemented("cannot rename '", from, "' to '", to,
                           "': they are on different file systems; copy and remove");
    }
    return place.fs->rename(old_place.path, place.path);
  });
}

}  // namespace

void bind_files(nb::module_& m) {
  nb::class_<PyReadableFile>(m, "ReadableFile")
      .def(nb::init<const std::string&>())
      .def("read_at", &PyReadableFile::read_at)
      .def("size", &PyReadableFile::size);
  nb::class_<PyWritableFile>(m, "WritableFile")
      .def(nb::init<const std::string&, bool>())
      .def("append", &PyWritableFile::append)
      .def("flush", &PyWritableFile::flush)
      .def("close", &PyWritableFile::close);
  m.def("write_file_atomically", [](const std::string& path, const nb::bytes& contents) {
    const std::string_view data(contents.c_str(), contents.size());
    with_file(path, Use::kWrite,
              [&](FilePlace& place) { return write_file_atomically(*place.fs, place.path, data); });
  });
  m.def("file_exists", [](const std::string& path) {
    return with_file(path, Use::kRead, [](FilePlace& p) { return p.fs->exists(p.path); });
  });
  m.def("file_info", info);
  m.def("list_files", [](const std::string& path) {
    return with_file(path, Use::kRead, [](FilePlace& p) { return p.fs->list(p.path); });
  });
  m.def("make_folders", [](const std::string& path) {
    with_file(path, Use::kWrite, [](FilePlace& p) { return p.fs->mkdir_all(p.path); });
  });
  m.def("remove_file", [](const std::string& path) {
    with_file(path, Use::kWrite, [](FilePlace& p) { return p.fs->remove(p.path); });
  });
  m.def("rename_file", rename);
  m.def("file_system_schemes", file_system_schemes);
  m.def("register_file_system", [](const std::string& scheme, nb::object methods) {
    // Made even where the scheme is taken: few such objects are ever made.
    check(register_file_system(scheme, make_python_file_system(std::move(methods))));
  });
}

}  // namespace millrace::python
