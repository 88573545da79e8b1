#include "millrace/io/record_writer.h"

#include <cstdint>

#include "millrace/io/crc32c.h"
#include "millrace/io/record_format.h"

namespace millrace {
namespace {

// zlib is called for this much at once.
constexpr size_t kPendingBytes = size_t{64} << 10;

}  // namespace

Result<std::unique_ptr<RecordWriter>> RecordWriter::make(Ref<WritableFile> file,
                                                         const DeflateOptions& compression) {
  std::unique_ptr<Deflater> deflater;
  if (compression.kind != Compression::kNone) {
    MR_TRY_ASSIGN(deflater, Deflater::make(compression));
  }
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(file), std::move(deflater)));
}

RecordWriter::~RecordWriter() = default;

Status RecordWriter::check_open() const {
  if (!open_) return failed_precondition("the record file is closed");
  return error_;
}

Status RecordWriter::put(std::string_view bytes, Deflater::Mode mode) {
  if (!deflater_) {
    if (!bytes.empty()) error_ = file_->append(bytes);
    return error_;
  }
  pending_ += bytes;
  if (mode == Deflater::Mode::kMore && pending_.size() < kPendingBytes) return ok_status();
  packed_.clear();
  error_ = deflater_->deflate(pending_, mode, packed_);
  pending_.clear();
  if (error_.ok() && !packed_.empty()) error_ = file_->append(packed_);
  return error_;
}

Status RecordWriter::write(std::string_view record) {
  MR_TRY(check_open());
  char header[kRecordHeaderBytes];
  store_little_endian<uint64_t>(record.size(), header);
  store_little_endian(crc32c_mask(crc32c({header, 8})), header + 8);
  char footer[kRecordFooterBytes];
  store_little_endian(crc32c_mask(crc32c(record)), footer);
  MR_TRY(put({header, sizeof header}, Deflater::Mode::kMore));
  MR_TRY(put(record, Deflater::Mode::kMore));
  return put({footer, sizeof footer}, Deflater::Mode::kMore);
}

Status RecordWriter::flush() {
  MR_TRY(check_open());
  MR_TRY(put({}, Deflater::Mode::kFlush));
  error_ = file_->flush();
  return error_;
}

Status RecordWriter::sync() {
  MR_TRY(flush());
  error_ = file_->sync();
  return error_;
}

Status RecordWriter::close() {
  if (!open_) return ok_status();
  open_ = false;
  Status status = error_;
  if (status.ok()) status = put({}, Deflater::Mode::kFinish);
  const Status closed = file_->close();
  return status.ok() ? closed : status;
}

}  // namespace millrace
