#include "millrace/runtime/step_runner.h"

#include <algorithm>

namespace millrace {
namespace {

// Who is at the other end of a send or a receive, and what it is about.
void add_transfer(const KernelNode& node, TraceEvent& event) {
  const bool sends = node.op->traits.send;
  Result<std::string> peer = node.attr<std::string>(sends ? "recv_device" : "send_device");
  if (peer.ok()) event.peer = *std::move(peer);
  Result<std::string> tensor = node.attr<std::string>("tensor_name");
  if (tensor.ok()) event.tensor = *std::move(tensor);
}

}  // namespace

Result<Tensor> fetch_value(Value& input, bool movable) {
  if (input.is_ref()) {
    MutexLock lock(input.cell->mu);
    if (!input.cell->tensor.valid()) return uninitialized(*input.cell);
    return input.cell->tensor.clone();
  }
  return movable ? std::move(input.tensor) : input.tensor;
}

Result<int> switch_output(const Value& predicate, int count) {
  if (predicate.is_ref()) {
    Value read;
    MR_TRY(read_reference(predicate, read));
    return switch_output(read, count);
  }
  const Tensor& value = predicate.tensor;
  if (value.dtype() == DType::kBool && value.num_elements() == 1) [[likely]]
    return value.item<bool>() ? 1 : 0;
  if (value.dtype() == DType::kInt32 && value.num_elements() == 1) {
    const int32_t number = value.item<int32_t>();
    return number < 0 || number >= count ? count - 1 : number;
  }
  return invalid_argument("the predicate must be a bool or int32 scalar, got ", value.dtype(), " ",
                          value.shape());
}

Status two_live_inputs() { return internal("two live inputs in one activation"); }

Status annotate_step(const Plan& plan, size_t step, const Status& status) {
  const PlanStep& failed = plan.steps[step];
  size_t named = step;
  if (failed.kind == StepKind::kFetch || failed.node->op->traits.send) {
    const int32_t slot = plan.inputs[static_cast<size_t>(failed.first_input)];
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const PlanStep& s = plan.steps[i];
      if (s.output_frame == failed.frame && slot >= s.first_output &&
          slot < s.first_output + s.num_outputs) {
        named = i;
      }
    }
  }
  return annotate_error(status, *plan.steps[named].node, plan.origins[named]);
}

std::vector<TraceEvent::Block> blocks_read(Value* const* inputs, int count) {
  std::vector<TraceEvent::Block> blocks;
  for (int i = 0; i < count; ++i) {
    if (inputs[i]->state != Value::State::kTensor || !inputs[i]->tensor.buffer()) continue;
    const Buffer* const buffer = inputs[i]->tensor.buffer().get();
    blocks.push_back({.buffer = buffer, .bytes = static_cast<int64_t>(buffer->bytes())});
  }
  return blocks;
}

void StepTimer::record(const Value* outputs, const std::vector<TraceEvent::Block>* read) {
  int64_t end_ns = monotonic_nanos();
  const PlanStep& step = plan_.steps[static_cast<size_t>(step_)];
  if (measured_ && !step.async) {
    uint64_t ns = static_cast<uint64_t>(end_ns - start_ns_);
    std::atomic<uint32_t>& mean = plan_.step_ns[static_cast<size_t>(step_)];
    uint64_t old = mean.load(std::memory_order_relaxed);
    uint64_t now = old == 0 ? ns : (old * 3 + ns) / 4;
    mean.store(static_cast<uint32_t>(std::clamp<uint64_t>(now, 1, UINT32_MAX)),
               std::memory_order_relaxed);
  }
  if (trace_ == nullptr) return;
  TraceEvent event;
  event.node = step.node->name;
  event.op = step.node->op->name;
  event.device = plan_.device->name();
  if (step.node->op->traits.send || step.node->op->traits.recv) add_transfer(*step.node, event);
  if (scheduled_ns_ != 0) {
    event.kind = TraceEvent::Kind::kQueueWait;
    event.start_ns = scheduled_ns_;
    event.end_ns = start_ns_;
    trace_->record(event);
    event.scheduled_ns = scheduled_ns_;
  }
  event.kind = step.node->op->traits.recv ? TraceEvent::Kind::kRecvWait : TraceEvent::Kind::kKernel;
  event.start_ns = start_ns_;
  event.end_ns = end_ns;
  event.origin = plan_.origins[static_cast<size_t>(step_)];
  if (read != nullptr) event.blocks = *read;
  for (int i = 0; outputs != nullptr && i < step.num_outputs; ++i) {
    if (outputs[i].state != Value::State::kTensor) continue;
    const Tensor& tensor = outputs[i].tensor;
    event.allocated_bytes += static_cast<int64_t>(tensor.bytes());
    if (!tensor.buffer()) continue;
    event.blocks.push_back({.buffer = tensor.buffer().get(),
                            .bytes = static_cast<int64_t>(tensor.buffer()->bytes()),
                            .output = i,
                            .exclusive = tensor.writable()});
  }
  trace_->record(std::move(event));
}

}  // namespace millrace
