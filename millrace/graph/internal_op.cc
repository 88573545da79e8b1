#include "millrace/graph/internal_op.h"

#include "millrace/graph/op_registry.h"

namespace millrace {

bool is_internal_op(const OpRegistry& registry, std::string_view op) {
  return op.starts_with('_') && registry.find(op) != nullptr;
}

Status refuse_internal_op(const OpRegistry& registry, std::string_view op) {
  if (!is_internal_op(registry, op)) [[likely]]
    return ok_status();
  return invalid_argument("expected an op for users, found ", op,
                          ", which only the runtime puts into graphs; remove the node");
}

}  // namespace millrace
