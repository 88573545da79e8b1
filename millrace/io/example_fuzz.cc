#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/base/check.h"
#include "millrace/io/csv.h"
#include "millrace/io/example_json.h"
#include "millrace/io/example_parser.h"
#include "millrace/io/feature_list_parser.h"

namespace millrace {
namespace {

constexpr DType kTypes[] = {DType::kInt64, DType::kFloat, DType::kString};
constexpr const char* kKeys[] = {"i", "f", "s"};

void parse_examples(const std::string& bytes, bool single) {
  using Form = FeatureSpec::Form;
  std::vector<FeatureSpec> specs;
  std::vector<Tensor> defaults;
  for (int i = 0; i < 3; ++i) {
    for (const Form form : {Form::kFixed, Form::kVariable, Form::kSparse, Form::kRagged}) {
      specs.push_back({.key = kKeys[i], .dtype = kTypes[i], .form = form});
      defaults.push_back(Tensor::zeros(kTypes[i], Shape{}).value());
    }
  }
  const auto parser = ExampleParser::make(specs, {.single = single}).value();
  (void)parser->parse({.serialized = {&bytes, 1}, .defaults = defaults}).ok();
}

void parse_lists(const std::string& bytes, bool single) {
  using Form = FeatureListSpec::Form;
  std::vector<FeatureListSpec> specs;
  for (int i = 0; i < 3; ++i) {
    for (const Form form : {Form::kDense, Form::kSparse, Form::kRagged}) {
      specs.push_back(
          {.key = kKeys[i], .dtype = kTypes[i], .form = form, .missing_is_empty = true});
    }
  }
  (void)FeatureListParser::make(specs, single).value()->parse({&bytes, 1}, {}).ok();
}

// The first byte is the delimiter. Fields in quotes, with quotes doubled, are read as they were.
void split(const std::string& bytes, bool quotes) {
  if (bytes.empty()) return;
  const CsvOptions options = {.delimiter = bytes[0], .quotes = quotes};
  const Result<std::vector<std::string>> fields = split_csv(bytes.substr(1), options);
  if (!fields.ok() || fields->empty() || !quotes || bytes[0] == '"') return;
  if (bytes[0] == '\n' || bytes[0] == '\r') return;
  std::string record;
  for (const std::string& field : *fields) {
    if (!record.empty()) record += bytes[0];
    record += '"';
    for (const char c : field) record.append(c == '"' ? 2 : 1, c);
    record += '"';
  }
  MR_CHECK(split_csv(record, options).value() == *fields);
}

// What is read of JSON is an Example.
void read_json(const std::string& text) {
  const Result<std::string> example = example_from_json(text);
  if (example.ok()) parse_examples(*example, true);
}

}  // namespace
}  // namespace millrace

// The first byte chooses what the rest is read as.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      parse_examples(bytes, data[0] % 8 == 0);
      break;
    case 1:
      parse_lists(bytes, data[0] % 8 == 1);
      break;
    case 2:
      split(bytes, data[0] % 8 == 2);
      break;
    default:
      read_json(bytes);
  }
  return 0;
}
