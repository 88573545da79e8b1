// The ends of a function body and of a pruned graph: where values come in and go out. The executor
// moves them; no kernel runs.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

Status not_run(KernelContext& ctx) {
  return internal("the executor handles ", ctx.node().op->name, " itself");
}

// What the function says of its parameter, in the attributes that TensorFlow uses for it.
Status argument_shape(ShapeContext& c) {
  if (c.attrs().find("_output_shapes") != nullptr) {
    MR_TRY_ASSIGN(auto shapes, c.attr<std::vector<PartialShape>>("_output_shapes"));
    if (shapes.size() == 1) c.set_output(0, shapes[0]);
  }
  if (c.attrs().find("_handle_dtypes") != nullptr && c.attrs().find("_handle_shapes") != nullptr) {
    MR_TRY_ASSIGN(auto types, c.attr<std::vector<DType>>("_handle_dtypes"));
    MR_TRY_ASSIGN(auto shapes, c.attr<std::vector<PartialShape>>("_handle_shapes"));
    std::vector<ResourceHandle::DTypeAndShape> held;
    for (size_t i = 0; i < std::min(types.size(), shapes.size()); ++i) {
      held.push_back({types[i], shapes[i]});
    }
    c.set_output_resource(0, std::move(held));
  }
  return ok_status();
}

}  // namespace

void register_arguments(Registry& registry) {
  registry.add({.name = "_Arg",
                .doc = "A parameter of a function, or a fed tensor.",
                .outputs = {{"output", "host(T)"}},
                .types = {{"T", {}}},
                .attrs = {{"index", "int >= 0", "Its position among the parameters or feeds."}},
                .traits = {.stateful = true, .argument = true},
                .shape = argument_shape});
  registry.add({.name = "_Retval",
                .doc = "A result of a function, or a fetched tensor.",
                .inputs = {{"input", "host(T)"}},
                .types = {{"T", {}}},
                .attrs = {{"index", "int >= 0", "Its position among the results or fetches."}},
                .traits = {.stateful = true, .result = true},
                .shape = shape_rules::no_outputs});
  for (DeviceKind device : {DeviceKind::kAny, DeviceKind::kNull}) {
    registry.kernel("_Arg", device, not_run);
    registry.kernel("_Retval", device, not_run);
  }
}

}  // namespace millrace
