#include "millrace/io/csv.h"

#include <algorithm>

namespace millrace {
namespace {

// Takes a field that begins after its opening quote, and the delimiter after it.
Status take_quoted(std::string_view& rest, char delimiter, std::string& field) {
  while (!rest.empty()) {
    const size_t quote = rest.find('"');
    if (quote == std::string_view::npos) break;
    field.append(rest.substr(0, quote));
    rest.remove_prefix(quote + 1);
    if (rest.empty()) return ok_status();
    const char after = rest[0];
    rest.remove_prefix(1);
    if (after == delimiter) return ok_status();
    if (after != '"') {
      return invalid_argument("Quote inside a string has to be escaped by another quote");
    }
    field += '"';
  }
  return invalid_argument("Quoted field has to end with quote followed by delim or end");
}

}  // namespace

Result<std::vector<std::string>> split_csv(std::string_view record, const CsvOptions& options) {
  std::vector<std::string> fields;
  std::string_view rest = record;
  while (!rest.empty()) {
    if (rest[0] == '\n' || rest[0] == '\r') {
      rest.remove_prefix(1);
      continue;
    }
    std::string& field = fields.emplace_back();
    if (options.quotes && rest[0] == '"') {
      rest.remove_prefix(1);
      MR_TRY(take_quoted(rest, options.delimiter, field));
      continue;
    }
    const std::string_view text = rest.substr(0, rest.find(options.delimiter));
    if (text.find_first_of(options.quotes ? "\"\n\r" : "\n\r") != std::string_view::npos) {
      return invalid_argument("Unquoted fields cannot have quotes/CRLFs inside");
    }
    field = text;
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
  }
  if (!record.empty() && record.back() == options.delimiter) fields.emplace_back();
  return fields;
}

}  // namespace millrace
