#include "millrace/eager/prepared_op.h"

#include "millrace/base/hash.h"
#include "millrace/eager/gradient_needs.h"
#include "millrace/eager/record.h"
#include "millrace/graph/op_registry.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace::eager {

Op::Op(const OpDef& def, AttrMap attrs, Device* device)
    : def_(&def), attrs_(std::move(attrs)), device_(device) {
  hash_ = hash_combine(reinterpret_cast<uintptr_t>(def_), reinterpret_cast<uintptr_t>(device));
  for (const auto& [name, value] : attrs_) {
    hash_ = hash_combine(hash_combine(hash_, hash_bytes(name)), value.hash());
  }
}

PreparedOp::~PreparedOp() {
  if (own_state) device->resources().clear_session(node.session_prefix);
  delete gradient_needs_.load(std::memory_order_acquire);
}

bool PreparedOp::equals(const Op& op, const Device* wanted_device,
                        std::span<EagerTensor* const> inputs) const {
  if (node.op != &op.def() || wanted != wanted_device || node.input_types.size() != inputs.size()) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->dtype() != node.input_types[i]) return false;
  }
  return (given.empty() && op.attrs().empty()) || given == op.attrs();
}

const GradientNeeds& PreparedOp::gradient_needs(std::span<EagerTensor* const> inputs,
                                                const TensorRef* outputs) {
  const GradientNeeds* known = gradient_needs_.load(std::memory_order_acquire);
  if (known != nullptr) [[likely]]
    return *known;
  std::vector<const Tensor*> xs, ys;
  for (const EagerTensor* input : inputs) xs.push_back(&input->tensor());
  for (size_t i = 0; i < node.output_types.size(); ++i) ys.push_back(&outputs[i]->tensor());
  auto* found = new GradientNeeds(find_gradient_needs(node, *registry, xs, ys));
  if (gradient_needs_.compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
    return *found;
  }
  delete found;  // another thread was quicker
  return *known;
}

}  // namespace millrace::eager
