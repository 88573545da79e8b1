#include "python/src/python_file_system.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "python/src/gil.h"
#include "python/src/status.h"

// File systems written in Python. Kernels and threads of the library call them without the
// interpreter's lock, so each call takes it; an exception becomes the Status that its class stands
// for.

namespace millrace::python {
namespace {

// What f gives, with the interpreter's lock.
template <class F>
auto with_python(F f) -> decltype(f()) {
  if (interpreter_ends()) return unavailable("the Python of this file system has ended");
  const WithGil gil;
  try {
    return f();
  } catch (nb::python_error& error) {
    return status_from_exception(error);
  } catch (const nb::cast_error&) {
    return internal("a file system in Python gave a value of another type than it should");
  }
}

// A Python object that any thread may drop.
class Shared {
 public:
  explicit Shared(nb::object object) : object_(std::move(object)) {}
  ~Shared() {
    if (interpreter_ends()) {
      object_.release();
      return;
    }
    const WithGil gil;
    object_.reset();
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  nb::object attr(const char* name) const { return object_.attr(name); }

 private:
  nb::object object_;
};

class PythonReadableFile : public ReadableFile {
 public:
  explicit PythonReadableFile(nb::object file) : file_(std::move(file)) {}

  Result<size_t> read_at(uint64_t offset, size_t size, char* out) const override {
    return with_python([&]() -> Result<size_t> {
      const auto data = nb::cast<nb::bytes>(file_.attr("read_at")(offset, size));
      if (data.size() > size) {
        return internal("a file system in Python gave ", data.size(), " bytes where ", size,
                        " were asked for");
      }
      std::memcpy(out, data.c_str(), data.size());
      return data.size();
    });
  }
  Result<uint64_t> size() const override {
    return with_python(
        [&]() -> Result<uint64_t> { return nb::cast<uint64_t>(file_.attr("size")()); });
  }

 private:
  Shared file_;
};

class PythonWritableFile : public WritableFile {
 public:
  explicit PythonWritableFile(nb::object file) : file_(std::move(file)) {}

  Status append(std::string_view data) override {
    return call([&] { file_.attr("append")(nb::bytes(data.data(), data.size())); });
  }
  Status flush() override {
    return call([&] { file_.attr("flush")(); });
  }
  Status sync() override { return flush(); }
  Status close() override {
    if (closed_) return ok_status();
    closed_ = true;
    return call([&] { file_.attr("close")(); });
  }

 private:
  template <class F>
  Status call(F f) {
    if (!failed_.ok()) return failed_;
    failed_ = with_python([&]() -> Status {
      f();
      return ok_status();
    });
    return failed_;
  }

  Shared file_;
  Status failed_;
  bool closed_ = false;
};

class PythonFileSystem : public FileSystem {
 public:
  explicit PythonFileSystem(nb::object methods) : methods_(std::move(methods)) {}

  Result<Ref<ReadableFile>> open_readable(const std::string& path) override {
    return with_python([&]() -> Result<Ref<ReadableFile>> {
      return Ref<ReadableFile>(make_ref<PythonReadableFile>(call("open_readable", path)));
    });
  }
  Result<Ref<WritableFile>> open_writable(const std::string& path) override {
    return open(path, false);
  }
  Result<Ref<WritableFile>> open_append(const std::string& path) override {
    return open(path, true);
  }

  Status rename(const std::string& from, const std::string& to) override {
    return with_python([&]() -> Status {
      call("rename", from, to);
      return ok_status();
    });
  }
  Status remove(const std::string& path) override { return tell("remove", path); }
  Result<bool> exists(const std::string& path) override {
    return with_python([&]() -> Result<bool> { return nb::cast<bool>(call("exists", path)); });
  }
  Result<FileInfo> info(const std::string& path) override {
    return with_python([&]() -> Result<FileInfo> {
      const auto [size, is_directory, modified] =
          nb::cast<std::tuple<uint64_t, bool, int64_t>>(call("info", path));
      return FileInfo{.size = size, .is_directory = is_directory, .modified_ns = modified};
    });
  }
  Result<std::vector<std::string>> list(const std::string& path) override {
    return with_python([&]() -> Result<std::vector<std::string>> {
      return nb::cast<std::vector<std::string>>(call("list", path));
    });
  }
  Status mkdir_all(const std::string& path) override { return tell("mkdir_all", path); }
  Status sync_directory(const std::string&) override { return ok_status(); }
  Result<std::string> real_path(const std::string& path) override {
    return with_python(
        [&]() -> Result<std::string> { return nb::cast<std::string>(call("real_path", path)); });
  }

 private:
  template <class... Args>
  nb::object call(const char* method, const Args&... args) {
    return methods_.attr(method)(args...);
  }
  Status tell(const char* method, const std::string& path) {
    return with_python([&]() -> Status {
      call(method, path);
      return ok_status();
    });
  }
  Result<Ref<WritableFile>> open(const std::string& path, bool append) {
    return with_python([&]() -> Result<Ref<WritableFile>> {
      return Ref<WritableFile>(make_ref<PythonWritableFile>(call("open_writable", path, append)));
    });
  }

  Shared methods_;
};

}  // namespace

FileSystem& make_python_file_system(nb::object methods) {
  return *new PythonFileSystem(std::move(methods));
}

}  // namespace millrace::python
