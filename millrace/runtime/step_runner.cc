#include "millrace/runtime/step_runner.h"

#include <algorithm>

#include "millrace/graph/graph_builder.h"
#include "millrace/kernel/trace.h"
#include "millrace/runtime/executor.h"

namespace millrace {

Status prepare_inputs(const PlanStep& step, Value** inputs, Value* copies) {
  for (int i = 0; i < step.num_inputs; ++i) {
    if (inputs[i]->is_ref()) {
      if (!is_ref(step.node->input_types[static_cast<size_t>(i)])) {
        MR_TRY(read_reference(*inputs[i], copies[i]));
        inputs[i] = &copies[i];
      } else if (!step.uninitialized_ok && !inputs[i]->cell->read().valid()) {
        return uninitialized(*inputs[i]->cell);
      }
    } else if (i < 32 && (step.retains >> i & 1) != 0 && inputs[i]->tensor.buffer() &&
               inputs[i]->tensor.buffer()->borrowed()) {
      MR_TRY_ASSIGN(Tensor copy, inputs[i]->tensor.clone());
      copies[i] = Value::of(std::move(copy));
      inputs[i] = &copies[i];
    }
  }
  return ok_status();
}

Status wrong_output(const Value& output, int i, DType declared) {
  if (output.empty()) return internal("the kernel did not set output ", i);
  return internal("output ", i, " is declared ", declared, ", the kernel set ",
                  output.tensor.dtype());
}

Result<Tensor> fetch_value(Value& input, bool movable) {
  if (input.is_ref()) {
    MutexLock lock(input.cell->mu);
    if (!input.cell->tensor.valid()) return uninitialized(*input.cell);
    return input.cell->tensor.clone();
  }
  return movable ? std::move(input.tensor) : input.tensor;
}

Status with_inputs(const Status& status, std::span<Value* const> inputs) {
  constexpr size_t kMaxShown = 8;
  if (status.code() != Code::kInvalidArgument || inputs.empty()) return status;
  std::string line = "inputs: ";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == kMaxShown) {
      line += str_cat(", and ", inputs.size() - i, " more");
      break;
    }
    const Value& value = *inputs[i];
    const Tensor tensor = value.is_ref() ? value.cell->read() : value.tensor;
    if (i > 0) line += ", ";
    line += tensor.valid() ? str_cat(user_type_name(tensor.dtype()), " ", tensor.shape()) : "none";
  }
  return status.with_line(line);
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
  TraceEvent event;
  event.node = step.node->name;
  event.op = step.node->op->name;
  event.device = plan_.device->name();
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
  for (int i = 0; outputs != nullptr && i < step.num_outputs; ++i) {
    if (outputs[i].state == Value::State::kTensor) {
      event.allocated_bytes += static_cast<int64_t>(outputs[i].tensor.bytes());
    }
  }
  trace_->record(std::move(event));
}

Status annotate_error(const Status& status, const KernelNode& node, OriginId origin) {
  if (status.ok()) return status;
  Status out = status.with_prefix(str_cat(node.op->name, " \"", node.name, "\""));
  std::string where = describe_origin(origin);
  if (!where.empty()) out = out.with_line(where);
  return out.with_line(str_cat("[[{{node ", node.name, "}}]]"));
}

bool runs_straight(const Plan& plan, Gear gear) {
  if (!plan.straight_allowed() || gear == Gear::kParallel) return false;
  if (gear == Gear::kStraight) return true;
  return !plan.many_blocking && !plan.worth_sharing.load(std::memory_order_relaxed);
}

}  // namespace millrace
