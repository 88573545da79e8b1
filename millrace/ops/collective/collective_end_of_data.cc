// CollectiveEndOfData: one member's end of data is that of all.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

Status end_of_data_shape(ShapeContext& c) { return c.with_rank(0, 0).status(); }

Status end_of_data_cpu(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY_ASSIGN(const bool ended, ctx.scalar_input<bool>(0));
  if (!ended) return ok_status();
  return out_of_range("another process of the group has come to the end of its data");
}

}  // namespace

void register_collective_end_of_data(Registry& registry) {
  registry.add({.name = "CollectiveEndOfData",
                .doc = "Fails with OUT_OF_RANGE, as at the end of data, where a member has ended.",
                .inputs = {{"ended", "host(bool)", "Whether one has, as all agree."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = end_of_data_shape});
  registry.kernel({.op = "CollectiveEndOfData", .function = end_of_data_cpu});
}

}  // namespace millrace
