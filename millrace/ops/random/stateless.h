#pragma once

#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {

// How random ops without a state of their own are declared. Their numbers follow from a seed, two
// integers, or from the place in a stream: a key, a counter and the number of the algorithm.
struct StatelessOp {
  // Everything but name and inputs.
  OpSpec spec;
  // The inputs before and after those.
  std::vector<OpSpec::Arg> before, after;
  const char* with_seed = nullptr;  // the op's name; null: there is none
  const char* with_key = nullptr;
};
void add_stateless(Registry& registry, const StatelessOp& op);

// What a kernel will say of the shapes of a seed, or of key, counter and algorithm.
Status check_stream(const ShapeContext& c);

// A shape rule that begins with it.
template <Status (*rule)(ShapeContext&)>
Status with_stream(ShapeContext& c) {
  MR_TRY(check_stream(c));
  return rule(c);
}

}  // namespace millrace
