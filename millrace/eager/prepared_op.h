#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/eager/eager_tensor.h"
#include "millrace/graph/op_def.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/kernel_call.h"

namespace millrace {
class OpRegistry;
}

namespace millrace::eager {

struct GradientNeeds;

// An op with values for its attributes, to be executed on inputs that come later. Made once by
// EagerContext::op() and used often: a small price for each call. Immutable.
class Op {
 public:
  Op(const OpDef& def, AttrMap attrs, Device* device = nullptr);

  const OpDef& def() const { return *def_; }
  // Those given; the rest follow from the inputs and the defaults.
  const AttrMap& attrs() const { return attrs_; }
  // Where to run it; null: the context's choice.
  Device* device() const { return device_; }
  // Equal for equal ops, attributes and devices.
  uint64_t hash() const { return hash_; }
  // Never runs again with these attributes, so nothing of it is kept: a random op whose seed was
  // drawn for one call.
  bool once = false;

 private:
  const OpDef* def_;
  AttrMap attrs_;
  Device* device_;
  uint64_t hash_;
};

// How an op for inputs of certain types runs on a device. Immutable but for what tapes learn of its
// gradient; shared by all calls that are equal in op, attributes, types and device.
class PreparedOp final : public RefCounted {
 public:
  enum class Way : uint8_t {
    kPlain,       // a kernel that takes its inputs as they are, and is done when it returns
    kKernel,      // a kernel; inputs may have to be copied first, or the end waited for
    kConstant,    // the value of its attribute
    kFunctional,  // runs functions
  };

  PreparedOp();

  // What was asked for.
  uint64_t context = 0;  // the context's number
  const OpRegistry* registry = nullptr;
  uint64_t hash = 0;
  AttrMap given;
  Device* wanted = nullptr;

  Way way = Way::kKernel;
  Device* device = nullptr;
  KernelNode node;
  std::unique_ptr<Kernel> kernel;  // null where it does not need one
  bool async = false;
  InputNeeds needs;
  // Its kernel keeps state under a name that nobody else has, and that goes with this.
  bool own_state = false;
  std::atomic<uint64_t> last_used{0};  // when there is own state; counts calls
  // By attribute: the functions it runs, instantiated.
  std::vector<FunctionRunner::Handle> functions;

  // Whether a tape records it, and where it writes which kinds of outputs.
  bool recorded = false;
  std::vector<bool> differentiable_outputs;

  // What its gradient reads of inputs and outputs; see gradient_needs.h. Worked out at the first
  // call that a tape records, and again for other shapes or values where its rule asks for them.
  // Good until the thread asks again.
  const GradientNeeds& gradient_needs(std::span<EagerTensor* const> inputs,
                                      const TensorRef* outputs);

  const OpDef& def() const { return *node.op; }
  bool equals(const Op& op, const Device* wanted_device,
              std::span<EagerTensor* const> inputs) const;

 protected:
  // Drops state that the resource manager keeps for this op alone.
  ~PreparedOp() override;

 private:
  struct KnownNeeds;
  std::unique_ptr<KnownNeeds> known_needs_;
};

}  // namespace millrace::eager
