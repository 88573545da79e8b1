#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/kernel.h"

namespace millrace {
class OpRegistry;
}

namespace millrace::eager {

// What the gradient rule of an op reads. A tape keeps that and nothing else; of all other tensors
// it keeps type and shape.
struct GradientNeeds {
  // By input: what its gradient reads. Bit k: the elements of input k, and from bit num_inputs on
  // those of output k.
  std::vector<uint64_t> of_input;
  // The rule asked for shapes while it decided what to do: for other shapes it may read other
  // things.
  bool by_shape = false;
  // The tensors whose values it asked for, by the same bits: for other values it may read other
  // things, too.
  uint64_t by_value = 0;

  static constexpr uint64_t kAll = ~uint64_t{0};
};

// Found out by calling the op's rule with stand-ins for tensors, which tell what was used for what:
// no list says it a second time. `inputs` and `outputs` are those of one call; what is found holds
// for calls with other shapes and values, too, but where `by_shape` or `by_value` say otherwise.
// Where the rule cannot be called so, or decides by what is known only when it runs: all.
GradientNeeds find_gradient_needs(const KernelNode& node, const OpRegistry& registry,
                                  std::span<const Tensor* const> inputs,
                                  std::span<const Tensor* const> outputs);

// Whether an op looks at the type and shape of its inputs alone.
bool reads_no_elements(const OpDef& op);

}  // namespace millrace::eager
