#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/compression.h"

namespace millrace {

// Writes a TFRecord file (docs/records.md). Not thread-safe. After an error all later calls fail.
class RecordWriter {
 public:
  // `compression.kind` kNone, the default here: plain records.
  static Result<std::unique_ptr<RecordWriter>> make(Ref<WritableFile> file,
                                                    const DeflateOptions& compression = {
                                                        .kind = Compression::kNone});
  // Loses what was not flushed; close() tells errors.
  ~RecordWriter();

  Status write(std::string_view record);
  // Everything written so far is with the operating system, and can be read.
  Status flush();
  // Everything written so far is on the disk.
  Status sync();
  // Ends compressed data, flushes and closes. Afterwards only close() may be called, and does
  // nothing.
  Status close();

 private:
  RecordWriter(Ref<WritableFile> file, std::unique_ptr<Deflater> deflater)
      : file_(std::move(file)), deflater_(std::move(deflater)) {}
  Status put(std::string_view bytes, Deflater::Mode mode);
  Status check_open() const;

  const Ref<WritableFile> file_;
  const std::unique_ptr<Deflater> deflater_;  // null: no compression
  std::string pending_, packed_;              // before and after compression
  Status error_;
  bool open_ = true;
};

}  // namespace millrace
