#include "millrace/io/record_reader.h"

#include <cstring>

#include "millrace/io/crc32c.h"
#include "millrace/io/record_format.h"

namespace millrace {

Result<std::unique_ptr<RecordReader>> RecordReader::make(Ref<ReadableFile> file,
                                                         const RecordReaderOptions& options) {
  MR_TRY_ASSIGN(auto input,
                InputStream::make(std::move(file), {.compression = options.compression,
                                                    .chunk_bytes = options.chunk_bytes}));
  return std::unique_ptr<RecordReader>(
      new RecordReader(std::move(input), options.max_record_bytes));
}

Result<std::string_view> RecordReader::next() {
  MR_TRY_ASSIGN(std::string_view bytes, input_->peek(kRecordHeaderBytes));
  if (bytes.size() < kRecordHeaderBytes) {
    if (bytes.empty()) return out_of_range("the end of the records");
    return data_loss("record at ", position(), " is cut: ", bytes.size(), " bytes of its length");
  }
  const auto size = load_little_endian<uint64_t>(bytes.data());
  if (load_little_endian<uint32_t>(bytes.data() + 8) != crc32c_mask(crc32c(bytes.substr(0, 8)))) {
    return data_loss("record at ", position(), " has a damaged length: its checksum differs");
  }
  if (size > max_record_bytes_) {
    return resource_exhausted("record at ", position(), " claims ", size, " bytes, more than the ",
                              max_record_bytes_, " allowed");
  }
  const size_t whole = kRecordHeaderBytes + static_cast<size_t>(size) + kRecordFooterBytes;
  MR_TRY_ASSIGN(bytes, input_->peek(whole));
  if (bytes.size() < whole) {
    return data_loss("record at ", position(), " is cut: ", bytes.size(), " of ", whole, " bytes");
  }
  const std::string_view record = bytes.substr(kRecordHeaderBytes, static_cast<size_t>(size));
  if (load_little_endian<uint32_t>(record.data() + record.size()) != crc32c_mask(crc32c(record))) {
    return data_loss("record at ", position(), " is damaged: its checksum differs");
  }
  input_->take(whole);
  return record;
}

}  // namespace millrace
