#include <nanobind/stl/string.h>

#include "millrace/base/file_systems.h"
#include "millrace/base/mutex.h"
#include "millrace/io/record_reader.h"
#include "millrace/io/record_writer.h"
#include "python/src/binding.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// TFRecord files for Python: io/records.py gives them their public form. Files are read and written
// without the interpreter's lock; a lock of their own keeps threads apart.

namespace millrace::python {

namespace {

class PyRecordReader {
 public:
  PyRecordReader(const std::string& path, const std::string& compression) {
    reader_ = unwrap([&]() -> Result<std::unique_ptr<RecordReader>> {
      WithoutGil free;
      MR_TRY_ASSIGN(const Compression kind, parse_compression(compression));
      MR_TRY_ASSIGN(const FilePlace place, find_file(path));
      MR_TRY_ASSIGN(auto file, place.fs->open_readable(place.path));
      return RecordReader::make(std::move(file), {.compression = kind});
    }());
  }

  // None at the end.
  nb::object next() {
    std::string record;
    Status status;
    {
      WithoutGil free;
      MutexLock lock(mu_);
      const Result<std::string_view> next = reader_->next();
      status = next.status();
      if (status.ok()) record = *next;
    }
    if (status.code() == Code::kOutOfRange) return nb::none();
    check(status);
    return nb::bytes(record.data(), record.size());
  }

 private:
  Mutex mu_;
  std::unique_ptr<RecordReader> reader_;
};

class PyRecordWriter {
 public:
  PyRecordWriter(const std::string& path, const std::string& compression, int level,
                 int window_bits, int memory_level, int strategy) {
    writer_ = unwrap([&]() -> Result<std::unique_ptr<RecordWriter>> {
      WithoutGil free;
      DeflateOptions options{.level = level,
                             .window_bits = window_bits,
                             .memory_level = memory_level,
                             .strategy = strategy};
      MR_TRY_ASSIGN(options.kind, parse_compression(compression));
      MR_TRY_ASSIGN(const FilePlace place, find_file(path));
      MR_TRY_ASSIGN(auto file, place.fs->open_writable(place.path));
      return RecordWriter::make(std::move(file), options);
    }());
  }

  void write(const nb::bytes& record) {
    const std::string_view bytes(record.c_str(), record.size());
    call([&] { return writer_->write(bytes); });
  }
  void flush() {
    call([&] { return writer_->flush(); });
  }
  void close() {
    call([&] { return writer_->close(); });
  }

 private:
  template <class F>
  void call(F f) {
    Status status;
    {
      WithoutGil free;
      MutexLock lock(mu_);
      status = f();
    }
    check(status);
  }

  Mutex mu_;
  std::unique_ptr<RecordWriter> writer_;
};

}  // namespace

void bind_records(nb::module_& m) {
  nb::class_<PyRecordReader>(m, "RecordReader")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("path"),
           nb::arg("compression"))
      .def("next", &PyRecordReader::next);
  nb::class_<PyRecordWriter>(m, "RecordWriter")
      .def(nb::init<const std::string&, const std::string&, int, int, int, int>(), nb::arg("path"),
           nb::arg("compression"), nb::arg("level"), nb::arg("window_bits"),
           nb::arg("memory_level"), nb::arg("strategy"))
      .def("write", &PyRecordWriter::write)
      .def("flush", &PyRecordWriter::flush)
      .def("close", &PyRecordWriter::close);
}

}  // namespace millrace::python
