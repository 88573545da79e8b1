// Ops that iterate over a whole dataset: ReduceDataset, DatasetToSingleElement.

#include "millrace/data/blocking_kernel.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/function.h"
#include "millrace/data/whole.h"
#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

Status single_element(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Dataset> dataset, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const Whole whole, Whole::make(ctx, *dataset));
  Element element, more;
  bool end = false;
  MR_TRY(whole.iterator->next(element, end));
  if (end) return invalid_argument("Dataset was empty.");
  MR_TRY(whole.iterator->next(more, end));
  if (!end) return invalid_argument("Dataset had more than one element.");
  MR_TRY_ASSIGN(const ElementSpec spec, spec_of(ctx.node()));
  return set_element(ctx, std::move(element), spec);
}

Status reduce(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Dataset> dataset, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const ElementSpec spec, spec_of(ctx.node()));
  MR_TRY_ASSIGN(const int states, type_count(ctx.node(), "Tstate"));
  MR_TRY_ASSIGN(const Closure closure,
                closure_of(ctx, "f", 1 + states, ctx.num_inputs() - 1 - states));
  MR_TRY_ASSIGN(const Whole whole, Whole::make(ctx, *dataset));
  MR_TRY_ASSIGN(const Function function, Function::make(closure, whole.environment));
  MR_TRY_ASSIGN(Element state, kept_inputs(ctx, 1, states));
  Element element;
  for (;;) {
    bool end = false;
    MR_TRY(whole.environment->status());
    MR_TRY(whole.iterator->next(element, end));
    if (end) return set_element(ctx, std::move(state), spec);
    Element args = std::move(state);
    args.insert(args.end(), element.begin(), element.end());
    state = {};
    MR_TRY(function.call(std::move(args), state));
  }
}

}  // namespace

void register_reduce(Registry& registry) {
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  const OpSpec::Attr types = {"output_types", "list(type) >= 1"};
  const OpSpec::Attr shapes = {"output_shapes", "list(shape) >= 1"};
  const OpSpec::Attr metadata = {"metadata", "string = ''"};
  registry.add({.name = "DatasetToSingleElement",
                .doc = "The only element of a dataset.",
                .inputs = {{"dataset", "variant"}},
                .outputs = {{"components", "list(output_types)"}},
                .attrs = {types, shapes, metadata},
                .traits = traits,
                .shape = element_shape});
  registry.kernel<BlockingKernel<single_element>>("DatasetToSingleElement", DeviceKind::kCpu);
  registry.add({.name = "ReduceDataset",
                .doc = "What f makes of a state and one element after the other.",
                .inputs = {{"input_dataset", "variant"},
                           {"initial_state", "host(list(Tstate))"},
                           {"other_arguments", "host(list(Targuments))"}},
                .outputs = {{"components", "list(output_types)"}},
                .attrs = {{"f", "func"},
                          {"Tstate", "list(type) >= 1"},
                          {"Targuments", "list(type) >= 0"},
                          types,
                          shapes,
                          {"use_inter_op_parallelism", "bool = true"},
                          metadata},
                .traits = traits,
                .shape = element_shape});
  registry.kernel<BlockingKernel<reduce>>("ReduceDataset", DeviceKind::kCpu);
}

}  // namespace millrace::data
