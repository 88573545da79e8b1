#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"

// Paths with a scheme, "memory://runs/1", name files of a registered file system; paths without one
// are the machine's own. Who takes paths from users goes through FileAccess (file_access.h), which
// ends here.

namespace millrace {

// A path, and who knows it.
struct FilePlace {
  FileSystem* fs = nullptr;
  std::string scheme;  // "" for the machine's own files
  std::string path;    // without the scheme
};

// Makes `fs`, which lives as long as the process, the one for paths that begin with "scheme://".
// ALREADY_EXISTS when there is one, INVALID_ARGUMENT for what cannot be a scheme. Thread-safe.
Status register_file_system(std::string_view scheme, FileSystem& fs);

// The schemes there are, sorted: "file", "memory", "ram" and what was registered.
std::vector<std::string> file_system_schemes();

// Takes a path apart. UNIMPLEMENTED for a scheme that nobody registered, with those there are;
// INVALID_ARGUMENT for an empty path, one with a zero byte and one of more than 4096 bytes.
Result<FilePlace> find_file(std::string_view path);

// Files that end with the process: "memory://a/b", and "ram://", as TensorFlow writes it.
// Directories need not be made before the files in them.
FileSystem& memory_file_system();

}  // namespace millrace
