#include "millrace/base/file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace millrace {
namespace {

Code code_of_errno(int error) {
  switch (error) {
    case ENOENT:
      return Code::kNotFound;
    case EEXIST:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      return Code::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return Code::kInvalidArgument;
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case EBUSY:
    case ENXIO:
    case ESPIPE:
    case ETXTBSY:
    case EXDEV:
      return Code::kFailedPrecondition;
    case EIO:
      return Code::kDataLoss;
    case EAGAIN:
    case EINTR:
    case ESTALE:
      return Code::kUnavailable;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnimplemented;
    default:
      return Code::kUnknown;
  }
}

class OwnedBytes final : public FileBytes {
 public:
  explicit OwnedBytes(std::string bytes) : bytes_(std::move(bytes)) { view_ = bytes_; }

 private:
  const std::string bytes_;
};

Status write_and_sync(FileSystem& fs, const std::string& path, std::string_view contents) {
  MR_TRY_ASSIGN(Ref<WritableFile> file, fs.open_writable(path));
  MR_TRY(file->append(contents));
  MR_TRY(file->sync());
  return file->close();
}

}  // namespace

Result<Ref<FileBytes>> ReadableFile::map() const {
  MR_TRY_ASSIGN(const uint64_t size, this->size());
  std::string bytes(size, '\0');
  MR_TRY_ASSIGN(const size_t n, read_at(0, bytes.size(), bytes.data()));
  bytes.resize(n);
  return Ref<FileBytes>(make_ref<OwnedBytes>(std::move(bytes)));
}

Status file_error(std::string_view operation, std::string_view path, int error) {
  return Status(code_of_errno(error), str_cat("cannot ", operation, " '", path,
                                              "': ", std::generic_category().message(error)));
}

std::string directory_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

Result<std::string> read_file(FileSystem& fs, const std::string& path, uint64_t max_bytes) {
  MR_TRY_ASSIGN(Ref<ReadableFile> file, fs.open_readable(path));
  MR_TRY_ASSIGN(const uint64_t expected, file->size());
  // The size is a hint: special files say 0, and a file may change meanwhile. One byte more than
  // expected lets the first read see the end.
  constexpr uint64_t kLeastChunk = 4096;
  uint64_t chunk = std::max(expected, kLeastChunk - 1) + 1;
  std::string contents;
  while (expected <= max_bytes && contents.size() <= max_bytes) {
    const size_t before = contents.size();
    contents.resize(before + chunk);
    MR_TRY_ASSIGN(const size_t n, file->read_at(before, chunk, contents.data() + before));
    contents.resize(before + n);
    if (n < chunk && n <= max_bytes - before) return contents;
    chunk = std::max<uint64_t>(contents.size(), kLeastChunk);
  }
  return resource_exhausted("cannot read '", path, "': expected at most ", max_bytes,
                            " bytes, got ", std::max<uint64_t>(expected, contents.size()));
}

Status write_file_atomically(FileSystem& fs, const std::string& path, std::string_view contents) {
  const Result<FileInfo> there = fs.info(path);
  if (!there.ok() && there.status().code() != Code::kNotFound) return there.status();
  if (there.ok() && there->is_special) return write_and_sync(fs, path, contents);
  static std::atomic<uint64_t> counter{0};
  const std::string aside = str_cat(path, ".tmp-", static_cast<long long>(getpid()), "-",
                                    counter.fetch_add(1, std::memory_order_relaxed));
  Status status = write_and_sync(fs, aside, contents);
  if (status.ok()) status = fs.rename(aside, path);
  if (!status.ok()) {
    // The first error is the one that tells; a leftover does no harm.
    (void)fs.remove(aside).ok();
    return status;
  }
  return fs.sync_directory(directory_of(path));
}

}  // namespace millrace
