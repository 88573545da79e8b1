#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

struct CsvOptions {
  char delimiter = ',';
  // Fields may stand in quotes, and hold delimiters, ends of lines and doubled quotes then.
  bool quotes = true;
};

// The fields of one record; INVALID_ARGUMENT for quotes where none may be.
Result<std::vector<std::string>> split_csv(std::string_view record, const CsvOptions& options);

}  // namespace millrace
