#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/mutex.h"

namespace millrace {

// For tests: a file system that works through another one until it is told to fail. Operations are
// counted from 1: every call on the file system or one of its files is one, except remove(), which
// works until a crash. Thread-safe; outlives its files.
class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& base) : base_(base) {}

  // The operation numbered `n` fails with errno `error`; the ones after it work again.
  void fail_operation(int64_t n, int error = EIO);
  // The operation numbered `n` and all after it fail, also removing: a crash.
  void fail_from(int64_t n, int error = EIO);
  // Once the files together have taken `bytes`, an append writes what still fits and fails with
  // ENOSPC.
  void limit_bytes(uint64_t bytes);
  // Forgets every fault and counts from 1 again.
  void heal();
  // How many operations there were.
  int64_t operations();
  // Called before bytes are written. Set before files are opened.
  std::function<void()> before_write = [] {};

  Result<Ref<ReadableFile>> open_readable(const std::string& path) override;
  Result<Ref<WritableFile>> open_writable(const std::string& path) override;
  Result<Ref<WritableFile>> open_append(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  Result<FileInfo> info(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Status mkdir_all(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::string> real_path(const std::string& path) override;

 private:
  class FaultyReadableFile;
  class FaultyWritableFile;

  // Counts one operation and returns its error, if it shall have one.
  Status count(std::string_view operation, const std::string& path);
  // How many of `wanted` bytes fit.
  uint64_t take_bytes(uint64_t wanted);

  FileSystem& base_;
  Mutex mutex_;
  int64_t operations_ MR_GUARDED_BY(mutex_) = 0;
  int64_t first_failure_ MR_GUARDED_BY(mutex_) = INT64_MAX;
  int64_t last_failure_ MR_GUARDED_BY(mutex_) = INT64_MAX;
  int error_ MR_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_left_ MR_GUARDED_BY(mutex_) = UINT64_MAX;
};

// For tests: a new empty directory, removed with all that is in it at the end of its life.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The path of `name` in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace millrace
