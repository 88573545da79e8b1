#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/file_systems.h"
#include "millrace/base/status.h"

namespace millrace {

struct EventWriterOptions {
  std::string suffix = {};  // of the file's name
  // How many events may wait to be written; who adds another waits. At least 1.
  int max_queue = 10;
  // Events are with the operating system after at most this time.
  double flush_seconds = 120;
};

// Writes an event file, which TensorBoard reads (docs/summaries.md). A thread of its own writes; an
// error there is the answer of the next call. Thread-safe. In a forked child calls are
// FAILED_PRECONDITION.
class EventWriter {
 public:
  // A new file "<prefix>.out.tfevents.<seconds>.<host><suffix>", in a folder that is made where
  // there is none. Its first record, the version of the format, is there at once. `prefix` is a
  // path.
  static Result<std::unique_ptr<EventWriter>> make(const FilePlace& prefix,
                                                   const EventWriterOptions& options = {});
  // Closes, and loses errors.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  const std::string& path() const;  // of the file, as `prefix` was given

  // Appends a serialised Event. FAILED_PRECONDITION after close().
  Status add(std::string event);
  // Waits until all that was added is with the operating system.
  Status flush();
  // Flushes and closes. Afterwards close() does nothing.
  Status close();

 private:
  struct Impl;
  explicit EventWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
