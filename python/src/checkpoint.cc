#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "millrace/base/file_access.h"
#include "millrace/io/checkpoint_reader.h"
#include "python/src/array.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// Checkpoints read without a graph.

namespace millrace::python {

namespace {

class PyCheckpointReader {
 public:
  explicit PyCheckpointReader(const std::string& prefix) : reader_(unwrap(open(prefix))) {}

  // [(name, number of the type, shape)], in the order of the names.
  nb::list entries() const {
    nb::list out;
    for (const StoredTensor& tensor : reader_->tensors()) {
      nb::list shape;
      for (int64_t dim : tensor.shape.dims()) shape.append(dim);
      out.append(nb::make_tuple(tensor.name, static_cast<int>(tensor.dtype), shape));
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

}  // namespace

void bind_checkpoints(nb::module_& m) {
  nb::class_<PyCheckpointReader>(m, "CheckpointReader")
      .def(nb::init<const std::string&>())
      .def("entries", &PyCheckpointReader::entries)
      .def("get_tensor", &PyCheckpointReader::get_tensor);
}

}  // namespace millrace::python
