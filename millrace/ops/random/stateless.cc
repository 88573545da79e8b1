#include "millrace/ops/random/stateless.h"

#include <string>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/random/random_state.h"

namespace millrace {
namespace {

OpSpec with_inputs(const StatelessOp& op, const char* name, std::vector<OpSpec::Arg> own) {
  OpSpec spec = op.spec;
  spec.name = name;
  std::vector<OpSpec::Arg> inputs = op.before;
  inputs.insert(inputs.end(), own.begin(), own.end());
  inputs.insert(inputs.end(), op.after.begin(), op.after.end());
  spec.inputs = inputs;
  return spec;
}

template <bool kKeyAndCounter, bool kAlgorithm>
Status key_counter_shape(ShapeContext& c) {
  int output = 0;
  if constexpr (kKeyAndCounter) {
    MR_TRY(c.input(0).merge(PartialShape{2}).status());
    c.set_output(output++, PartialShape{1});
    c.set_output(output++, PartialShape{2});
  }
  if constexpr (kAlgorithm) c.set_output(output, PartialShape::scalar());
  return ok_status();
}

template <bool kKeyAndCounter, bool kAlgorithm>
Status key_counter(KernelContext& ctx) {
  int output = 0;
  if constexpr (kKeyAndCounter) {
    MR_TRY_ASSIGN(const Philox stream, stream_of_seed(ctx, 0));
    const Philox::Place place = stream.place();
    ctx.set_output(output++, Tensor::vector<uint64_t>({place[0]}));
    ctx.set_output(output++, Tensor::vector<uint64_t>({place[1], place[2]}));
  }
  if constexpr (kAlgorithm) ctx.set_output(output, Tensor::scalar<int32_t>(1));
  return ok_status();
}

}  // namespace

Status check_stream(const ShapeContext& c) {
  const auto expect = [&](int input, const PartialShape& shape) {
    const PartialShape& given = c.input(input);
    if (given.compatible(shape)) return ok_status();
    return invalid_argument(c.op().inputs[static_cast<size_t>(input)].name, " must have shape ",
                            shape, ", not ", given);
  };
  const std::vector<ArgDef>& inputs = c.op().inputs;
  for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
    const std::string& name = inputs[static_cast<size_t>(i)].name;
    if (name == "seed") MR_TRY(expect(i, PartialShape{2}));
    if (name == "key") MR_TRY(expect(i, PartialShape{1}));
    if (name == "counter") {
      const int64_t size = c.input(i).num_elements();
      MR_TRY(expect(i, PartialShape{size > 2 ? size : 2}));
    }
    if (name == "alg") MR_TRY(expect(i, PartialShape::scalar()));
  }
  return ok_status();
}

void add_stateless(Registry& registry, const StatelessOp& op) {
  if (op.with_seed != nullptr) {
    OpSpec spec = with_inputs(op, op.with_seed, {{"seed", "host(Tseed)", "Two integers."}});
    std::vector<OpSpec::Type> types(spec.types.begin(), spec.types.end());
    types.push_back({"Tseed", kIndexTypes, DType::kInt64});
    spec.types = types;
    registry.add(spec);
  }
  if (op.with_key != nullptr) {
    registry.add(with_inputs(op, op.with_key,
                             {{"key", "host(uint64)"},
                              {"counter", "host(uint64)"},
                              {"alg", "host(int32)", "1, or 3 for any: Philox."}}));
  }
}

void register_stateless(Registry& registry) {
  const std::vector<OpSpec::Arg> seed = {{"seed", "host(Tseed)", "Two integers."}};
  const std::vector<OpSpec::Type> types = {{"Tseed", kIndexTypes, DType::kInt64}};
  const OpTraits traits = {.cannot_differentiate = true};
  registry.add({.name = "StatelessRandomGetKeyCounter",
                .doc = "The stream of random numbers that a seed stands for.",
                .inputs = seed,
                .outputs = {{"key", "host(uint64)"}, {"counter", "host(uint64)"}},
                .types = types,
                .traits = traits,
                .shape = key_counter_shape<true, false>});
  registry.add({.name = "StatelessRandomGetAlg",
                .doc = "The number of the algorithm of random numbers.",
                .outputs = {{"alg", "host(int32)"}},
                .traits = traits,
                .shape = key_counter_shape<false, true>});
  registry.add(
      {.name = "StatelessRandomGetKeyCounterAlg",
       .doc = "The stream of random numbers that a seed stands for, and its algorithm.",
       .inputs = seed,
       .outputs = {{"key", "host(uint64)"}, {"counter", "host(uint64)"}, {"alg", "host(int32)"}},
       .types = types,
       .traits = traits,
       .shape = key_counter_shape<true, true>});
  constexpr DeviceKind kCpu = DeviceKind::kCpu;
  registry.kernel("StatelessRandomGetKeyCounter", kCpu, key_counter<true, false>);
  registry.kernel("StatelessRandomGetAlg", kCpu, key_counter<false, true>);
  registry.kernel("StatelessRandomGetKeyCounterAlg", kCpu, key_counter<true, true>);
}

}  // namespace millrace
