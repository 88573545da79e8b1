#include "millrace/runtime/step_runner.h"

#include <algorithm>

namespace millrace {
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

void StepTimer::note_read(std::span<Value* const> inputs) {
  const PlanStep& step = plan_.steps[static_cast<size_t>(step_)];
  blocks_.reserve(inputs.size() + static_cast<size_t>(step.num_outputs));
  for (const Value* input : inputs) {
    if (input->state != Value::State::kTensor || !input->tensor.buffer()) continue;
    const Buffer* const buffer = input->tensor.buffer().get();
    blocks_.push_back({.buffer = buffer, .bytes = static_cast<int64_t>(buffer->bytes())});
  }
}

void StepTimer::record(const Value* outputs) {
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
  TraceCall call;
  call.node = step.node;
  call.origin = plan_.origins[static_cast<size_t>(step_)];
  call.scheduled_ns = scheduled_ns_;
  call.start_ns = start_ns_;
  call.end_ns = end_ns;
  call.blocks = std::move(blocks_);
  for (int i = 0; outputs != nullptr && i < step.num_outputs; ++i) {
    if (outputs[i].state != Value::State::kTensor) continue;
    const Tensor& tensor = outputs[i].tensor;
    call.allocated_bytes += static_cast<int64_t>(tensor.bytes());
    if (!tensor.buffer()) continue;
    call.blocks.push_back({.buffer = tensor.buffer().get(),
                           .bytes = static_cast<int64_t>(tensor.buffer()->bytes()),
                           .output = i,
                           .exclusive = tensor.writable()});
  }
  trace_->record(std::move(call));
}

}  // namespace millrace
