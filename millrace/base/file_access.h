#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file_systems.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {

// Which files may be reached. Every op that takes a path from a graph asks the one of its device
// (Device::files()), so that a server can let strangers' graphs run without giving them its disk.
// Immutable, thread-safe.
class FileAccess : public RefCounted {
 public:
  enum class Use : uint8_t { kRead, kWrite };

  // Everything that the file systems reach: what a program on its own machine has.
  static const Ref<FileAccess>& all();

  // Folders, with their scheme, and what is in them, at any depth. What may be written may be read.
  struct Folders {
    std::vector<std::string> read;
    std::vector<std::string> write;
  };
  // Nothing outside of these folders. A path is judged by where it leads: links are followed and
  // ".." is resolved first. INVALID_ARGUMENT for a folder that is not there. Whoever can make links
  // in the folders can change where a path leads between the question and its use: let nobody
  // but this process write there.
  static Result<Ref<FileAccess>> only(const Folders& folders);

  // Nothing at all: whatever is asked for is `refusal`, an error, files that are not there too.
  static Ref<FileAccess> none(Status refusal);

  // Where `path` leads, for who opens it there. PERMISSION_DENIED outside of the folders, and the
  // errors of find_file().
  Result<FilePlace> resolve(std::string_view path, Use use) const;

 private:
  struct Folder {
    std::string scheme;
    std::string path;  // real, without a slash at the end
    bool write;
  };
  static Status add(FileAccess& access, const std::vector<std::string>& folders, bool write);

  bool all_ = true;
  Status refusal_;  // an error: of everything
  std::vector<Folder> folders_;
};

}  // namespace millrace
