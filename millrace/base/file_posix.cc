#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "millrace/base/file.h"

namespace millrace {
namespace {

// Linux moves at most 2 GiB - 4 KiB per call; asking for less keeps ssize_t and other systems
// happy.
constexpr size_t kMostPerCall = size_t{1} << 30;
constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr size_t kHintBytes = size_t{32} << 20;

class MappedBytes final : public FileBytes {
 public:
  MappedBytes(void* data, size_t size) : data_(data), size_(size) {
    view_ = {static_cast<const char*>(data), size};
  }

 protected:
  ~MappedBytes() override { ::munmap(data_, size_); }

 private:
  void* const data_;
  const size_t size_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  Result<size_t> read_at(uint64_t offset, size_t size, char* out) const override {
    if (offset > static_cast<uint64_t>(INT64_MAX) ||
        size > static_cast<uint64_t>(INT64_MAX) - offset) {
      return out_of_range("cannot read '", path_, "': ", size, " bytes at offset ", offset,
                          " lie beyond any file");
    }
    size_t done = 0;
    while (done < size) {
      const ssize_t n = ::pread(fd_, out + done, std::min(size - done, kMostPerCall),
                                static_cast<off_t>(offset + done));
      if (n == 0) break;
      if (n < 0) {
        if (errno == EINTR) continue;
        return file_error("read", path_, errno);
      }
      done += static_cast<size_t>(n);
    }
    return done;
  }

  Result<uint64_t> size() const override {
    struct stat info;
    if (::fstat(fd_, &info) != 0) return file_error("measure", path_, errno);
    return static_cast<uint64_t>(info.st_size);
  }

  Result<Ref<FileBytes>> map() const override {
    MR_TRY_ASSIGN(const uint64_t bytes, size());
    if (bytes == 0) return ReadableFile::map();  // the system maps no empty file
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (data == MAP_FAILED) return file_error("map", path_, errno);
    return Ref<FileBytes>(make_ref<MappedBytes>(data, bytes));
  }

 protected:
  ~PosixReadableFile() override { ::close(fd_); }

 private:
  const std::string path_;
  const int fd_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  Status append(std::string_view data) override {
    MR_TRY(check_open());
    if (data.size() < kBufferBytes - std::min(buffer_.size(), kBufferBytes)) {
      buffer_.append(data);
      return ok_status();
    }
    MR_TRY(flush());
    if (data.size() >= kBufferBytes) return write_all(data);
    buffer_.append(data);
    return ok_status();
  }

  Status flush() override {
    MR_TRY(check_open());
    Status status = write_all(buffer_);
    buffer_.clear();
    return status;
  }

  Status sync() override {
    MR_TRY(flush());
    // EINVAL and EROFS: pipes, terminals and some special files cannot be synced and need not be.
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return fail("sync", errno);
    return ok_status();
  }

  Status close() override {
    if (fd_ < 0) return ok_status();
    Status status = flush();
    const int fd = std::exchange(fd_, -1);
    // After EINTR the descriptor is gone all the same on Linux.
    if (::close(fd) != 0 && errno != EINTR && status.ok()) {
      status = file_error("close", path_, errno);
    }
    return status;
  }

 protected:
  ~PosixWritableFile() override { (void)close().ok(); }

 private:
  Status check_open() const {
    if (fd_ < 0) return failed_precondition("cannot write '", path_, "': it is closed");
    return error_;
  }

  Status fail(std::string_view operation, int error) {
    error_ = file_error(operation, path_, error);
    return error_;
  }

  Status write_all(std::string_view data) {
    while (!data.empty()) {
      const ssize_t n = ::write(fd_, data.data(), std::min(data.size(), kMostPerCall));
      if (n < 0) {
        if (errno == EINTR) continue;
        return fail("write", errno);
      }
      data.remove_prefix(static_cast<size_t>(n));
      since_hint_ += static_cast<size_t>(n);
    }
    start_writing();
    return ok_status();
  }

  // Lets the disk begin while a large file is still being written, so that sync() finds little
  // left. A hint: where it fails nothing is lost.
  void start_writing() {
#ifdef SYNC_FILE_RANGE_WRITE
    if (since_hint_ < kHintBytes) return;
    (void)::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
    since_hint_ = 0;
#endif
  }

  const std::string path_;
  int fd_;  // -1 once closed
  size_t since_hint_ = 0;
  std::string buffer_;
  Status error_;  // the first error, given again by every later call
};

int open_file(const std::string& path, int flags) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

bool is_special(const struct stat& info) {
  return !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode);
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<Ref<ReadableFile>> open_readable(const std::string& path) override {
    MR_TRY(check_path("open", path));
    // A pipe would be waited for otherwise until somebody opens its other end.
    const int fd = open_file(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return file_error("open", path, errno);
    Ref<ReadableFile> file = make_ref<PosixReadableFile>(path, fd);
    struct stat info;
    if (::fstat(fd, &info) != 0) return file_error("open", path, errno);
    if (S_ISDIR(info.st_mode)) return file_error("open", path, EISDIR);
    if (S_ISFIFO(info.st_mode)) {
      return failed_precondition("cannot open '", path,
                                 "': it is a pipe, and a file is needed, to be read at any place");
    }
    return file;
  }

  Result<Ref<WritableFile>> open_writable(const std::string& path) override {
    return open_for_writing(path, O_TRUNC);
  }

  Result<Ref<WritableFile>> open_append(const std::string& path) override {
    return open_for_writing(path, O_APPEND);
  }

  Status rename(const std::string& from, const std::string& to) override {
    MR_TRY(check_path("rename", from));
    MR_TRY(check_path("rename to", to));
    struct stat info;
    if (::lstat(to.c_str(), &info) == 0 && is_special(info)) {
      return failed_precondition("cannot rename '", from, "' to '", to,
                                 "': that is a device, a pipe or a socket, not a file");
    }
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return file_error(str_cat("rename '", from, "' to"), to, errno);
    }
    return ok_status();
  }

  Status remove(const std::string& path) override {
    MR_TRY(check_path("remove", path));
    if (::unlink(path.c_str()) == 0) return ok_status();
    // Linux answers EISDIR for a directory, POSIX EPERM.
    if (errno != EISDIR && errno != EPERM) return file_error("remove", path, errno);
    const int unlink_error = errno;
    if (::rmdir(path.c_str()) == 0) return ok_status();
    return file_error("remove", path, errno == ENOTDIR ? unlink_error : errno);
  }

  Result<bool> exists(const std::string& path) override {
    MR_TRY(check_path("look for", path));
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return file_error("look for", path, errno);
  }

  Result<FileInfo> info(const std::string& path) override {
    MR_TRY(check_path("look at", path));
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return file_error("look at", path, errno);
    return FileInfo{
        .size = static_cast<uint64_t>(info.st_size),
        .is_directory = S_ISDIR(info.st_mode),
        .is_special = is_special(info),
        .modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    MR_TRY(check_path("list", path));
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return file_error("list", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        names.emplace_back(entry->d_name);
      }
      errno = 0;
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) return file_error("list", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status mkdir_all(const std::string& path) override {
    MR_TRY(check_path("make directory", path));
    for (size_t end = 0; end != std::string::npos;) {
      end = path.find('/', end + 1);
      MR_TRY(make_directory(path.substr(0, end)));
    }
    return ok_status();
  }

  Status sync_directory(const std::string& path) override {
    MR_TRY(check_path("sync directory", path));
    const int fd = open_file(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return file_error("sync directory", path, errno);
    // Some network file systems cannot sync directories.
    const int error = ::fsync(fd) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
    ::close(fd);
    return error == 0 ? ok_status() : file_error("sync directory", path, error);
  }

  Result<std::string> real_path(const std::string& path) override {
    MR_TRY(check_path("resolve", path));
    std::string rest = path;
    std::string real;
    if (path.front() != '/') {
      char* current = ::getcwd(nullptr, 0);
      if (current == nullptr) return file_error("resolve", path, errno);
      rest = str_cat(current, "/", path);
      std::free(current);
    }
    int links = 0;
    while (!rest.empty()) {
      const size_t slash = rest.find('/');
      const std::string part = rest.substr(0, slash);
      rest = slash == std::string::npos ? "" : rest.substr(slash + 1);
      if (part.empty() || part == ".") continue;
      if (part == "..") {
        real.resize(real.empty() ? 0 : real.rfind('/'));
        continue;
      }
      const std::string next = str_cat(real, "/", part);
      char target[4096];
      const ssize_t size = ::readlink(next.c_str(), target, sizeof(target));
      if (size < 0) {  // no link, or nothing there
        real = next;
        continue;
      }
      if (++links > 40) return file_error("resolve", path, ELOOP);
      if (size == sizeof(target)) return file_error("resolve", path, ENAMETOOLONG);
      rest = str_cat(std::string_view(target, static_cast<size_t>(size)), "/", rest);
      if (target[0] == '/') real.clear();
    }
    return real.empty() ? "/" : real;
  }

 private:
  // The system would silently stop at a zero byte.
  static Status check_path(std::string_view operation, const std::string& path) {
    if (path.empty()) return invalid_argument("cannot ", operation, " '': the path is empty");
    const size_t zero = path.find('\0');
    if (zero == std::string::npos) return ok_status();
    return invalid_argument("cannot ", operation, " '", std::string_view(path).substr(0, zero),
                            "...': the path has a zero byte at position ", zero);
  }

  static Result<Ref<WritableFile>> open_for_writing(const std::string& path, int flag) {
    MR_TRY(check_path("open", path));
    // Not waiting is for open() alone: writes to a pipe wait for its reader.
    const int fd = open_file(path, O_WRONLY | O_CREAT | O_NONBLOCK | flag);
    if (fd < 0) return file_error("open", path, errno);
    Ref<WritableFile> file = make_ref<PosixWritableFile>(path, fd);
    const int status = ::fcntl(fd, F_GETFL);
    if (status < 0 || ::fcntl(fd, F_SETFL, status & ~O_NONBLOCK) != 0) {
      return file_error("open", path, errno);
    }
    return file;
  }

  static Status make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), 0777) == 0) return ok_status();
    const int error = errno;
    // A directory that is there is fine, also where we were not allowed to make it.
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) return ok_status();
      return file_error("make directory", path, ENOTDIR);
    }
    return file_error("make directory", path, error);
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem* fs = new PosixFileSystem;  // never destroyed: files may outlive statics
  return *fs;
}

}  // namespace millrace
