#pragma once

#include <string>
#include <vector>

namespace millrace {

// What one kind of request feeds, fetches and runs. Names as the client wrote them: "node",
// "node:1"; targets are node names.
struct Signature {
  std::vector<std::string> feeds = {};
  std::vector<std::string> fetches = {};
  std::vector<std::string> targets = {};

  // The same for requests that need the same plan when given in this order.
  std::string key() const;
};

}  // namespace millrace
