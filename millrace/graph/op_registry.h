#pragma once

#include <string_view>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/graph/op_def.h"

namespace millrace {

// The ops that exist, by name. Append-only; reading never blocks and may go on while ops are added
// (op libraries load at run time). Definitions live as long as the registry.
class OpRegistry {
 public:
  OpRegistry();
  ~OpRegistry();
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  // The registry of the process.
  static OpRegistry& global();

  // ALREADY_EXISTS for a name that is taken.
  Status add(OpDef def);
  // Null when there is none.
  const OpDef* find(std::string_view name) const;
  // NOT_FOUND "Op type not registered 'X'", with the nearest names there are.
  Result<const OpDef*> lookup(std::string_view name) const;
  // All definitions in name order.
  std::vector<const OpDef*> list() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace millrace
