#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "millrace/base/mutex.h"
#include "millrace/io/event_writer.h"
#include "millrace/io/record_reader.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// Event files: what millrace.summary writes and reads. Events come and go as bytes of messages.

namespace millrace::python {
namespace {

// What `body` answers, without the interpreter's lock meanwhile: files may be slow.
template <class Body>
auto unlocked(Body body) {
  WithoutGil no_gil;
  return body();
}

class Writer {
 public:
  Writer(const std::string& prefix, const std::string& suffix, int max_queue, double flush_secs) {
    const auto make = [&]() -> Result<std::unique_ptr<EventWriter>> {
      MR_TRY_ASSIGN(const FilePlace place, find_file(prefix));
      return EventWriter::make(
          place, {.suffix = suffix, .max_queue = max_queue, .flush_seconds = flush_secs});
    };
    writer_ = unwrap(unlocked(make));
  }
  ~Writer() {
    unlocked([&] { writer_.reset(); });
  }
  std::string path() const { return writer_->path(); }
  void add(nb::bytes event) {
    std::string bytes(event.c_str(), event.size());
    check(unlocked([&] { return writer_->add(std::move(bytes)); }));
  }
  void flush() {
    check(unlocked([&] { return writer_->flush(); }));
  }
  void close() {
    check(unlocked([&] { return writer_->close(); }));
  }

 private:
  std::unique_ptr<EventWriter> writer_;
};

class Reader {
 public:
  explicit Reader(const std::string& path) {
    const auto make = [&]() -> Result<std::unique_ptr<RecordReader>> {
      MR_TRY_ASSIGN(const FilePlace place, find_file(path));
      MR_TRY_ASSIGN(Ref<ReadableFile> file, place.fs->open_readable(place.path));
      return RecordReader::make(std::move(file));
    };
    reader_ = unwrap(unlocked(make));
  }
  // None at the end, where more may be written meanwhile.
  nb::object next() {
    const Result<std::string> record = unlocked([&]() -> Result<std::string> {
      MutexLock lock(mu_);
      MR_TRY_ASSIGN(const std::string_view bytes, reader_->next());
      return std::string(bytes);
    });
    if (record.status().code() == Code::kOutOfRange) return nb::none();
    check(record.status());
    return nb::bytes(record->data(), record->size());
  }

 private:
  Mutex mu_;  // threads may share it, and the interpreter's lock is given up
  std::unique_ptr<RecordReader> reader_;
};

}  // namespace

void bind_events(nb::module_& m) {
  nb::class_<Writer>(m, "EventWriter")
      .def(nb::init<const std::string&, const std::string&, int, double>(), nb::arg("prefix"),
           nb::arg("suffix"), nb::arg("max_queue"), nb::arg("flush_secs"))
      .def_prop_ro("path", &Writer::path)
      .def("add", &Writer::add, nb::arg("event"))
      .def("flush", &Writer::flush)
      .def("close", &Writer::close);
  nb::class_<Reader>(m, "EventReader")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def("next", &Reader::next);
}

}  // namespace millrace::python
