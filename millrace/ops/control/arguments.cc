// The ends of a function body and of a pruned graph: where values come in and go out. The executor
// moves them; no kernel runs.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/control/register.h"

namespace millrace {
namespace {

Status not_run(KernelContext& ctx) {
  return internal("the executor handles ", ctx.node().op->name, " itself");
}

}  // namespace

void register_arguments(Registry& registry) {
  registry.add({.name = "_Arg",
                .doc = "A parameter of a function, or a fed tensor.",
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"index", "int >= 0", "Its position among the parameters or feeds."}},
                .traits = {.stateful = true, .argument = true},
                .shape = shape_rules::unknown});
  registry.add({.name = "_Retval",
                .doc = "A result of a function, or a fetched tensor.",
                .inputs = {{"input", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"index", "int >= 0", "Its position among the results or fetches."}},
                .traits = {.stateful = true, .result = true},
                .shape = shape_rules::no_outputs});
  for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kNull}) {
    registry.kernel("_Arg", device, not_run);
    registry.kernel("_Retval", device, not_run);
  }
}

}  // namespace millrace
