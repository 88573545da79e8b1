#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "millrace/data/dataset.h"
#include "millrace/data/function.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/registry.h"

// What ops that make datasets have in common.

namespace millrace {
class ShapeContext;
}  // namespace millrace

namespace millrace::data {

// Adds an op whose output is a dataset: the output, attributes that all such ops have, shape rule.
// `make` gives the dataset from the op's inputs.
using MakeDataset = Result<Ref<Dataset>> (*)(KernelContext& ctx);
template <MakeDataset kMake>
Status dataset_kernel(KernelContext& ctx);
// What those ops check of their inputs and attributes before a step.
Status dataset_shape(ShapeContext& c);
void add_dataset_op(Registry& registry, OpSpec spec, KernelFunction kernel);
// Ops made of files and the like, which have no attributes for types and shapes.
void add_source_op(Registry& registry, OpSpec spec, KernelFunction kernel);

// The dataset in input i; INVALID_ARGUMENT when there is none, or too many lie within each other.
Result<Ref<Dataset>> dataset_input(const KernelContext& ctx, int i);
// All inputs, which are datasets.
Result<std::vector<Ref<Dataset>>> dataset_inputs(const KernelContext& ctx);
// Attributes output_types and output_shapes (or `types`); INVALID_ARGUMENT unless there are as many
// of one as of the other.
Result<ElementSpec> spec_of(const KernelNode& node, std::string_view types = "output_types");
// The function in attribute `name`, with `count` inputs from `first` on that it captured.
Result<Closure> closure_of(const KernelContext& ctx, std::string_view name, int first, int count);
// The functions in attributes `names`, whose captured inputs follow each other from `first` on; the
// types of those are in the attribute "T", name, `suffix`.
Result<std::vector<Closure>> closures_of(const KernelContext& ctx, int first,
                                         std::initializer_list<const char*> names,
                                         std::string_view suffix);
// The length of a list attribute of types.
Result<int> type_count(const KernelNode& node, std::string_view attr);
// `count` inputs from `first` on, in memory that outlives the step.
Result<Element> kept_inputs(const KernelContext& ctx, int first, int count);
// Input i in memory that outlives the step.
Result<Tensor> kept_input(const KernelContext& ctx, int i);
// A string in input i, of one element.
Result<std::string> string_input(const KernelContext& ctx, int i);
// A number in input i that must be at least `least`; INVALID_ARGUMENT naming it.
Result<int64_t> count_input(const KernelContext& ctx, int i, std::string_view name, int64_t least);

// Of ops whose outputs are an element: the shapes that attribute output_shapes says, and the
// element; INVALID_ARGUMENT unless it is one of `spec`, what the op declares.
Status element_shape(ShapeContext& c);
// The same check of the attributes, for ops that give a handle.
Status element_handle_shape(ShapeContext& c);
Status set_element(KernelContext& ctx, Element element, const ElementSpec& spec);

// What dataset_shape() checks, again, of what came.
Status check_call(const KernelContext& ctx);

template <MakeDataset kMake>
Status dataset_kernel(KernelContext& ctx) {
  MR_TRY(check_call(ctx));
  MR_TRY_ASSIGN(Ref<Dataset> dataset, kMake(ctx));
  ctx.set_output(0, dataset_tensor(std::move(dataset)));
  return ok_status();
}

}  // namespace millrace::data
