#pragma once

#include <string>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/file_access.h"

namespace millrace {

// Adds the files that `pattern` matches to `found`, in no order: `*`, `?` and `[a-z]` match within
// a name. The pattern is judged by the folder before its first wildcard, and each file by itself.
// `cancel` (may be null) ends the search. RESOURCE_EXHAUSTED for one that leads to too many files.
Status match_pattern(const FileAccess& files, const std::string& pattern,
                     const CancellationToken* cancel, std::vector<std::string>& found);

}  // namespace millrace
