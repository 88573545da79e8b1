#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "millrace/base/file_access.h"
#include "millrace/base/mutex.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/io/checkpoint_reader.h"
#include "millrace/io/safetensors.h"
#include "python/src/array.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// Checkpoints read and written without a graph.

namespace millrace::python {

namespace {

class PyCheckpointReader {
 public:
  explicit PyCheckpointReader(const std::string& prefix) : reader_(unwrap(open(prefix))) {}

  bool has_tensor(const std::string& name) const { return reader_->find(name) != nullptr; }
  // By name, in the order of the names; types are numbers.
  nb::dict shapes() const {
    nb::dict out;
    for (const StoredTensor& tensor : reader_->tensors()) {
      nb::list shape;
      for (int64_t dim : tensor.shape.dims()) shape.append(dim);
      out[nb::cast(tensor.name)] = std::move(shape);
    }
    return out;
  }
  nb::dict types() const {
    nb::dict out;
    for (const StoredTensor& tensor : reader_->tensors()) {
      out[nb::cast(tensor.name)] = static_cast<int>(tensor.dtype);
    }
    return out;
  }

  nb::object get_tensor(const std::string& name) const {
    return array_from_tensor(unwrap(read(name)));
  }

 private:
  static Result<Ref<CheckpointReader>> open(const std::string& prefix) {
    WithoutGil gil;
    MR_TRY_ASSIGN(FilePlace place, FileAccess::all()->resolve(prefix, FileAccess::Use::kRead));
    return CheckpointReader::open(*place.fs, place.path);
  }
  Result<Tensor> read(const std::string& name) const {
    WithoutGil gil;
    return reader_->read(name);
  }

  const Ref<CheckpointReader> reader_;
};

// Writes a checkpoint tensor by tensor; nothing is kept in memory, and nothing is to be seen before
// finish().
class PyCheckpointWriter {
 public:
  explicit PyCheckpointWriter(const std::string& prefix) : writer_(unwrap(create(prefix))) {}

  // `dtype`: a type, or its number.
  void add(const std::string& name, nb::handle array, nb::handle dtype) {
    const Tensor tensor = tensor_from_array(array, dtype_from_object(dtype), Sharing::kBorrow);
    call([&](BundleWriter& writer) { return writer.add(name, tensor); });
  }
  void finish() {
    call([&](BundleWriter& writer) { return writer.finish(); });
    abandon();
  }
  // Leaves the checkpoint that was there; what was written so far is removed.
  void abandon() {
    WithoutGil gil;
    MutexLock lock(mu_);
    writer_.reset();
  }

 private:
  static Result<std::unique_ptr<BundleWriter>> create(const std::string& prefix) {
    WithoutGil gil;
    MR_TRY_ASSIGN(FilePlace place, FileAccess::all()->resolve(prefix, FileAccess::Use::kWrite));
    return BundleWriter::create(*place.fs, place.path);
  }
  // A file system in Python may need the interpreter's lock.
  template <class F>
  void call(F f) {
    Status status;
    {
      WithoutGil gil;
      MutexLock lock(mu_);
      status = writer_ ? f(*writer_)
                       : failed_precondition("the checkpoint is finished or was abandoned");
    }
    check(status);
  }

  Mutex mu_;
  std::unique_ptr<BundleWriter> writer_;
};

// Writes a safetensors file tensor by tensor, as PyCheckpointWriter does a checkpoint.
class PySafetensorsWriter {
 public:
  // `entries`: (name, number of the type, shape) of all that will be written.
  PySafetensorsWriter(
      const std::string& path,
      const std::vector<std::tuple<std::string, int, std::vector<int64_t>>>& entries)
      : writer_(unwrap(create(path, entries))) {}

  // The names in the order in which the tensors are to be added.
  std::vector<std::string> order() const {
    std::vector<std::string> names;
    if (!writer_) return names;
    for (const SafetensorsEntry& entry : writer_->entries()) names.push_back(entry.name);
    return names;
  }
  void add(nb::handle array, nb::handle dtype) {
    check(open()->add(tensor_from_array(array, dtype_from_object(dtype), Sharing::kBorrow)));
  }
  void finish() {
    check(open()->finish());
    writer_.reset();
  }
  void abandon() { writer_.reset(); }

 private:
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      const std::string& path,
      const std::vector<std::tuple<std::string, int, std::vector<int64_t>>>& given) {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, dtype, dims] : given) {
      MR_TRY_ASSIGN(Shape shape, Shape::make(dims));
      entries.push_back(
          {.name = name, .dtype = static_cast<DType>(dtype), .shape = std::move(shape)});
    }
    MR_TRY_ASSIGN(FilePlace place, FileAccess::all()->resolve(path, FileAccess::Use::kWrite));
    return SafetensorsWriter::create(*place.fs, place.path, std::move(entries));
  }
  SafetensorsWriter* open() {
    if (!writer_) raise(failed_precondition("the file is finished or was abandoned"));
    return writer_.get();
  }

  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace

void bind_checkpoints(nb::module_& m) {
  nb::class_<PyCheckpointReader>(m, "CheckpointReader")
      .def(nb::init<const std::string&>())
      .def("has_tensor", &PyCheckpointReader::has_tensor)
      .def("shapes", &PyCheckpointReader::shapes)
      .def("types", &PyCheckpointReader::types)
      .def("get_tensor", &PyCheckpointReader::get_tensor);
  nb::class_<PyCheckpointWriter>(m, "CheckpointWriter")
      .def(nb::init<const std::string&>())
      .def("add", &PyCheckpointWriter::add, nb::arg("name"), nb::arg("array"), nb::arg("dtype"))
      .def("finish", &PyCheckpointWriter::finish)
      .def("abandon", &PyCheckpointWriter::abandon);
  nb::class_<PySafetensorsWriter>(m, "SafetensorsWriter")
      .def(nb::init<const std::string&,
                    const std::vector<std::tuple<std::string, int, std::vector<int64_t>>>&>())
      .def("order", &PySafetensorsWriter::order)
      .def("add", &PySafetensorsWriter::add, nb::arg("array"), nb::arg("dtype"))
      .def("finish", &PySafetensorsWriter::finish)
      .def("abandon", &PySafetensorsWriter::abandon);
  m.def("safetensors_type",
        [](int dtype) { return std::string(safetensors_type(static_cast<DType>(dtype))); });
}

}  // namespace millrace::python
