#include "millrace/eager/builder.h"

#include <algorithm>

#include "millrace/eager/gradient_needs.h"
#include "millrace/eager/record.h"

namespace millrace::eager {

Expr Builder::expr(TensorRef tensor) {
  if (!tensor) return Expr();
  const DType dtype = tensor->dtype();
  slots_.push_back({dtype, std::move(tensor), -1});
  return Expr(this, static_cast<int64_t>(slots_.size()) - 1, 0);
}

Gradient Builder::gradient(EagerGradient gradient) {
  return {expr(std::move(gradient.values)), expr(std::move(gradient.indices)),
          expr(std::move(gradient.dense_shape))};
}

Expr Builder::constant(const Tensor& value) { return expr(context_.tensor(value)); }

std::vector<Expr> Builder::emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) {
  if (!status_.ok()) return {};
  Result<std::vector<Expr>> made = add(op, inputs, std::move(attrs));
  if (made.ok()) return *std::move(made);
  fail(made.status());
  return {};
}

Result<std::vector<Expr>> Builder::add(std::string_view op, const std::vector<Expr>& inputs,
                                       AttrMap attrs) {
  MR_TRY_ASSIGN(const Op called, context_.op(op, std::move(attrs)));
  Step step;
  // A step is prepared by the types of its inputs; those not computed yet are stood in for.
  std::vector<TensorRef> holders;
  std::vector<EagerTensor*> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid()) return invalid_argument(op, ": input ", i, " is missing");
    if (inputs[i].builder() != this) {
      return invalid_argument(op, ": input ", i, " is of another builder");
    }
    const Slot& input = slot(inputs[i]);
    TensorRef tensor = input.tensor;
    if (!tensor) {
      if (context_.devices().size() > 1) {
        // Where it runs depends on where its inputs are.
        const int32_t wanted = static_cast<int32_t>(inputs[i].id());
        MR_TRY(compute(std::span(&wanted, 1), false));
        tensor = slot(inputs[i]).tensor;
      } else {
        tensor = context_.tensor(without_elements(input.dtype, Shape()));
      }
    }
    tensors.push_back(tensor.get());
    holders.push_back(std::move(tensor));
    step.inputs.push_back(static_cast<int32_t>(inputs[i].id()));
  }
  MR_TRY_ASSIGN(step.op, context_.prepare(called, tensors));
  step.first_output = static_cast<int32_t>(slots_.size());
  std::vector<Expr> outputs;
  for (DType type : step.op->node.output_types) {
    outputs.emplace_back(this, static_cast<int64_t>(slots_.size()), 0);
    slots_.push_back({type, nullptr, static_cast<int32_t>(steps_.size())});
  }
  steps_.push_back(std::move(step));
  // What has an effect has it now, in the order of the program.
  Step& added = steps_.back();
  if (added.op->def().traits.stateful || outputs.empty()) {
    const std::vector<int32_t> wanted = added.inputs;
    MR_TRY(compute(wanted, false));
    MR_TRY(run(steps_.back(), 0));
  }
  return outputs;
}

Status Builder::run(Step& step, uint64_t movable) {
  std::vector<EagerTensor*> inputs;
  for (int32_t i : step.inputs) {
    EagerTensor* tensor = slots_[static_cast<size_t>(i)].tensor.get();
    if (!has_elements(tensor->tensor()) && !reads_no_elements(step.op->def())) {
      return internal(step.op->def().name, ": reads a tensor that the tape did not keep");
    }
    inputs.push_back(tensor);
  }
  std::vector<TensorRef> outputs(step.op->node.output_types.size());
  MR_TRY(context_.run(*step.op, inputs, movable, outputs.data()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    slots_[static_cast<size_t>(step.first_output) + i].tensor = std::move(outputs[i]);
  }
  step.done = true;
  return ok_status();
}

Status Builder::compute(std::span<const int32_t> wanted, bool last) {
  // Uses of each slot by the steps to run, and by the caller.
  std::vector<int32_t> uses;
  std::vector<bool> needed(steps_.size(), false);
  int32_t newest = -1;
  for (int32_t id : wanted) {
    const Slot& s = slots_[static_cast<size_t>(id)];
    if (s.tensor) continue;
    needed[static_cast<size_t>(s.step)] = true;
    newest = std::max(newest, s.step);
  }
  if (newest < 0) return ok_status();
  uses.assign(slots_.size(), 0);
  for (int32_t id : wanted) ++uses[static_cast<size_t>(id)];
  int32_t oldest = newest;
  for (int32_t at = newest; at >= 0; --at) {
    if (!needed[static_cast<size_t>(at)]) continue;
    oldest = at;
    for (int32_t input : steps_[static_cast<size_t>(at)].inputs) {
      ++uses[static_cast<size_t>(input)];
      const Slot& s = slots_[static_cast<size_t>(input)];
      if (!s.tensor) needed[static_cast<size_t>(s.step)] = true;
    }
  }
  for (int32_t at = oldest; at <= newest; ++at) {
    Step& step = steps_[static_cast<size_t>(at)];
    if (!needed[static_cast<size_t>(at)]) continue;
    uint64_t movable = 0;
    for (size_t i = 0; last && i < step.inputs.size() && i < 64; ++i) {
      const auto id = static_cast<size_t>(step.inputs[i]);
      if (uses[id] == 1 && slots_[id].tensor->unique()) movable |= uint64_t{1} << i;
    }
    MR_TRY(run(step, movable));
    for (int32_t input : step.inputs) {
      const auto id = static_cast<size_t>(input);
      if (--uses[id] == 0 && last) slots_[id].tensor = nullptr;
    }
  }
  return ok_status();
}

Result<TensorRef> Builder::tensor(Expr e) {
  MR_TRY(status_);
  if (!e.valid()) return invalid_argument("expected a tensor, got none");
  const auto id = static_cast<int32_t>(e.id());
  Status status = compute(std::span(&id, 1), false);
  if (!status.ok()) {
    fail(status);
    return status;
  }
  return slot(e).tensor;
}

Result<std::vector<TensorRef>> Builder::finish(std::span<const Expr> results) {
  std::vector<int32_t> wanted;
  for (Expr e : results) {
    if (e.valid()) wanted.push_back(static_cast<int32_t>(e.id()));
  }
  Status status = status_;
  if (status.ok()) status = compute(wanted, true);
  std::vector<TensorRef> out;
  if (status.ok()) {
    for (Expr e : results) out.push_back(e.valid() ? slot(e).tensor : nullptr);
  }
  clear();
  if (!status.ok()) return status;
  return out;
}

Result<std::vector<EagerGradient>> Builder::finish(std::span<const Gradient> results) {
  std::vector<Expr> parts;
  for (const Gradient& g : results) {
    parts.insert(parts.end(), {g.values, g.indices, g.dense_shape});
  }
  MR_TRY_ASSIGN(std::vector<TensorRef> tensors, finish(parts));
  std::vector<EagerGradient> out(results.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = {std::move(tensors[3 * i]), std::move(tensors[3 * i + 1]),
              std::move(tensors[3 * i + 2])};
  }
  return out;
}

void Builder::clear() {
  slots_.clear();
  steps_.clear();
  status_ = ok_status();
}

PartialShape Builder::shape(Expr e) const {
  // Asking computes, but changes nothing that anybody could see.
  auto* self = const_cast<Builder*>(this);
  const Result<TensorRef> value = self->tensor(e);
  return value.ok() ? PartialShape((*value)->shape()) : PartialShape::unknown();
}

const Tensor* Builder::constant_value(Expr e) const {
  const TensorRef& tensor = slot(e).tensor;
  if (!tensor || !has_elements(tensor->tensor()) || tensor->device().info().own_memory) {
    return nullptr;
  }
  return &tensor->tensor();
}

}  // namespace millrace::eager
