#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/input_stream.h"

namespace millrace {

struct RecordReaderOptions {
  Compression compression = Compression::kNone;
  size_t chunk_bytes = size_t{256} << 10;
  // A record that claims more is RESOURCE_EXHAUSTED.
  uint64_t max_record_bytes = uint64_t{1} << 32;
};

// Reads the records of a TFRecord file (docs/records.md). Not thread-safe.
class RecordReader {
 public:
  static Result<std::unique_ptr<RecordReader>> make(Ref<ReadableFile> file,
                                                    const RecordReaderOptions& options = {});

  // The next record, checked against its checksums; valid until the next call that is not const.
  // OUT_OF_RANGE at a clean end, DATA_LOSS where a record is cut or damaged. After either the
  // reader stays where it was, so that a file which is still being written can be asked again.
  Result<std::string_view> next();

  // Where the record that next() gives begins, for seek(); without compression, in the file.
  uint64_t position() const { return input_->position(); }
  // To a place that position() told, for this file.
  Status seek(uint64_t position) { return input_->seek(position); }

 private:
  RecordReader(std::unique_ptr<InputStream> input, uint64_t max_record_bytes)
      : input_(std::move(input)), max_record_bytes_(max_record_bytes) {}

  const std::unique_ptr<InputStream> input_;
  const uint64_t max_record_bytes_;
};

}  // namespace millrace
