#include "millrace/io/example_json.h"

#include <google/protobuf/util/json_util.h>

#include "proto/example.pb.h"

namespace millrace {

Result<std::string> example_from_json(const std::string& json) {
  tensorflow::Example example;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &example);
  if (!status.ok()) return invalid_argument("Error while parsing JSON: ", status.ToString());
  return example.SerializeAsString();
}

}  // namespace millrace
