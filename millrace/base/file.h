#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/base/status.h"

// Files behind an interface, so that tests can make them fail (file_testing.h). Every error names
// the operation, the path and the system's reason.

namespace millrace {

// The bytes of a file as memory, for as long as somebody holds it.
class FileBytes : public RefCounted {
 public:
  std::string_view view() const { return view_; }

 protected:
  std::string_view view_;
};

// A file open for reading at any place. Thread-safe.
class ReadableFile : public RefCounted {
 public:
  // Reads up to `size` bytes from `offset` into `out` and returns how many: fewer only at the end
  // of the file.
  virtual Result<size_t> read_at(uint64_t offset, size_t size, char* out) const = 0;
  // The size at this moment.
  virtual Result<uint64_t> size() const = 0;
  // The whole file, mapped where the system can, read otherwise. Whoever changes the file changes
  // mapped bytes, and whoever cuts it short ends a process (SIGBUS) that touches what is gone.
  virtual Result<Ref<FileBytes>> map() const;
};

// A file open for writing at its end. Buffered: bytes are surely with the operating system after
// flush(), on the disk after sync(). Not thread-safe. After an error the file's tail is undefined
// and every later call fails too. Dropping the last reference without close() loses errors.
class WritableFile : public RefCounted {
 public:
  virtual Status append(std::string_view data) = 0;
  virtual Status flush() = 0;
  virtual Status sync() = 0;
  // Flushes and closes. Afterwards only close() may be called, and does nothing.
  virtual Status close() = 0;
};

struct FileInfo {
  uint64_t size = 0;  // of a file
  bool is_directory = false;
  bool is_special = false;  // a device, a pipe or a socket
  int64_t modified_ns = 0;  // since 1970
};

// Operations on paths. Thread-safe. Implementations live as long as their files.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Files, and devices that can be read at any place. Never waits: what is a pipe or a socket is
  // FAILED_PRECONDITION, for reading, and for writing while nobody reads from it.
  virtual Result<Ref<ReadableFile>> open_readable(const std::string& path) = 0;
  // Creates the file, or empties it.
  virtual Result<Ref<WritableFile>> open_writable(const std::string& path) = 0;
  // Creates the file, or goes on after its end.
  virtual Result<Ref<WritableFile>> open_append(const std::string& path) = 0;

  // Replaces `to`, at once, where it is a file; FAILED_PRECONDITION where it is special.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual Status remove(const std::string& path) = 0;
  // True for files and directories.
  virtual Result<bool> exists(const std::string& path) = 0;
  virtual Result<FileInfo> info(const std::string& path) = 0;
  // The names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  // Makes the directory and those above it; those that exist are fine.
  virtual Status mkdir_all(const std::string& path) = 0;
  // Puts the names in a directory on the disk, so that a rename outlives a power cut.
  virtual Status sync_directory(const std::string& path) = 0;
  // Where a path leads: absolute, without "." and "..", links followed as far as the path exists.
  virtual Result<std::string> real_path(const std::string& path) = 0;
};

// The machine's own files.
FileSystem& posix_file_system();

// The whole file; RESOURCE_EXHAUSTED when it is longer than `max_bytes`.
Result<std::string> read_file(FileSystem& fs, const std::string& path,
                              uint64_t max_bytes = uint64_t{1} << 32);

// Writes aside (in the same directory), syncs, renames over `path`. Whatever fails or crashes,
// `path` holds the old contents or the new, whole. After an error the file aside is removed where
// possible. What is special (/dev/stdout) stays what it is, and is written to.
Status write_file_atomically(FileSystem& fs, const std::string& path, std::string_view contents);

// The directory part of a path: "a" of "a/b", "/" of "/b", "." of "b".
std::string directory_of(std::string_view path);

// The error for errno `error`: "cannot open 'data/x': No such file or directory" with the code that
// suits (NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED ...).
Status file_error(std::string_view operation, std::string_view path, int error);

}  // namespace millrace
