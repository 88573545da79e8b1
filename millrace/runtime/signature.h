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
  // The run ends where numbers that are not finite would be fetched or kept (runtime/numerics.h).
  bool check_numerics = false;

  // The same for requests that need the same plan when given in this order.
  std::string key() const;
};

}  // namespace millrace
