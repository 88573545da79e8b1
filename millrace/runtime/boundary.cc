#include "millrace/runtime/boundary.h"

namespace millrace {
namespace {

Status add(const SubNode& node, DType type, size_t limit, std::map<int, DType>& positions) {
  auto refuse = [&](const auto&... parts) {
    return invalid_argument(node.op->name, " \"", node.name, "\": ", parts...);
  };
  MR_TRY_ASSIGN(int64_t position, node.attr<int64_t>("index"));
  if (position < 0 || static_cast<uint64_t>(position) >= limit) {
    return refuse("expected an index from 0 to below ", limit, ", found ", position);
  }
  if (!positions.emplace(static_cast<int>(position), type).second) {
    return refuse("expected an index of its own, found ", position, " twice");
  }
  return ok_status();
}

}  // namespace

Result<Boundary> read_boundary(const Subgraph& graph, size_t num_feeds, size_t num_fetches) {
  Boundary boundary;
  for (const SubNode& node : graph.nodes()) {
    if (node.erased) continue;
    if (node.op->traits.argument) {
      MR_TRY(add(node, node.output_types[0], num_feeds, boundary.feeds));
    } else if (node.op->traits.result) {
      MR_TRY(add(node, node.input_types[0], num_fetches, boundary.fetches));
    }
  }
  return boundary;
}

}  // namespace millrace
