#include "millrace/base/file_testing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace millrace {

class FaultyFileSystem::FaultyReadableFile final : public ReadableFile {
 public:
  FaultyReadableFile(FaultyFileSystem& fs, std::string path, Ref<ReadableFile> base)
      : fs_(fs), path_(std::move(path)), base_(std::move(base)) {}
  Result<size_t> read_at(uint64_t offset, size_t size, char* out) const override {
    MR_TRY(fs_.count("read", path_));
    return base_->read_at(offset, size, out);
  }
  Result<uint64_t> size() const override {
    MR_TRY(fs_.count("measure", path_));
    return base_->size();
  }

 private:
  FaultyFileSystem& fs_;
  const std::string path_;
  const Ref<ReadableFile> base_;
};

class FaultyFileSystem::FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(FaultyFileSystem& fs, std::string path, Ref<WritableFile> base)
      : fs_(fs), path_(std::move(path)), base_(std::move(base)) {}
  Status append(std::string_view data) override {
    MR_TRY(fs_.count("write", path_));
    fs_.before_write();
    const uint64_t fits = fs_.take_bytes(data.size());
    MR_TRY(base_->append(data.substr(0, fits)));
    return fits == data.size() ? ok_status() : file_error("write", path_, ENOSPC);
  }
  Status flush() override {
    MR_TRY(fs_.count("flush", path_));
    return base_->flush();
  }
  Status sync() override {
    MR_TRY(fs_.count("sync", path_));
    return base_->sync();
  }
  Status close() override {
    Status fault = fs_.count("close", path_);
    Status status = base_->close();
    return fault.ok() ? status : fault;
  }

 private:
  FaultyFileSystem& fs_;
  const std::string path_;
  const Ref<WritableFile> base_;
};

void FaultyFileSystem::fail_operation(int64_t n, int error) {
  MutexLock lock(mutex_);
  first_failure_ = last_failure_ = n;
  error_ = error;
}

void FaultyFileSystem::fail_from(int64_t n, int error) {
  MutexLock lock(mutex_);
  first_failure_ = n;
  last_failure_ = INT64_MAX;
  error_ = error;
}

void FaultyFileSystem::limit_bytes(uint64_t bytes) {
  MutexLock lock(mutex_);
  bytes_left_ = bytes;
}

void FaultyFileSystem::heal() {
  MutexLock lock(mutex_);
  operations_ = 0;
  first_failure_ = last_failure_ = INT64_MAX;
  bytes_left_ = UINT64_MAX;
}

int64_t FaultyFileSystem::operations() {
  MutexLock lock(mutex_);
  return operations_;
}

Status FaultyFileSystem::count(std::string_view operation, const std::string& path) {
  MutexLock lock(mutex_);
  ++operations_;
  if (operations_ < first_failure_ || operations_ > last_failure_) return ok_status();
  return file_error(operation, path, error_);
}

uint64_t FaultyFileSystem::take_bytes(uint64_t wanted) {
  MutexLock lock(mutex_);
  const uint64_t fits = std::min(wanted, bytes_left_);
  if (bytes_left_ != UINT64_MAX) bytes_left_ -= fits;
  return fits;
}

Result<Ref<ReadableFile>> FaultyFileSystem::open_readable(const std::string& path) {
  MR_TRY(count("open", path));
  MR_TRY_ASSIGN(Ref<ReadableFile> file, base_.open_readable(path));
  return Ref<ReadableFile>(make_ref<FaultyReadableFile>(*this, path, std::move(file)));
}

Result<Ref<WritableFile>> FaultyFileSystem::open_writable(const std::string& path) {
  MR_TRY(count("open", path));
  MR_TRY_ASSIGN(Ref<WritableFile> file, base_.open_writable(path));
  return Ref<WritableFile>(make_ref<FaultyWritableFile>(*this, path, std::move(file)));
}

Result<Ref<WritableFile>> FaultyFileSystem::open_append(const std::string& path) {
  MR_TRY(count("open", path));
  MR_TRY_ASSIGN(Ref<WritableFile> file, base_.open_append(path));
  return Ref<WritableFile>(make_ref<FaultyWritableFile>(*this, path, std::move(file)));
}

Status FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  MR_TRY(count("rename", from));
  return base_.rename(from, to);
}

Status FaultyFileSystem::remove(const std::string& path) {
  {
    MutexLock lock(mutex_);
    if (operations_ >= first_failure_ && last_failure_ == INT64_MAX) {
      return file_error("remove", path, error_);
    }
  }
  return base_.remove(path);
}

Result<bool> FaultyFileSystem::exists(const std::string& path) {
  MR_TRY(count("look for", path));
  return base_.exists(path);
}

Result<FileInfo> FaultyFileSystem::info(const std::string& path) {
  MR_TRY(count("look at", path));
  return base_.info(path);
}

Result<std::string> FaultyFileSystem::real_path(const std::string& path) {
  MR_TRY(count("resolve", path));
  return base_.real_path(path);
}

Result<std::vector<std::string>> FaultyFileSystem::list(const std::string& path) {
  MR_TRY(count("list", path));
  return base_.list(path);
}

Status FaultyFileSystem::mkdir_all(const std::string& path) {
  MR_TRY(count("make directory", path));
  return base_.mkdir_all(path);
}

Status FaultyFileSystem::sync_directory(const std::string& path) {
  MR_TRY(count("sync directory", path));
  return base_.sync_directory(path);
}

TemporaryDirectory::TemporaryDirectory() {
  const char* parent = std::getenv("TMPDIR");
  path_ = str_cat(parent == nullptr ? P_tmpdir : parent, "/millrace-test-XXXXXX");
  MR_CHECK(mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);  // removes links, does not follow them
}

}  // namespace millrace
