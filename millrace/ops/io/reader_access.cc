// Reading through readers, and asking them.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/reader.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {
namespace {

Status read_up_to_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(2, 0).status());
  c.set_output(0, PartialShape{PartialShape::kUnknownDim});
  c.set_output(1, PartialShape{PartialShape::kUnknownDim});
  return ok_status();
}

Status restore_shape(ShapeContext& c) { return c.with_rank(1, 0).status(); }

Status read_one(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  MR_TRY_ASSIGN(const Ref<Queue> queue, resource_input<Queue>(ctx, 1));
  MR_TRY_ASSIGN(std::vector<Record> records,
                reader->read(1, *queue, ctx.device().files(), ctx.cancel()));
  ctx.set_output(0, Tensor::scalar<std::string>(std::move(records[0].key)));
  ctx.set_output(1, Tensor::scalar<std::string>(std::move(records[0].value)));
  return ok_status();
}

Status read_up_to(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  MR_TRY_ASSIGN(const Ref<Queue> queue, resource_input<Queue>(ctx, 1));
  MR_TRY(expect_rank(ctx, 2, 0));
  const int64_t n = ctx.input(2).item<int64_t>();
  if (n < 1) return invalid_argument("num_records must be positive, got ", n);
  MR_TRY_ASSIGN(std::vector<Record> records,
                reader->read(n, *queue, ctx.device().files(), ctx.cancel()));
  const Shape shape{static_cast<int64_t>(records.size())};
  MR_TRY_ASSIGN(Tensor * keys, ctx.allocate_output(0, shape));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, shape));
  for (size_t i = 0; i < records.size(); ++i) {
    keys->mutable_data<std::string>()[i] = std::move(records[i].key);
    values->mutable_data<std::string>()[i] = std::move(records[i].value);
  }
  return ok_status();
}

Status count_records(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t count, reader->records_produced(ctx.cancel()));
  ctx.set_output(0, Tensor::scalar(count));
  return ok_status();
}

Status count_work(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t count, reader->work_units_completed(ctx.cancel()));
  ctx.set_output(0, Tensor::scalar(count));
  return ok_status();
}

Status serialize_state(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  MR_TRY_ASSIGN(std::string state, reader->state(ctx.cancel()));
  ctx.set_output(0, Tensor::scalar<std::string>(std::move(state)));
  return ok_status();
}

Status restore_state(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  if (ctx.input(1).rank() != 0) {
    return invalid_argument("Reader state must be scalar, but had shape: ", ctx.input(1).shape());
  }
  return reader->restore(ctx.input(1).data<std::string>()[0], ctx.device().files(), ctx.cancel());
}

Status reset(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Reader> reader, resource_input<Reader>(ctx, 0));
  return reader->reset(ctx.cancel());
}

struct AccessOp {
  const char* name;
  const char* doc;
  std::vector<OpSpec::Arg> more_inputs;
  std::vector<OpSpec::Arg> outputs;
  ShapeRule shape;
  KernelFunction kernel;
  bool queue = false;
};

// Both forms: handles as references to strings, and as resources.
void register_op(Registry& registry, const AccessOp& op) {
  for (const bool v2 : {false, true}) {
    const char* const type = v2 ? "resource" : "ref(string)";
    const std::string name = std::string(op.name) + (v2 ? "V2" : "");
    std::vector<OpSpec::Arg> inputs = {{"reader_handle", type}};
    if (op.queue) inputs.push_back({"queue_handle", type, "Where the names of files come from."});
    inputs.insert(inputs.end(), op.more_inputs.begin(), op.more_inputs.end());
    registry.add({.name = name,
                  .doc = op.doc,
                  .inputs = inputs,
                  .outputs = op.outputs,
                  .traits = {.stateful = true, .blocks = true, .cannot_differentiate = true},
                  .shape = op.shape});
    registry.kernel(name, DeviceKind::kCpu, op.kernel);
  }
}

}  // namespace

void register_reader_access(Registry& registry) {
  const AccessOp ops[] = {
      {"ReaderRead",
       "The next record, from work that the queue has.",
       {},
       {{"key", "string"}, {"value", "string"}},
       shape_rules::scalar,
       read_one,
       true},
      {"ReaderReadUpTo",
       "The next records, fewer where the work ends.",
       {{"num_records", "host(int64)"}},
       {{"keys", "string"}, {"values", "string"}},
       read_up_to_shape,
       read_up_to,
       true},
      {"ReaderNumRecordsProduced",
       "How many records the reader has read.",
       {},
       {{"records_produced", "int64"}},
       shape_rules::scalar,
       count_records},
      {"ReaderNumWorkUnitsCompleted",
       "How many items of work the reader has finished.",
       {},
       {{"units_completed", "int64"}},
       shape_rules::scalar,
       count_work},
      {"ReaderSerializeState",
       "Where the reader stands, as a string.",
       {},
       {{"state", "string"}},
       shape_rules::scalar,
       serialize_state},
      {"ReaderRestoreState",
       "Puts the reader where it stood.",
       {{"state", "string"}},
       {},
       restore_shape,
       restore_state},
      {"ReaderReset", "Makes the reader as new.", {}, {}, shape_rules::no_outputs, reset},
  };
  for (const AccessOp& op : ops) register_op(registry, op);
}

}  // namespace millrace
