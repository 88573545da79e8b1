#include "millrace/eager/prepared_op.h"

#include <atomic>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_annotations.h"
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

namespace {

// What is known of a call for the rule of its gradient.
struct Asked {
  std::span<EagerTensor* const> inputs;
  std::span<const TensorRef> outputs;

  // By the bits of GradientNeeds.
  const Tensor& operator[](size_t bit) const {
    return bit < inputs.size() ? inputs[bit]->tensor() : outputs[bit - inputs.size()]->tensor();
  }
  size_t size() const { return inputs.size() + outputs.size(); }
};

// What the gradient reads, of calls in which the rule is told what it was told in this one.
struct Case {
  GradientNeeds needs;
  std::vector<Shape> shapes;                      // where they matter
  std::vector<std::pair<size_t, Tensor>> values;  // the same; by bit

  bool covers(const Asked& asked) const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (asked[i].shape() != shapes[i]) return false;
    }
    for (const auto& [bit, value] : values) {
      if (!bit_equal(asked[bit], value)) return false;
    }
    return true;
  }
};

constexpr size_t kMaxCases = 256;
// Values of more bytes are not remembered.
constexpr int64_t kMaxValueBytes = 1024;

}  // namespace

struct PreparedOp::KnownNeeds {
  std::atomic<const Case*> last{nullptr};
  Mutex mu;
  std::vector<std::unique_ptr<Case>> cases MR_GUARDED_BY(mu);
};

PreparedOp::PreparedOp() : known_needs_(std::make_unique<KnownNeeds>()) {}

PreparedOp::~PreparedOp() {
  if (own_state) device->resources().clear_session(node.session_prefix);
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
  const Case* last = known_needs_->last.load(std::memory_order_acquire);
  if (last != nullptr && last->shapes.empty() && last->values.empty()) [[likely]]
    return last->needs;
  const Asked asked = {inputs, std::span(outputs, node.output_types.size())};
  if (last != nullptr && last->covers(asked)) return last->needs;
  MutexLock lock(known_needs_->mu);
  for (const std::unique_ptr<Case>& known : known_needs_->cases) {
    if (!known->covers(asked)) continue;
    known_needs_->last.store(known.get(), std::memory_order_release);
    return known->needs;
  }
  auto made = std::make_unique<Case>();
  std::vector<const Tensor*> xs, ys;
  for (const EagerTensor* input : asked.inputs) xs.push_back(&input->tensor());
  for (const TensorRef& output : asked.outputs) ys.push_back(&output->tensor());
  made->needs = find_gradient_needs(node, *registry, xs, ys);
  bool remember = known_needs_->cases.size() < kMaxCases;
  for (size_t bit = 0; bit < asked.size() && bit < 64; ++bit) {
    if (made->needs.by_shape) made->shapes.push_back(asked[bit].shape());
    if ((made->needs.by_value >> bit & 1) == 0) continue;
    if (static_cast<int64_t>(asked[bit].bytes()) > kMaxValueBytes) remember = false;
    Result<Tensor> value = remember ? asked[bit].clone() : Tensor();
    remember &= value.ok();
    if (remember) made->values.emplace_back(bit, *std::move(value));
  }
  if (!remember) {
    thread_local GradientNeeds once;
    once = std::move(made->needs);
    return once;
  }
  known_needs_->cases.push_back(std::move(made));
  known_needs_->last.store(known_needs_->cases.back().get(), std::memory_order_release);
  return known_needs_->cases.back()->needs;
}

}  // namespace millrace::eager
